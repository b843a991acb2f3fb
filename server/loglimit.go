package server

import (
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Bounds of log lines of one kind. A flood of requests or connections must not become
// a flood of lines, because every request would wait for the log.
const (
	logPerSecond = 20               // lines a second about relay-made answers at level info
	logInterval  = 10 * time.Second // time between two lines of any other limited kind
)

// logLimiter allows a number of log lines of one kind within an interval, and counts the suppressed
// ones. It is safe for concurrent use.
type logLimiter struct {
	rate       *rate.Limiter
	suppressed atomic.Int64
}

func newLogLimiter(lines int, interval time.Duration) *logLimiter {
	return &logLimiter{rate: rate.NewLimiter(rate.Every(interval/time.Duration(lines)), lines)}
}

// allow reports whether a line may be written now, and returns the number of lines suppressed since the last
// line that was allowed.
func (l *logLimiter) allow() (suppressed int64, ok bool) {
	if !l.rate.Allow() {
		l.suppressed.Add(1)
		return 0, false
	}
	return l.suppressed.Swap(0), true
}
