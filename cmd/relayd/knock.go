package main

import (
	"context"
	"io"
	"net"
	"net/netip"
)

// localProxy is the PROXY header of somebody who speaks for himself.
const localProxy = "PROXY UNKNOWN\r\n"

// dialSelf reaches a listener of this machine that demands a PROXY header from
// trusted sources: where this machine is one, it says that it speaks for itself.
func dialSelf(trusted Prefixes) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		own, err := netip.ParseAddrPort(conn.LocalAddr().String())
		if err != nil {
			return conn, nil
		}
		for _, p := range trusted {
			if p.Contains(own.Addr().Unmap()) {
				if _, err := io.WriteString(conn, localProxy); err != nil {
					_ = conn.Close()
					return nil, err
				}
				break
			}
		}
		return conn, nil
	}
}
