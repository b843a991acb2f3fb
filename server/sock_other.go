//go:build !linux

package server

import (
	"net"
	"syscall"
	"time"

	"relay"
)

// presence is not known on this system; a failing write tells.
func presence(syscall.Conn) relay.Presence { return relay.CallerPresent }

// roundTrip is asked only of a caller that presence has seen to end its side.
func roundTrip(syscall.Conn) time.Duration { return 0 }

// limitUnsent does nothing: other systems accept more bytes as soon as some were sent.
func limitUnsent(net.Conn) {}
