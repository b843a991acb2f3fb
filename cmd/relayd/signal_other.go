//go:build !unix

package main

import "os"

// reopenSignals open the file of the access log again.
var reopenSignals []os.Signal

// levelSignals toggle the level of the log.
var levelSignals []os.Signal
