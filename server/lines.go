package server

import (
	"sync"
	"time"
)

// How many lines of one kind the log gets: a flood, on one alias whose local server is
// down or from strangers, must not become a flood of lines, which all requests would
// wait for.
const (
	toldPerSecond = 20               // answers of our own, at the usual level
	toldPause     = 10 * time.Second // between two connections that were turned away
)

// lines bounds lines of one kind in the log: so many within a time, the rest is counted.
// Safe for concurrent use.
type lines struct {
	most int
	per  time.Duration

	mu     sync.Mutex
	since  time.Time
	n      int
	silent int
}

// may tells whether there may be a line now, and how many there were not since the last
// one.
func (l *lines) may(now time.Time) (silent int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.since) >= l.per {
		l.since, l.n = now, 0
	}
	if l.n++; l.n > l.most {
		l.silent++
		return 0, false
	}
	silent, l.silent = l.silent, 0
	return silent, true
}
