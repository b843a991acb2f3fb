package compose

import (
	"encoding/json"
	"testing"

	"relay"
	"relay/relaytest"
)

// TestWorstBytes: a new request is made in proportion to the bytes of the captured one, whatever they are.
func TestWorstBytes(t *testing.T) {
	t.Parallel()
	const head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\r\n"
	for name, f := range map[string]func(p []byte){
		"parse": func(p []byte) { _, _ = Parse(p) },
		"chunked": func(p []byte) {
			_, _ = Parse(append([]byte("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), p...))
		},
		"set": func(p []byte) {
			r := From(&relay.Message{Head: []byte(head), Framing: relay.FramingLength}, p)
			_ = r.Apply(&Edit{Set: map[string]json.RawMessage{"a.0.k9": json.RawMessage("1"), "/0/0/0": json.RawMessage("2")}})
			r.Wire()
		},
		"sender": func(p []byte) {
			r := From(&relay.Message{Head: append([]byte("POST / HTTP/1.1\r\n"), p[:min(len(p), 128<<10)]...)}, nil)
			r.Sender()
			r.HasSignature()
			_ = r.Apply(&Edit{Method: "PUT", Path: "/b", Header: []Header{{"K9", "v"}}, Remove: []string{"A"}})
			r.Wire()
		},
		"compare": func(p []byte) {
			old, now := From(&relay.Message{Head: []byte(head)}, p), From(&relay.Message{Head: []byte(head)}, append([]byte(" "), p...))
			Compare(old, now)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			relaytest.WorstBytes(t, 1<<20, f)
		})
	}
}
