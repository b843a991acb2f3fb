//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// readKeys gives single key presses to pressed until stdin ends, and a function
// that puts the terminal back. It does nothing when stdin is no terminal, or not
// ours: a background job that touches the terminal would be stopped.
func readKeys(in *os.File, pressed func(byte)) (restore func()) {
	nothing := func() {}
	fd := int(in.Fd())
	if !term.IsTerminal(fd) {
		return nothing
	}
	if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil || group != unix.Getpgrp() {
		return nothing
	}
	before, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return nothing
	}
	single := *before
	single.Lflag &^= unix.ICANON | unix.ECHO // Ctrl+C stays a signal
	single.Cc[unix.VMIN], single.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, setTermios, &single); err != nil {
		return nothing
	}
	// Sent to the background later, a read fails instead of stopping the tunnel.
	signal.Ignore(syscall.SIGTTIN)
	go func() {
		key := make([]byte, 1)
		for {
			if n, err := in.Read(key); n == 0 || err != nil {
				return
			}
			pressed(key[0])
		}
	}()
	return func() { _ = unix.IoctlSetTermios(fd, setTermios, before) }
}
