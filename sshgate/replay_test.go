package sshgate

import (
	"strings"
	"testing"
	"time"

	"relay"
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
	if want := `compared with attempt 1: 200 → 500, 1 header line changed, 1 line changed, 17 ms slower
`; code != 0 || lines != want || !strings.Contains(out, "[500] POST /hook (40ms) "+e.ID.String()+" (replay 2)\n") {
		t.Errorf("exit %d: %s\nwant %s", code, out, want)
	}
}
