package compose

import (
	"encoding/json"
	"slices"
	"testing"

	"relay"
	"relay/relaytest"
)

// TestWorstHeads: the time to read, compare and edit requests is proportional to their size.
func TestWorstHeads(t *testing.T) {
	t.Parallel()
	const head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\r\n"
	for name, f := range map[string]func(p []byte){
		"parse": func(p []byte) { _, _ = Parse(p) },
		"chunked": func(p []byte) {
			_, _ = Parse(append([]byte("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), p...))
		},
		"set a member of it":      set("/a/b/0", "", ""),
		"set a member before it":  set("z", `{"z":1,"a":`, "}"),
		"set a member behind it":  set("z", `{"a":[`, `],"z":1}`),
		"set a member of a chain": set("a.a.a.a.a.a.a.a", `{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"b":[`, `],"a":1}}}}}}}}`),
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
	t.Run("sender", func(t *testing.T) {
		t.Parallel()
		relaytest.WorstBytes(t, 128<<10, func(p []byte) { // the size of the largest head
			r := From(&relay.Message{Head: append([]byte("POST / HTTP/1.1\r\n"), p...)}, nil)
			r.Sender()
			r.HasSignature()
			_ = r.Apply(&Edit{Method: "PUT", Path: "/b", Header: []Header{{"K9", "v"}}, Remove: []string{"A"}})
			r.Wire()
		})
	})
}

// set returns a function that puts its argument between the texts "before" and "behind", and sets the member at
// path in the resulting JSON body.
func set(path, before, behind string) func(p []byte) {
	return func(p []byte) {
		r := From(&relay.Message{Head: []byte("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\r\n")}, slices.Concat([]byte(before), p, []byte(behind)))
		_ = r.Apply(&Edit{Set: map[string]json.RawMessage{path: json.RawMessage("2")}})
	}
}
