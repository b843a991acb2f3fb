package relaytest

import (
	"syscall"
	"time"
)

// threadTime returns the processor time of this thread.
func threadTime() time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if syscall.Getrusage(thread, &u) != nil {
		return time.Duration(time.Now().UnixNano())
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
