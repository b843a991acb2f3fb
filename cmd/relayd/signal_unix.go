//go:build unix

package main

import (
	"os"
	"syscall"
)

// reopenSignals are the signals that open the file of the access log again.
var reopenSignals = []os.Signal{syscall.SIGUSR1}

// levelSignals are the signals that toggle the log level.
var levelSignals = []os.Signal{syscall.SIGUSR2}
