//go:build !linux

package server

import (
	"net"
	"syscall"

	"relay"
)

// presence is not known on this system; a failing write tells.
func presence(syscall.Conn) relay.Presence { return relay.CallerPresent }

// limitUnsent does nothing: other systems accept more bytes as soon as some were sent.
func limitUnsent(net.Conn) {}

// fileLimit is not asked for on this system.
func fileLimit() int { return 0 }
