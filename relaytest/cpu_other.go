//go:build !linux

package relaytest

import "time"

// threadTime returns the time of the clock, where that of a thread is not known.
func threadTime() time.Duration { return time.Duration(time.Now().UnixNano()) }
