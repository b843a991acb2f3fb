//go:build !unix

package main

import "os"

// reopenSignals are the signals that open the file of the access log again; this system has none.
var reopenSignals []os.Signal

// levelSignals are the signals that toggle the log level; this system has none.
var levelSignals []os.Signal
