package wire_test

import (
	"strings"
	"testing"

	"relay"
	"relay/wire"
)

// bad is a request that must be refused, and the code of the refusal ("" = request-malformed).
type bad struct{ name, wire, code string }

func with(lines string) string {
	return "POST /hook HTTP/1.1\r\nHost: a.localhost\r\n" + lines + "\r\n5\r\nhello\r\n0\r\n\r\n"
}

func hosted(line string) string { return line + "\r\nHost: a.localhost\r\n\r\n" }

const (
	length = "Content-Length: 5\r\n"
	coding = "Transfer-Encoding: chunked\r\n"
)

func badRequests() []bad {
	list := append(badFraming(), badLines()...)
	list = append(list, badHosts()...)
	list = append(list, badStarts()...)
	return append(list, badChunks()...)
}

func badFraming() []bad {
	other := relay.CodeTransferCodingUnsupported
	return []bad{
		{"length and coding", with(length + coding), ""},
		{"coding and length", with(coding + length), ""},
		{"two equal lengths", with(length + length), ""},
		{"two lengths", with(length + "content-length: 6\r\n"), ""},
		{"length list", with("Content-Length: 5, 5\r\n"), ""},
		{"length plus", with("Content-Length: +5\r\n"), ""},
		{"length minus", with("Content-Length: -5\r\n"), ""},
		{"length hex", with("Content-Length: 0x5\r\n"), ""},
		{"length empty", with("Content-Length:\r\n"), ""},
		{"length inner space", with("Content-Length: 5 0\r\n"), ""},
		{"length of 19 digits", with("Content-Length: 0000000000000000005\r\n"), ""},
		{"length overflow", with("Content-Length: 99999999999999999999\r\n"), ""},
		{"length point", with("Content-Length: 5.0\r\n"), ""},
		{"length folded", with("Content-Length:\r\n 5\r\n"), ""},
		{"coding in 1.0", "POST / HTTP/1.0\r\nHost: a\r\n" + coding + "\r\n0\r\n\r\n", ""},
		{"coding twice", with(coding + coding), ""},
		{"coding chunked, chunked", with("Transfer-Encoding: chunked, chunked\r\n"), ""},
		{"coding folded", with("Transfer-Encoding:\r\n chunked\r\n"), ""},
		{"coding space before colon", with("Transfer-Encoding : chunked\r\n"), ""},
		{"coding quoted", with("Transfer-Encoding: \"chunked\"\r\n"), ""},
		{"coding empty", with("Transfer-Encoding:\r\n"), ""},
		{"coding vertical tab", with("Transfer-Encoding: \x0bchunked\r\n"), ""},
		{"coding empty item", with("Transfer-Encoding: chunked,\r\n"), ""},
		{"coding identity", with("Transfer-Encoding: identity\r\n"), other},
		{"coding gzip, chunked", with("Transfer-Encoding: gzip, chunked\r\n"), other},
		{"coding chunked, identity", with("Transfer-Encoding: chunked, identity\r\n"), other},
		{"coding xchunked", with("Transfer-Encoding: xchunked\r\n"), other},
		{"coding with parameter", with("Transfer-Encoding: chunked;q=1\r\n"), other},
	}
}

func badLines() []bad {
	return []bad{
		{"folded line", with("X-A: 1\r\n 2\r\n" + length), ""},
		{"folded first line", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", ""},
		{"bare LF lines", "GET / HTTP/1.1\nHost: a\n\n", ""},
		{"one bare LF", with("X-A: 1\nX-B: 2\r\n"), ""},
		{"bare LF at the end", "GET / HTTP/1.1\r\nHost: a\r\n\n", ""},
		{"bare LF hides a line", with("X-A: 1\nContent-Length: 5\r\n" + coding), ""},
		{"bare CR in a value", with("X-A: 1\r2\r\n"), ""},
		{"CR CR LF", with("X-A: 1\r\r\n"), ""},
		{"bare CR at the end", "GET / HTTP/1.1\r\nHost: a\r\n\rX", ""},
		{"NUL in a value", with("X-A: 1\x002\r\n"), ""},
		{"DEL in a value", with("X-A: 1\x7f\r\n"), ""},
		{"escape in a value", with("X-A: \x1b[2J\r\n"), ""},
		{"NUL in a name", with("X-\x00A: 1\r\n"), ""},
		{"obs-text in a name", with("X-\xe9: 1\r\n"), ""},
		{"space before colon", with("X-A : 1\r\n"), ""},
		{"tab before colon", with("X-A\t: 1\r\n"), ""},
		{"space in a name", with("X A: 1\r\n"), ""},
		{"no colon", with("X-A\r\n"), ""},
		{"no name", with(": 1\r\n"), ""},
		{"two leading empty lines", "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", ""},
		{"leading LF", "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", ""},
		{"leading CR", "\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", ""},
		{"leading space", " GET / HTTP/1.1\r\nHost: a\r\n\r\n", ""},
	}
}

func badHosts() []bad {
	host := func(v string) string { return "GET / HTTP/1.1\r\nHost: " + v + "\r\n\r\n" }
	return []bad{
		{"two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", ""},
		{"two equal hosts", "GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", ""},
		{"two hosts in 1.0", "GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", ""},
		{"no host", "GET / HTTP/1.1\r\nX: a\r\n\r\n", ""},
		{"no lines", "GET / HTTP/1.1\r\n\r\n", ""},
		{"host empty", host(""), ""},
		{"host with user", host("u@a"), ""},
		{"host with slash", host("a/b"), ""},
		{"host with backslash", host("a\\b"), ""},
		{"host with space", host("a b"), ""},
		{"host list", host("a, b"), ""},
		{"host with query", host("a?b"), ""},
		{"host with hash", host("a#b"), ""},
		{"host with percent", host("%61"), ""},
		{"host obs-text", host("caf\xe9"), ""},
		{"host port letters", host("a:http"), ""},
		{"host port sign", host("a:+80"), ""},
		{"host port too large", host("a:65536"), ""},
		{"host two ports", host("a:80:80"), ""},
		{"host port only", host(":80"), ""},
		{"host open bracket", host("[::1"), ""},
		{"host bare ipv6", host("::1"), ""},
		{"host behind bracket", host("[::1]a"), ""},
		{"host differs from target", "GET http://b.localhost/ HTTP/1.1\r\nHost: a.localhost\r\n\r\n", ""},
		{"host port differs from target", "GET http://a:80/ HTTP/1.1\r\nHost: a\r\n\r\n", ""},
		{"target with user", "GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", ""},
		{"target without authority", "GET http:///x HTTP/1.0\r\n\r\n", ""},
	}
}

func badStarts() []bad {
	version := relay.CodeHTTPVersionUnsupported
	return []bad{
		{"h2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", version},
		{"http/2.0", hosted("GET / HTTP/2.0"), version},
		{"http/2", hosted("GET / HTTP/2"), version},
		{"http/1.2", hosted("GET / HTTP/1.2"), version},
		{"http/0.9", hosted("GET / HTTP/0.9"), version},
		{"http/1.10", hosted("GET / HTTP/1.10"), ""},
		{"http/01.1", hosted("GET / HTTP/01.1"), ""},
		{"http/1,1", hosted("GET / HTTP/1,1"), ""},
		{"small http", hosted("GET / http/1.1"), ""},
		{"no version", "GET /\r\n\r\n", ""},
		{"empty version", hosted("GET / "), ""},
		{"space behind version", hosted("GET / HTTP/1.1 "), ""},
		{"bare LF behind version", "GET / HTTP/1.1\nHost: a\r\n\r\n", ""},
		{"connect", hosted("CONNECT a.localhost:443 HTTP/1.1"), relay.CodeMethodNotSupported},
		{"connect path", hosted("CONNECT /x HTTP/1.1"), relay.CodeMethodNotSupported},
		{"relative target", hosted("GET x HTTP/1.1"), ""},
		{"authority target", hosted("GET a.localhost:80 HTTP/1.1"), ""},
		{"get *", hosted("GET * HTTP/1.1"), ""},
		{"ftp target", hosted("GET ftp://a.localhost/ HTTP/1.1"), ""},
		{"space in target", hosted("GET /a b HTTP/1.1"), ""},
		{"two spaces", hosted("GET  / HTTP/1.1"), ""},
		{"two spaces before version", hosted("GET /  HTTP/1.1"), ""},
		{"tab", hosted("GET\t/ HTTP/1.1"), ""},
		{"NUL in target", hosted("GET /\x00 HTTP/1.1"), ""},
		{"DEL in target", hosted("GET /\x7f HTTP/1.1"), ""},
		{"CR in target", hosted("GET /\rX HTTP/1.1"), ""},
		{"method with colon", hosted("G:T / HTTP/1.1"), ""},
		{"method obs-text", hosted("G\xe9T / HTTP/1.1"), ""},
		{"tls", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", ""},
		{"ssh", "SSH-2.0-OpenSSH_9.2p1\r\n", ""},
	}
}

func badChunks() []bad {
	return []bad{
		{"space behind size", chunked("5 \r\nhello\r\n0\r\n\r\n"), ""},
		{"space before size", chunked(" 5\r\nhello\r\n0\r\n\r\n"), ""},
		{"tab behind last size", chunked("5\r\nhello\r\n0\t\r\n\r\n"), ""},
		{"size with LF", chunked("5\nhello\r\n0\r\n\r\n"), ""},
		{"size with CR only", chunked("5\rhello\r\n0\r\n\r\n"), ""},
		{"size 0x", chunked("0x5\r\nhello\r\n0\r\n\r\n"), ""},
		{"size minus", chunked("-5\r\nhello\r\n0\r\n\r\n"), ""},
		{"size plus", chunked("+5\r\nhello\r\n0\r\n\r\n"), ""},
		{"size empty", chunked("\r\nhello\r\n0\r\n\r\n"), ""},
		{"size missing", chunked(";a\r\nhello\r\n0\r\n\r\n"), ""},
		{"size overflow", chunked("10000000000000005\r\nhello\r\n0\r\n\r\n"), ""},
		{"size negative in 64 bits", chunked("ffffffffffffffff\r\nhello\r\n0\r\n\r\n"), ""},
		{"size wraps to 0", chunked("10000000000000000\r\n\r\n"), ""},
		{"size wraps to 5", chunked("f0000000000000005\r\nhello\r\n0\r\n\r\n"), ""},
		{"size beyond 60 bits", chunked("1000000000000001\r\n"), ""},
		{"size of 17 digits", chunked("00000000000000005\r\nhello\r\n0\r\n\r\n"), ""},
		{"underscore in size", chunked("1_0\r\nhello\r\n0\r\n\r\n"), ""},
		{"data too long", chunked("4\r\nhello\r\n0\r\n\r\n"), ""},
		{"data too short", chunked("6\r\nhello\r\n0\r\n\r\n"), ""},
		{"data with LF", chunked("5\r\nhello\n0\r\n\r\n"), ""},
		{"data with CR only", chunked("5\r\nhello\r0\r\n\r\n"), ""},
		{"extension with LF", chunked("5;a\nhello\r\n0\r\n\r\n"), ""},
		{"extension with bare CR", chunked("5;a\rb\r\nhello\r\n0\r\n\r\n"), ""},
		{"extension with NUL", chunked("5;a\x00\r\nhello\r\n0\r\n\r\n"), ""},
		{"extension too long", chunked("5;" + strings.Repeat("a", 4096) + "\r\nhello\r\n0\r\n\r\n"), ""},
		{"trailer folded", chunked("0\r\nX: 1\r\n 2\r\n\r\n"), ""},
		{"trailer with LF", chunked("0\r\nX: 1\n\r\n"), ""},
		{"trailer end with LF", chunked("0\r\nX: 1\r\n\n"), ""},
		{"trailer without colon", chunked("0\r\nX\r\n\r\n"), ""},
		{"trailer without name", chunked("0\r\n: 1\r\n\r\n"), ""},
		{"trailer space before colon", chunked("0\r\nX : 1\r\n\r\n"), ""},
		{"trailer with NUL", chunked("0\r\nX: \x00\r\n\r\n"), ""},
		{"trailer length", chunked("0\r\nContent-Length: 1\r\n\r\n"), ""},
		{"trailer coding", chunked("0\r\ntransfer-encoding: chunked\r\n\r\n"), ""},
		{"trailer host", chunked("0\r\nHOST: b\r\n\r\n"), ""},
		{"trailers too large", chunked("0\r\nX: " + strings.Repeat("a", 64<<10) + "\r\n\r\n"), ""},
	}
}

func TestRequestRefused(t *testing.T) {
	t.Parallel()
	for _, c := range badRequests() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			want := c.code
			if want == "" {
				want = relay.CodeRequestMalformed
			}
			for _, step := range []int{1, 2, 7, len(c.wire)} {
				got, err := readRequest([]byte(c.wire), step, wire.Limits{})
				if code(err) != want {
					t.Errorf("in steps of %d: got error %v (message %q), want %s", step, err, got.body, want)
				}
			}
		})
	}
}

func TestRequestLimits(t *testing.T) {
	t.Parallel()
	limits := wire.Limits{Head: 200, Target: 50}
	target := "/" + strings.Repeat("x", 49)
	head := get(target)
	pad := 200 - len(head) - len("X: \r\n")
	exact := strings.Replace(head, "\r\n\r\n", "\r\nX: "+strings.Repeat("v", pad)+"\r\n\r\n", 1)
	for _, c := range []bad{
		{"target at the limit", head, "ok"},
		{"target over the limit", get(target + "x"), relay.CodeTargetTooLong},
		{"target without end", "GET " + target + "x", relay.CodeTargetTooLong},
		{"both over their limits", "GET /" + strings.Repeat("x", 500), relay.CodeTargetTooLong},
		{"head at the limit", exact, "ok"},
		{"empty line before", "\r\n" + exact, "ok"},
		{"head over the limit", strings.Replace(exact, "X:", "X: ", 1), relay.CodeHeadTooLarge},
		{"head without end", exact[:198] + "yy", relay.CodeHeadTooLarge},
		{"method without end", strings.Repeat("M", 200), relay.CodeHeadTooLarge},
		{"head not yet at the limit", exact[:199], "more"},
		{"method not yet at the limit", strings.Repeat("M", 199), "more"},
	} {
		for _, step := range []int{1, 3, len(c.wire)} {
			if _, err := readRequest([]byte(c.wire), step, limits); code(err) != c.code {
				t.Errorf("%s in steps of %d: got %v, want %s", c.name, step, err, c.code)
			}
		}
	}
}

// All bytes after the last chunk count as trailers, including the empty line at the end.
func TestTrailersAtTheirLimit(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]string{64 << 10: "ok", 64<<10 + 1: relay.CodeRequestMalformed} {
		trailers := "X: " + strings.Repeat("a", size-len("X: \r\n\r\n")) + "\r\n\r\n"
		for _, step := range []int{1, 7, 1 << 20} {
			if _, err := readRequest([]byte(chunked("0\r\n"+trailers)), step, wire.Limits{}); code(err) != want {
				t.Errorf("%d bytes in steps of %d: got %v, want %s", size, step, err, want)
			}
		}
	}
}

func TestRefusedEarly(t *testing.T) {
	t.Parallel()
	long := "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X-Many: 0123456789\r\n", 1000)
	for name, p := range map[string]string{
		"first byte":             "\x16",
		"method byte":            "GE(",
		"bare LF of first line":  "GET / HTTP/1.1\n",
		"version":                "GET / HTTQ",
		"space before colon":     "GET / HTTP/1.1\r\nHost ",
		"fold":                   "GET / HTTP/1.1\r\nHost: a\r\n ",
		"bare LF end, long head": long + "X: 1\n\n",
		"bare LF, long head":     long + "X: 1\nY",
		"no colon, long head":    long + "X\r",
		"early, long head":       strings.Replace(long, "Many:", "Many :", 1) + "\r\n",
	} {
		if _, _, err := wire.Request([]byte(p), wire.Limits{}); code(err) != relay.CodeRequestMalformed {
			t.Errorf("%s: got %v, want it refused", name, err)
		}
	}
	if _, _, err := wire.Request([]byte(long), wire.Limits{}); code(err) != "more" {
		t.Errorf("long head without fault: got %v", err)
	}
	if h, n, err := wire.Request([]byte(long+"\r\nbody"), wire.Limits{}); err != nil || n != len(long)+2 || string(h.Host) != "a" {
		t.Errorf("long head: got n %d, %v", n, err)
	}
}

func TestRefusalHoldsAfterHeadOfBody(t *testing.T) {
	t.Parallel()
	p := []byte(chunked("5\r\nhello\r\nX"))
	h, n, err := wire.Request(p, wire.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	b := wire.NewBody(h)
	used, end, err := b.Feed(p[n:])
	if used != len("5\r\nhello\r\n") || end || code(err) != relay.CodeRequestMalformed {
		t.Fatalf("got %d, %v, %v", used, end, err)
	}
	if _, _, again := b.Feed([]byte("0\r\n\r\n")); code(again) != relay.CodeRequestMalformed {
		t.Errorf("a refused body went on: %v", again)
	}
	if code(b.EOF()) != relay.CodeRequestMalformed {
		t.Error("EOF made a refused body good")
	}
}

// The error for a target with a space reports that space, whatever bytes follow.
func TestTargetWithASpaceIsNamed(t *testing.T) {
	for _, line := range []string{"GET /a b HTTP/1.1", "GET /a b c HTTP/1.0", "GET /a  HTTP/1.1", "POST /?q=a b HTTP/1.1"} {
		_, _, err := wire.Request([]byte(hosted(line)), wire.Limits{})
		if err == nil || !strings.Contains(err.Error(), "target has a space") {
			t.Errorf("%q: %v", line, err)
		}
	}
}
