//go:build !linux

package server

import (
	"net"
	"syscall"
	"time"

	"relay"
)

// presence always reports the caller as present: this system does not show the state of the peer. A
// failing write shows that the caller has gone.
func presence(syscall.Conn) relay.Presence { return relay.CallerPresent }

// roundTrip returns 0 on this system. It is only needed for a caller whose closed side presence has
// seen.
func roundTrip(syscall.Conn) time.Duration { return 0 }

// limitUnsent does nothing: other systems accept more bytes as soon as some were sent.
func limitUnsent(net.Conn) {}
