package wire_test

import (
	"bytes"
	"strings"
	"testing"

	"relay"
	"relay/wire"

	"github.com/google/go-cmp/cmp"
)

func diffHead(t *testing.T, name string, got, want wire.Head) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmp.Comparer(bytes.Equal)); diff != "" {
		t.Errorf("%s: head differs (-want +got):\n%s", name, diff)
	}
}

// answer is a response that must be accepted. to is the method of the request, and rest holds the
// bytes of the next response.
type answer struct {
	name, to, wire, rest string
	want                 wire.Head
}

const ok = "HTTP/1.1 200 OK\r\n"

func goodResponses() []answer {
	none, byLength, byChunks, byClose := relay.FramingNone, relay.FramingLength, relay.FramingChunked, relay.FramingClose
	return []answer{
		{"length", "GET", ok + "Content-Length: 2\r\n\r\nab", "X", wire.Head{Status: 200, Minor: 1, Framing: byLength, Length: 2}},
		{"custom reason", "GET", "HTTP/1.1 200 Fine, thanks\r\nContent-Length: 0\r\n\r\n", "X", wire.Head{Status: 200, Minor: 1, Framing: byLength}},
		{"empty reason", "GET", "HTTP/1.1 404 \r\nContent-Length: 0\r\n\r\n", "X", wire.Head{Status: 404, Minor: 1, Framing: byLength}},
		{"missing reason", "GET", "HTTP/1.1 404\r\nContent-Length: 0\r\n\r\n", "X", wire.Head{Status: 404, Minor: 1, Framing: byLength}},
		{"obs-text reason", "GET", "HTTP/1.1 404 Nicht gef\xfcnden\r\nContent-Length: 0\r\n\r\n", "", wire.Head{Status: 404, Minor: 1, Framing: byLength}},
		{"799", "GET", "HTTP/1.1 799 x\r\nContent-Length: 1\r\n\r\na", "", wire.Head{Status: 799, Minor: 1, Framing: byLength, Length: 1}},
		{"999", "GET", "HTTP/1.1 999 x\r\nContent-Length: 1\r\n\r\na", "", wire.Head{Status: 999, Minor: 1, Framing: byLength, Length: 1}},
		{"204", "POST", "HTTP/1.1 204 No Content\r\n\r\n", "X", wire.Head{Status: 204, Minor: 1, Framing: none}},
		{"204 with length", "POST", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", "X", wire.Head{Status: 204, Minor: 1, Framing: none}},
		{"304 with length", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "X", wire.Head{Status: 304, Minor: 1, Framing: none}},
		{"HEAD with length", "HEAD", ok + "Content-Length: 5\r\n\r\n", "X", wire.Head{Status: 200, Minor: 1, Framing: none}},
		{"HEAD chunked", "HEAD", ok + "Transfer-Encoding: chunked\r\n\r\n", "X", wire.Head{Status: 200, Minor: 1, Framing: none}},
		{"HEAD with both", "HEAD", ok + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", "X", wire.Head{Status: 200, Minor: 1, Framing: none, Sloppy: true, Close: true}},
		{"small head is no HEAD", "head", ok + "Content-Length: 1\r\n\r\na", "X", wire.Head{Status: 200, Minor: 1, Framing: byLength, Length: 1}},
		{"100", "POST", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", wire.Head{Status: 100, Minor: 1, Framing: none}},
		{"103", "GET", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", wire.Head{Status: 103, Minor: 1, Framing: none}},
		{"101", "UP", "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", "\x00\x01", wire.Head{Status: 101, Minor: 1, Framing: none, Upgrade: true}},
		{"chunked with trailers", "GET", ok + "Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n3;a\r\nabc\r\n0\r\nX: 1\r\n\r\n", "X", wire.Head{Status: 200, Minor: 1, Framing: byChunks}},
		{"chunk sizes padded", "GET", ok + "Transfer-Encoding: CHUNKED\r\n\r\n3  \r\nabc\r\n0 \r\n\r\n", "X", wire.Head{Status: 200, Minor: 1, Framing: byChunks}},
		{"trailer folded", "GET", ok + "Transfer-Encoding: chunked\r\n\r\n0\r\nX: 1\r\n 2\r\n\r\n", "X", wire.Head{Status: 200, Minor: 1, Framing: byChunks}},
		{"until close", "GET", ok + "Content-Type: text/plain\r\n\r\nabc\r\n\r\n", "", wire.Head{Status: 200, Minor: 1, Framing: byClose, Close: true}},
		{"stream of events", "GET", ok + "Content-Type: Text/Event-Stream ; charset=utf-8\r\nContent-Length: 1\r\n\r\na", "X", wire.Head{Status: 200, Minor: 1, Framing: byLength, Length: 1, EventStream: true}},
		{"stream of events, folded", "GET", ok + "Content-Type:\r\n text/event-stream\r\n ;charset=utf-8\r\n\r\na", "", wire.Head{Status: 200, Minor: 1, Framing: byClose, Close: true, Sloppy: true, EventStream: true}},
		{"no lines", "GET", ok + "\r\nabc", "", wire.Head{Status: 200, Minor: 1, Framing: byClose, Close: true}},
		{"http/1.0", "GET", "HTTP/1.0 200 OK\r\nServer: SimpleHTTP\r\nContent-Length: 1\r\n\r\na", "", wire.Head{Status: 200, Framing: byLength, Length: 1, Close: true}},
		{"http/1.0 keep-alive", "GET", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na", "X", wire.Head{Status: 200, Framing: byLength, Length: 1}},
		{"close", "GET", ok + "Connection: x, Close\r\nContent-Length: 1\r\n\r\na", "", wire.Head{Status: 200, Minor: 1, Framing: byLength, Length: 1, Close: true}},
		{"keep-alive timeout", "GET", ok + "Keep-Alive: max=5, timeout=7\r\nContent-Length: 1\r\n\r\na", "X", wire.Head{Status: 200, Minor: 1, Framing: byLength, Length: 1, KeepAliveTimeout: 7}},
		{"set-cookie twice", "GET", ok + "Set-Cookie: a=1\r\nset-cookie: b=2\r\nX-Padded:  \t v \r\nContent-Length: 0\r\n\r\n", "X", wire.Head{Status: 200, Minor: 1, Framing: byLength}},
		{"negotiate", "GET", "HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm=\"x\", Negotiate\r\nContent-Length: 0\r\n\r\n", "X", wire.Head{Status: 401, Minor: 1, Framing: byLength, Auth: true}},
		{"bare LF", "GET", "HTTP/1.1 200 OK\nContent-Length: 2\n\nab", "", wire.Head{Status: 200, Minor: 1, Framing: byLength, Length: 2, Sloppy: true, Close: true}},
		{"mixed line ends", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\n\r\nab", "", wire.Head{Status: 200, Minor: 1, Framing: byLength, Length: 2, Sloppy: true, Close: true}},
		{"LF at the end", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\nab", "", wire.Head{Status: 200, Minor: 1, Framing: byLength, Length: 2, Sloppy: true, Close: true}},
		{"folded", "GET", ok + "X-A: 1\r\n\t2\r\nContent-Length: 2\r\n\r\nab", "", wire.Head{Status: 200, Minor: 1, Framing: byLength, Length: 2, Sloppy: true, Close: true}},
		{"odd name", "GET", ok + "X A : 1\r\nContent-Length: 2\r\n\r\nab", "", wire.Head{Status: 200, Minor: 1, Framing: byLength, Length: 2, Sloppy: true, Close: true}},
		{"control byte", "GET", ok + "X-A: \x1b[1m\r\nContent-Length: 2\r\n\r\nab", "", wire.Head{Status: 200, Minor: 1, Framing: byLength, Length: 2, Sloppy: true, Close: true}},
	}
}

func asked(method string) *wire.Head {
	return &wire.Head{Method: []byte(method), Upgrade: method == "UP", Minor: 1}
}

func TestResponseExact(t *testing.T) {
	t.Parallel()
	for _, c := range goodResponses() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for step := 1; step <= len(c.wire); step++ {
				m, err := readResponse([]byte(c.wire+c.rest), step, asked(c.to))
				if err != nil || m.n != len(c.wire) || m.end == (c.want.Framing == relay.FramingClose) {
					t.Fatalf("in steps of %d: took %d of %d, end %v, %v", step, m.n, len(c.wire), m.end, err)
				}
				if got, err := m.rebuilt(step); err != nil || string(got) != c.wire {
					t.Fatalf("in steps of %d: rebuilt %q, %v\nwant %q", step, got, err, c.wire)
				}
				if step == 1 {
					if c.want.KeepAliveTimeout == 0 {
						c.want.KeepAliveTimeout = -1
					}
					c.want.Raw = m.head.Raw
					diffHead(t, c.name, *m.head, c.want)
				}
			}
		})
	}
}

// badResponses are responses that can be read in two ways, or cannot be read.
func badResponses() map[string]string {
	return map[string]string{
		"length and coding":        ok + length + coding + "\r\n",
		"two lengths":              ok + length + "Content-Length: 6\r\n\r\n",
		"two equal lengths":        ok + length + length + "\r\n",
		"length list":              ok + "Content-Length: 5, 5\r\n\r\n",
		"length minus":             ok + "Content-Length: -1\r\n\r\n",
		"length folded":            ok + "Content-Length: 1\r\n 0\r\n\r\n",
		"coding folded":            ok + "Transfer-Encoding:\r\n chunked\r\n\r\n",
		"coding gzip, chunked":     ok + "Transfer-Encoding: gzip, chunked\r\n\r\n",
		"coding identity":          ok + "Transfer-Encoding: identity\r\n\r\n",
		"coding twice":             ok + coding + coding + "\r\n",
		"coding in 1.0":            "HTTP/1.0 200 OK\r\n" + coding + "\r\n",
		"length space colon":       ok + "Content-Length : 5\r\n\r\n",
		"coding tab colon":         ok + "Transfer-Encoding\t: chunked\r\n\r\n",
		"status 99":                "HTTP/1.1 099 x\r\n\r\n",
		"status four digits":       "HTTP/1.1 2000 x\r\n\r\n",
		"status letters":           "HTTP/1.1 2x0 x\r\n\r\n",
		"status missing":           "HTTP/1.1\r\n\r\n",
		"two spaces":               "HTTP/1.1  200 x\r\n\r\n",
		"http/2":                   "HTTP/2 200\r\n\r\n",
		"http/1.2":                 "HTTP/1.2 200 OK\r\n\r\n",
		"small http":               "http/1.1 200 OK\r\n\r\n",
		"ssh":                      "SSH-2.0-OpenSSH_9.2p1\r\n",
		"html":                     "<html>",
		"leading empty line":       "\r\n" + ok + "\r\n",
		"NUL in reason":            "HTTP/1.1 200 O\x00K\r\n\r\n",
		"NUL in a line":            ok + "X: \x00\r\n\r\n",
		"bare CR in a line":        ok + "X: 1\r2\r\n\r\n",
		"no colon":                 ok + "X\r\n\r\n",
		"no name":                  ok + ": 1\r\n\r\n",
		"folded first line":        ok + " X: 1\r\n\r\n",
		"101 not asked for":        "HTTP/1.1 101 Switching\r\n\r\n",
		"chunk with LF":            ok + coding + "\r\n3\nabc\r\n0\r\n\r\n",
		"chunk data with LF":       ok + coding + "\r\n3\r\nabc\n0\r\n\r\n",
		"chunk size not hex":       ok + coding + "\r\nzz\r\nabc\r\n0\r\n\r\n",
		"chunk ext with bare LF":   ok + coding + "\r\n3;a\nb\r\nabc\r\n0\r\n\r\n",
		"chunk size overflow":      ok + coding + "\r\n8000000000000000\r\n",
		"trailer with bare LF":     ok + coding + "\r\n0\r\nX: 1\n\r\n",
		"trailer folded at once":   ok + coding + "\r\n0\r\n X: 1\r\n\r\n",
		"trailers without an end":  ok + coding + "\r\n0\r\n" + strings.Repeat("X: 1\r\n", 12<<10),
		"chunk extension too long": ok + coding + "\r\n3;" + strings.Repeat("a", 4<<10) + "\r\nabc\r\n0\r\n\r\n",
	}
}

func TestResponseRefused(t *testing.T) {
	t.Parallel()
	for name, p := range badResponses() {
		for _, step := range []int{1, 3, len(p)} {
			if m, err := readResponse([]byte(p), step, asked("GET")); code(err) != relay.CodeLocalMalformed {
				t.Errorf("%s in steps of %d: got %v, %v", name, step, m.head, err)
			}
		}
	}
}

func TestResponseLimit(t *testing.T) {
	t.Parallel()
	p := []byte(ok + "X: 1\r\n\r\nbody")
	n := len(p) - len("body")
	for _, c := range []struct {
		have, limit int
		want        string
	}{
		{len(p), n, "ok"},
		{len(p), n - 1, relay.CodeLocalMalformed},
		{n - 1, n, "more"},
		{n - 1, n - 1, relay.CodeLocalMalformed},
		{10, 10, relay.CodeLocalMalformed},
	} {
		if _, _, err := wire.Response(p[:c.have], wire.Limits{Head: c.limit}, nil); code(err) != c.want {
			t.Errorf("%d bytes, limit %d: got %v, want %s", c.have, c.limit, err, c.want)
		}
	}
}
