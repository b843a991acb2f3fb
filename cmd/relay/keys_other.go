//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

import "os"

// readKeys does nothing here: single keys need a Unix terminal.
func readKeys(*os.File, func(byte)) (restore func()) { return func() {} }
