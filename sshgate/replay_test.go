package sshgate

import (
	"strings"
	"testing"
	"time"

	"relay"
	"relay/record"
)

func TestReplayTellsTheDifference(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	e := b.store.event(1, b.store.alias("a", 1))
	again := e.Attempts[0]
	again.N, again.Kind, again.Status = 2, relay.KindReplay, 500
	again.Timing.Wait = 40 * time.Millisecond
	again.Response.Head = []byte("HTTP/1.1 500 Oops\r\nDate: now\r\nX-Evil: \x1b[2J\r\nContent-Type: text/plain\r\n\r\n")
	again.Response.Body = relay.Body{Data: []byte("oops"), Stored: 4, Size: 4, SHA256: [32]byte{1}, State: relay.BodyComplete}
	e.Attempts = append(e.Attempts, again)
	out, _, code := runs(t, b.mustDial(b.alice), "replay "+e.ID.String())
	_, lines, _ := strings.Cut(out, "\n")
	if want := `compared with attempt 1:
  status   500, was 200
  latency  40.0 ms, was 23.0 ms (+17.0)
  headers  changed: content-type
  body     changed: 4 bytes, was 0
`; code != 0 || lines != want || !strings.Contains(out, "[500] POST /hook (40ms) "+e.ID.String()+" (replay)\n") {
		t.Errorf("exit %d: %s\nwant %s", code, out, want)
	}
}

func TestDifferenceOfEqualAnswers(t *testing.T) {
	t.Parallel()
	latency := 5.0
	a := record.Attempt{Number: 1, LatencyMs: &latency, Response: &record.Response{Status: 204}}
	refused := record.Attempt{Number: 3, Error: &record.Fault{Code: relay.CodeLocalRefused}}
	if got, want := difference(&a, &a), "compared with attempt 1:\n  status   204, as before\n  latency  5.0 ms, was 5.0 ms (+0.0)\n  body     the same 0 bytes\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := difference(&a, &refused), "compared with attempt 1:\n  status   local-refused, was 204\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
