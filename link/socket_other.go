//go:build !linux

package link

import (
	"net"
	"time"
)

// tune does nothing and returns nil: TCP_QUICKACK exists only on Linux, and the check for unread bytes is
// written only for Linux.
func tune(net.Conn, time.Duration) (ack func(), unread func() bool) { return nil, nil }
