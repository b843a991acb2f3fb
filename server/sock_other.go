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

// presence always reports the caller as present. The server notices that the caller has left when a
// write fails.
func (*peer) presence() relay.Presence { return relay.CallerPresent }

// roundTrip returns 0. The time is needed only if presence has reported a half-closed caller, which it
// never does here.
func (*peer) roundTrip() time.Duration { return 0 }

// limitUnsent does nothing: other systems continue a waiting write as soon as some bytes were sent.
func (*peer) limitUnsent() {}
