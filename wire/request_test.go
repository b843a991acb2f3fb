package wire_test

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"relay"
	"relay/wire"
)

// TestRequestExact: every good request is read completely and rebuilt byte for byte, however it
// arrives and even if the next request follows it directly.
func TestRequestExact(t *testing.T) {
	t.Parallel()
	for _, c := range goodRequests() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sent := []byte(strings.TrimPrefix(c.wire, "\r\n"))
			for _, step := range []int{1, 2, 3, 5, 64, 4096, len(c.wire)} {
				if step < 64 && len(c.wire) > 4<<10 {
					continue // the head would be read thousands of times
				}
				m, err := readRequest([]byte(c.wire+"GET /next"), step, wire.Limits{})
				if err != nil || !m.end || m.n != len(c.wire) {
					t.Fatalf("in steps of %d: took %d of %d, end %v, %v", step, m.n, len(c.wire), m.end, err)
				}
				got, err := m.rebuilt(step)
				if err != nil || !bytes.Equal(got, sent) {
					t.Fatalf("in steps of %d: rebuilt %q, %v\nwant %q", step, got, err, sent)
				}
			}
		})
	}
}

// TestRequestEverySplit reads each small request in steps of every length. Each incomplete head gives
// ErrMore.
func TestRequestEverySplit(t *testing.T) {
	t.Parallel()
	for _, c := range goodRequests() {
		if len(c.wire) > 2000 {
			continue
		}
		whole, err := readRequest([]byte(c.wire), len(c.wire), wire.Limits{})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for cut := 1; cut < len(c.wire); cut++ {
			m, err := readRequest([]byte(c.wire), cut, wire.Limits{})
			if err != nil || !m.end || !bytes.Equal(m.body, whole.body) || !bytes.Equal(m.lines, whole.lines) {
				t.Fatalf("%s cut at %d: body %q, lines %q, %v", c.name, cut, m.body, m.lines, err)
			}
			h, _, err := wire.Request([]byte(c.wire[:cut]), wire.Limits{})
			if headEnds := whole.n - len(c.wire) + headLen(c.wire); cut < headEnds && (h != nil || code(err) != "more") {
				t.Fatalf("%s: a head of %d bytes was not waited for: %v", c.name, cut, err)
			}
		}
	}
}

func headLen(p string) int {
	lead := len(p) - len(strings.TrimPrefix(p, "\r\n"))
	return lead + strings.Index(p[lead:], "\r\n\r\n") + 4
}

func TestRequestHead(t *testing.T) {
	t.Parallel()
	shapes := map[string]string{}
	for _, c := range goodRequests() {
		shapes[c.name] = c.wire
	}
	for _, c := range []struct {
		name string
		want wire.Head
	}{
		{"stripe", wire.Head{Method: []byte("POST"), Target: []byte("/hook"), Host: []byte("a.localhost"), Minor: 1, Framing: relay.FramingLength, Length: 19}},
		{"no length", wire.Head{Method: []byte("POST"), Target: []byte("/"), Host: []byte("a.localhost"), Minor: 1}},
		{"leading zero length", wire.Head{Method: []byte("POST"), Target: []byte("/"), Host: []byte("a"), Minor: 1, Framing: relay.FramingLength, Length: 2}},
		{"chunked capitals", wire.Head{Method: []byte("POST"), Target: []byte("/c"), Host: []byte("a.localhost"), Minor: 1, Framing: relay.FramingChunked}},
		{"expect", wire.Head{Method: []byte("POST"), Target: []byte("/hook"), Host: []byte("a.localhost"), Minor: 1, Framing: relay.FramingLength, Length: 2, Expect: true}},
		{"http/1.0 without host", wire.Head{Method: []byte("GET"), Target: []byte("/x"), Close: true}},
		{"http/1.0 keep-alive", wire.Head{Method: []byte("GET"), Target: []byte("/x"), Host: []byte("a")}},
		{"upgrade", wire.Head{Method: []byte("GET"), Target: []byte("/ws"), Host: []byte("a"), Minor: 1, Upgrade: true}},
		{"close", wire.Head{Method: []byte("POST"), Target: []byte("/hook"), Host: []byte("a.localhost"), Minor: 1, Framing: relay.FramingLength, Length: 1, Close: true}},
		{"ntlm", wire.Head{Method: []byte("GET"), Target: []byte("/"), Host: []byte("a"), Minor: 1, Auth: true}},
		{"proxy-connection", wire.Head{Method: []byte("GET"), Target: []byte("/"), Host: []byte("a"), Minor: 1, ProxyConnection: true}},
		{"host with capitals", wire.Head{Method: []byte("GET"), Target: []byte("/"), Host: []byte("A.LocalHost"), Minor: 1}},
		{"absolute", wire.Head{Method: []byte("GET"), Target: []byte("http://A.localhost/x?y"), Host: []byte("a.localhost"), Minor: 1}},
		{"absolute without host line", wire.Head{Method: []byte("GET"), Target: []byte("http://a.localhost/"), Host: []byte("a.localhost"), Close: true}},
		{"hop-by-hop", wire.Head{Method: []byte("POST"), Target: []byte("/hook"), Host: []byte("a.localhost"), Minor: 1, Framing: relay.FramingLength, Length: 1, KeepAliveTimeout: 5, ProxyConnection: true}},
		{"leading empty line", wire.Head{Method: []byte("GET"), Target: []byte("/"), Host: []byte("a"), Minor: 1}},
	} {
		got, n, err := wire.Request([]byte(shapes[c.name]), wire.Limits{Head: 128 << 10, Target: 16 << 10})
		if err != nil || n != headLen(shapes[c.name]) {
			t.Errorf("%s: n %d, %v", c.name, n, err)
			continue
		}
		if c.want.KeepAliveTimeout == 0 {
			c.want.KeepAliveTimeout = -1
		}
		c.want.Raw = []byte(strings.TrimPrefix(shapes[c.name][:n], "\r\n"))
		diffHead(t, c.name, *got, c.want)
	}
}

func TestRequestMore(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"", "\r", "\r\n", "\r\nG", "GET", "GET ", "GET / ", "GET / HTTP/1.1", "GET / HTTP/1.1\r"} {
		if h, n, err := wire.Request([]byte(p), wire.Limits{}); h != nil || n != 0 || code(err) != "more" {
			t.Errorf("%q: got %v, %d, %v", p, h, n, err)
		}
	}
}

func TestRequestAllocs(t *testing.T) {
	p := []byte(goodRequests()[0].wire)
	if got := testing.AllocsPerRun(100, func() { _, _, _ = wire.Request(p, wire.Limits{}) }); got > 1 {
		t.Errorf("a request head costs %v allocations, want 1", got)
	}
	r := []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n\r\n")
	if got := testing.AllocsPerRun(100, func() { _, _, _ = wire.Response(r, wire.Limits{}, nil) }); got > 1 {
		t.Errorf("a response head costs %v allocations, want 1", got)
	}
}

// Expect and Upgrade of an HTTP/1.0 request are ignored, because they belong to HTTP/1.1 (RFC
// 9110, 7.8 and 10.1.1).
func TestLinesThatHTTP10DoesNotHave(t *testing.T) {
	t.Parallel()
	for minor := range 2 {
		raw := "POST / HTTP/1." + strconv.Itoa(minor) + "\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n"
		h, _, err := wire.Request([]byte(raw), wire.Limits{})
		if err != nil || h.Expect != (minor == 1) || h.Upgrade != (minor == 1) {
			t.Errorf("HTTP/1.%d: %+v, %v", minor, h, err)
		}
	}
}
