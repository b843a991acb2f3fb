//go:build !unix

package main

import "os"

// levelSignals toggle the level of the log.
var levelSignals []os.Signal
