//go:build unix

package main

import (
	"os"
	"syscall"
)

// reopenSignals open the file of the access log again.
var reopenSignals = []os.Signal{syscall.SIGUSR1}

// levelSignals toggle the level of the log.
var levelSignals = []os.Signal{syscall.SIGUSR2}
