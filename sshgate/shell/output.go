package shell

import (
	"io"
	"strings"
	"sync"
)

// maxLines is how many lines wait for a peer that does not read, maxWaiting how
// many bytes. A write to a full window waits without end, so what is more is
// dropped and counted.
const maxLines, maxWaiting = 256, 1 << 20

// outputQueue is the output of a live session.
type outputQueue struct {
	mu      sync.Mutex
	waiting []string
	size    int // of waiting, in bytes
	dropped int
	ended   bool
	wake    chan struct{}
}

func newOutputQueue() *outputQueue { return &outputQueue{wake: make(chan struct{}, 1)} }

// put adds a line and never blocks.
func (l *outputQueue) put(line string) {
	l.mu.Lock()
	switch {
	case l.ended:
	case l.dropped > 0 || len(l.waiting) >= maxLines || len(l.waiting) > 0 && l.size+len(line) > maxWaiting:
		l.dropped++
	default:
		l.waiting = append(l.waiting, line)
		l.size += len(line)
	}
	l.mu.Unlock()
	l.notify()
}

// end lets write return once all is written.
func (l *outputQueue) end() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.notify()
}

func (l *outputQueue) notify() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *outputQueue) take() (waiting []string, lost int, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting, lost, ended = l.waiting, l.dropped, l.ended
	l.waiting, l.size, l.dropped = nil, 0, 0
	return waiting, lost, ended
}

// write writes lines to w until end or an error. dropped returns the line that says that n
// lines are missing.
func (l *outputQueue) write(w io.Writer, dropped func(n int) string) {
	for {
		waiting, lost, ended := l.take()
		if lost > 0 {
			waiting = append(waiting, dropped(lost))
		}
		if len(waiting) > 0 {
			if _, err := io.WriteString(w, strings.Join(waiting, "\n")+"\n"); err != nil {
				return
			}
			continue
		}
		if ended {
			return
		}
		<-l.wake
	}
}
