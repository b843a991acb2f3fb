//go:build !linux

package server

import (
	"net"
	"time"

	"relay"
)

// peer is the other end of a socket. This system does not show its state.
type peer struct{}

func newPeer(net.Conn) *peer { return &peer{} }

// presence always reports the caller as present. A failing write shows that the caller has gone.
func (*peer) presence() relay.Presence { return relay.CallerPresent }

// roundTrip returns 0. It is only needed for a caller whose closed side presence has seen.
func (*peer) roundTrip() time.Duration { return 0 }

// limitUnsent does nothing: other systems accept more bytes as soon as some were sent.
func (*peer) limitUnsent() {}
