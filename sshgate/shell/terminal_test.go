package shell

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/record"
)

// TestPathFitsTheWindow: a line is as wide as the window at most, by a shorter path, until the
// path would say nothing.
func TestPathFitsTheWindow(t *testing.T) {
	t.Parallel()
	latency := 23.4
	status := 200
	e := &record.Summary{
		ID: "evt_01k0000000000000000000000", Method: "POST", Path: "/webhooks/stripe/live", State: relay.StateDelivered, Status: &status,
		LatencyMs: &latency, AttemptCount: 2, ReceivedAt: record.Time{Time: time.Date(2026, 11, 21, 15, 4, 5, 0, time.Local)},
	}
	for columns, path := range map[int]string{
		0: "/webhooks/stripe/live", 121: "/webhooks/stripe/live", 101: "/webhooks/stripe/l…", 80: "/webhooks/s…", 2: "/webhooks/s…",
	} {
		s := Screen{pty: true, dumb: true, columns: columns}
		want := "2026-11-21 15:04:05 [200] POST " + path + " (23ms) evt_01k0000000000000000000000 (2 attempts)"
		if got := s.line(record.EventLine(e)); got != want {
			t.Errorf("%d columns: %q, want %q", columns, got, want)
		}
	}
}

// TestRowOfFailure: without a response the row shows what the caller was answered,
// and why.
func TestRowOfFailure(t *testing.T) {
	t.Parallel()
	var s Screen
	for _, x := range []struct {
		state string
		fault *relay.Fault
		want  string
	}{
		{relay.StateFailed, &relay.Fault{Code: relay.CodeLocalRefused, Message: "x"}, "[502] GET / evt_1 local-refused: x"},
		{relay.StateInterrupted, &relay.Fault{Code: relay.CodeTunnelLost}, "[502] GET / evt_1 tunnel-lost"},
		{relay.StateIncomplete, &relay.Fault{Code: relay.CodeCallerGone}, "[incomplete] GET / evt_1 caller-gone"},
		{relay.StateInterrupted, &relay.Fault{Code: "interrupted"}, "[interrupted] GET / evt_1 interrupted"},
		{relay.StateRejected, &relay.Fault{Code: relay.CodeBodyTooLarge}, "[413] GET / evt_1 body-too-large"},
		{relay.StateQueued, nil, "[queued] GET / evt_1"},
		{relay.StateCanceled, &relay.Fault{Code: relay.CodeSuperseded}, "[canceled] GET / evt_1"},
	} {
		if got := s.line(record.EventLine(&record.Summary{ID: "evt_1", Method: "GET", Path: "/", State: x.state, Error: x.fault})); !strings.HasSuffix(got, x.want) {
			t.Errorf("%s: %q, want %q", x.state, got, x.want)
		}
	}
}

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
