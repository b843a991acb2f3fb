package shell

import (
	"fmt"
	"strings"
	"testing"

	"relay"
)

// TestLinesAreBoundedInBytes: lines of the bundled client carry whole headers.
func TestLinesAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	l := newOutput()
	for range maxWaiting {
		l.line(strings.Repeat("x", 100<<10))
	}
	waiting, lost, _ := l.Take()
	if size := len(strings.Join(waiting, "")); size > maxBytes || len(waiting)+lost != maxWaiting || lost == 0 {
		t.Errorf("%d lines of %d bytes wait, %d lost", len(waiting), size, lost)
	}
	l.line(strings.Repeat("x", 2*maxBytes)) // one line always has a place
	if waiting, lost, _ := l.Take(); len(waiting) != 1 || lost != 0 {
		t.Errorf("%d lines wait, %d lost", len(waiting), lost)
	}
}

// TestFollowerIsBounded: what it remembers does not grow with the attempts that pass.
func TestFollowerIsBounded(t *testing.T) {
	t.Parallel()
	f := newFollower(func(int64) bool { return true })
	for i := range 5000 {
		data := fmt.Sprintf(`{"eventId":"evt_%d","event":{},"attempt":{"number":1,"state":"delivered"}}`, i)
		ended, _ := f.take([]relay.FeedItem{{Name: "attempt", Alias: 1, Data: []byte(data)}})
		if len(ended) != 1 || len(f.printed) > memory {
			t.Fatalf("%d attempts ended, %d are remembered", len(ended), len(f.printed))
		}
	}
}
