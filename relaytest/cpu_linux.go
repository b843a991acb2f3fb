package relaytest

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime returns the processor time of this thread, to the nanosecond. It does not use getrusage, whose
// time can stand still for milliseconds on a busy machine.
func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return time.Duration(time.Now().UnixNano())
	}
	return time.Duration(t.Nano())
}
