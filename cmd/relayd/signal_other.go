//go:build !unix

package main

import "os"

// reopenSignals are the signals at which the file of the access log is opened again.
var reopenSignals []os.Signal

// levelSignals are the signals that toggle the level of the log.
var levelSignals []os.Signal
