//go:build unix

package main

import (
	"os"
	"syscall"
)

// levelSignals toggle the level of the log.
var levelSignals = []os.Signal{syscall.SIGUSR2}
