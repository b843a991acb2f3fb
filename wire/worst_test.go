package wire

import (
	"bytes"
	"io"
	"testing"

	"relay"
	"relay/relaytest"
)

// pieces passes growing beginnings of a head to a parser, as if it arrived from a socket.
func pieces(p []byte, size int, parse func(p []byte, seen int) bool) {
	for seen, n := 0, 0; n < len(p); seen = n {
		if n = min(n+size, len(p)); parse(p[:n], seen) {
			return
		}
	}
}

// TestWorstBytes: every function of this package takes time proportional to its input, also for blank
// folded lines of 127 KiB.
func TestWorstBytes(t *testing.T) {
	t.Parallel()
	request := func(lines []byte) []byte { return append([]byte("POST / HTTP/1.1\r\nHost: a\r\n"), lines...) }
	response := func(lines []byte) []byte { return append([]byte("HTTP/1.1 200 OK\r\n"), lines...) }
	body := func(h Head) func(p []byte) {
		return func(p []byte) {
			b := NewBody(&h)
			b.Tee = func(_, _ []byte) {}
			for len(p) > 0 {
				n := min(len(p), 3)
				used, end, err := b.Feed(p[:n])
				if p = p[used:]; end || err != nil {
					return
				}
			}
			b.Stop()
		}
	}
	const most, heads, head = 1 << 20, 256 << 10, 128 << 10
	for _, c := range []struct {
		name string
		most int // largest input of the function in bytes
		f    func(p []byte)
	}{
		{"Fields", heads, func(p []byte) { Fields(p) }},
		{"Fields of a request", heads, func(p []byte) { Fields(request(p)) }},
		{"Fields behind a folded line", heads, func(p []byte) { Fields(request(append([]byte("a: b\r\n \r\n"), p...))) }},
		{"Trailers", heads, func(p []byte) { Trailers(p) }},
		{"Trailers behind the last chunk", heads, func(p []byte) { Trailers(append([]byte("0\r\na: b\r\n"), p...)) }},
		{"HeadEnd", most, func(p []byte) { HeadEnd(p, 0) }},
		{"StartLine", most, func(p []byte) { StartLine(p) }},
		{"SetHost", most, func(p []byte) { SetHost(request(p), "b") }},
		{"AddLines", most, func(p []byte) { AddLines(p, []byte("a: b\r\n")) }},
		{"ShownTarget", most, func(p []byte) { ShownTarget(p) }},
		{"ValidHost", most, func(p []byte) { ValidHost(p) }},
		{"Request", most, func(p []byte) { _, _, _ = Request(p, Limits{}) }},
		{"Request with these lines", most, func(p []byte) { _, _, _ = Request(request(p), Limits{}) }},
		{"Request with this target", most, func(p []byte) { _, _, _ = Request(append([]byte("GET /"), p...), Limits{}) }},
		{"Request in pieces", head, func(p []byte) {
			pieces(request(p), 1000, func(p []byte, seen int) bool {
				_, _, err := Request(p, Limits{Head: head, Target: 16 << 10, Seen: seen})
				return err != ErrMore
			})
		}},
		{"Response", most, func(p []byte) { _, _, _ = Response(p, Limits{}, nil) }},
		{"Response with these lines", most, func(p []byte) { _, _, _ = Response(append(response(p), "\r\n\r\n"...), Limits{}, nil) }},
		{"Response in pieces", head, func(p []byte) {
			pieces(response(p), 1000, func(p []byte, seen int) bool {
				_, _, err := Response(p, Limits{Head: head, Seen: seen}, nil)
				return err != ErrMore
			})
		}},
		{"chunks of a request", most, body(Head{Framing: relay.FramingChunked})},
		{"chunks of a response", most, body(Head{Framing: relay.FramingChunked, Status: 200})},
		{"extension of a chunk", most, func(p []byte) { body(Head{Framing: relay.FramingChunked, Status: 200})(append([]byte("1;"), p...)) }},
		{"trailers of a response", most, func(p []byte) {
			body(Head{Framing: relay.FramingChunked, Status: 200})(append([]byte("0\r\na: "), p...))
		}},
		{"Rebuild", most, func(p []byte) {
			_ = Rebuild(io.Discard, &relay.Message{Framing: relay.FramingChunked, Lines: p}, nil, bytes.NewReader(p))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			relaytest.WorstBytes(t, c.most, c.f)
		})
	}
}
