package shell

import (
	"strings"
	"testing"
)

// TestLinesAreBoundedInBytes: the total size of the waiting lines of a live log is bounded; further lines are
// dropped and counted. One line of any size fits into an empty queue.
func TestLinesAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	l := &live{out: NewQueue[string]()}
	for range maxWaiting {
		l.line(strings.Repeat("x", 100<<10))
	}
	waiting, lost, _ := l.out.Take()
	if size := len(strings.Join(waiting, "")); size > maxBytes || len(waiting)+lost != maxWaiting || lost == 0 {
		t.Errorf("%d lines of %d bytes wait, %d lost", len(waiting), size, lost)
	}
	l.line(strings.Repeat("x", 2*maxBytes))
	if waiting, lost, _ := l.out.Take(); len(waiting) != 1 || lost != 0 {
		t.Errorf("%d lines wait, %d lost", len(waiting), lost)
	}
}
