//go:build !linux

package relaytest

import "time"

// threadTime returns the wall-clock time on systems that do not report the processor time of a thread.
func threadTime() time.Duration { return time.Duration(time.Now().UnixNano()) }
