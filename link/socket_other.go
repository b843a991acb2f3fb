//go:build !linux

package link

import (
	"net"
	"time"
)

// tune does nothing where there is no TCP_QUICKACK; what is unread is not known.
func tune(net.Conn, time.Duration) (ack func(), unread func() bool) { return nil, nil }
