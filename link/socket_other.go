//go:build !linux

package link

import (
	"net"
	"time"
)

// tune does nothing on systems without TCP_QUICKACK, which cannot report unread bytes.
func tune(net.Conn, time.Duration) (ack func(), unread func() bool) { return nil, nil }
