//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

import (
	"context"
	"os"
)

// keyboard does nothing here: single keys need a Unix terminal.
type keyboard struct{}

func openKeyboard(context.Context, *os.File, *console, func([]byte)) *keyboard { return nil }

func (*keyboard) close() {}
