//go:build !linux

package sshgate

import (
	"net"
	"time"
)

// tune does nothing where there is no TCP_QUICKACK.
func tune(net.Conn, time.Duration) (ack func()) { return nil }
