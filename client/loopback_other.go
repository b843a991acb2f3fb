//go:build !linux

package client

// dialLoopback returns nil: the usual way of dialing is taken.
func dialLoopback(string) localConn { return nil }
