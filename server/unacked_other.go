//go:build !linux

package server

import "syscall"

// unacked cannot be known here.
func unacked(syscall.Conn) (n int, ok bool) { return 0, false }
