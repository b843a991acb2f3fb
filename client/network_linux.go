package client

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// networkHints hints at each change of cards, addresses and routes that the kernel
// tells of (rtnetlink), until ctx ends.
func networkHints(ctx context.Context, hints chan<- struct{}) {
	socket, err := listenRoutes()
	if err != nil { // a sandbox without netlink
		pollHints(ctx, hints)
		return
	}
	stop := context.AfterFunc(ctx, func() { socket.Close() })
	defer func() {
		if stop() {
			socket.Close()
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		// What happened does not matter; that the buffer of the socket ran over is a
		// change too.
		if _, err := socket.Read(buf); err != nil && ctx.Err() == nil {
			if !wait(ctx, pollNetwork) {
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
		hint(hints)
	}
}

func listenRoutes() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	groups := uint32(unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "rtnetlink"), nil
}
