//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

import "os"

// keyboard does nothing on this system: single keys need a Unix terminal.
type keyboard struct{}

func openKeyboard(*os.File, func(key byte)) *keyboard { return nil }

func (*keyboard) close() {}
