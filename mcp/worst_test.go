package mcp

import (
	"strings"
	"testing"

	"relay/record"
	"relay/relaytest"
)

// TestWorstBytes: 1 MiB of whatever a stranger has sent is decoded, cut, searched and escaped for an agent in time in
// proportion to its length.
func TestWorstBytes(t *testing.T) {
	t.Parallel()
	body := func(p []byte) *record.Body { return &record.Body{Data: string(p), Encoding: record.EncodingUTF8} }
	for name, f := range map[string]func(p []byte){
		"escaped": func(p []byte) { _, _ = escaped(map[string]any{"text": string(p), string(p): 1}) },
		"texts of a list": func(p []byte) {
			_, _ = escaped(strings.SplitAfterN(string(p), "\n", 1000))
		},
		"body": func(p []byte) {
			text, _, _ := textOf(body(p), nil, false)
			cutPiece(piece{}, text, len(text)/2, 64<<10)
		},
		"labelled body": func(p []byte) {
			for _, label := range []string{"application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b", "text/xml"} {
				_, _, _ = textOf(body(p), []record.Header{{"Content-Type", label}}, false)
			}
		},
		"value of JSON": func(p []byte) { _, _ = valueAt(p, "a.b[0].c") },
		"piece":         func(p []byte) { cutPiece(piece{}, p, 1, len(p)-2) },
		"cut":           func(p []byte) { cut(body(p), 8<<10) },
	} {
		t.Run(name, func(t *testing.T) { relaytest.WorstBytes(t, 1<<20, f) })
	}
	// A path has a bound of its own; its worst is tried on nested arrays and objects.
	t.Run("path of JSON", func(t *testing.T) {
		relaytest.WorstBytes(t, maxPath, func(p []byte) {
			_, _ = valueAt([]byte(strings.Repeat(`[`, 5000)+strings.Repeat(`]`, 5000)), string(p))
		})
	})
}
