//go:build unix

package main

import (
	"os"
	"syscall"
)

// reopenSignals are the signals at which the file of the access log is opened again.
var reopenSignals = []os.Signal{syscall.SIGUSR1}

// levelSignals are the signals that toggle the level of the log.
var levelSignals = []os.Signal{syscall.SIGUSR2}
