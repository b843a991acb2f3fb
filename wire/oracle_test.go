package wire_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"relay"
	"relay/wire"

	"github.com/google/go-cmp/cmp"
)

// spacedExtension matches requests with white space before a chunk extension, which net/http refuses although
// RFC 9112 allows it. Such requests are not compared, and neither are requests with more than netHTTPOverhead
// bytes of chunk lines.
var spacedExtension = regexp.MustCompile(`(?m)^[0-9A-Fa-f]+[ \t]+;`)

const netHTTPOverhead = 16 << 10

func unjudged(lines []byte) bool {
	return len(lines) > netHTTPOverhead || spacedExtension.Match(lines)
}

// likeNetHTTP compares a request with the result of http.ReadRequest; rest holds the bytes after the request.
// It does not compare requests whose target package url refuses, because package wire does not decode targets. Nor
// does it compare requests with forbidden fields in Trailer.
func likeNetHTTP(t *testing.T, m *message, p, rest []byte) {
	t.Helper()
	if _, err := url.ParseRequestURI(string(m.head.Target)); err != nil || unjudged(m.lines) {
		return
	}
	br := bufio.NewReaderSize(bytes.NewReader(p), len(p)+16)
	r, err := http.ReadRequest(br)
	if err != nil {
		if strings.Contains(err.Error(), "bad trailer key") {
			return
		}
		t.Fatalf("net/http refuses it: %v\n%q", err, m.head.Raw)
	}
	if r.Method != string(m.head.Method) || r.RequestURI != string(m.head.Target) || r.ProtoMinor != m.head.Minor || r.Close != m.head.Close {
		t.Fatalf("net/http reads %s %q, minor %d, close %v\n%q", r.Method, r.RequestURI, r.ProtoMinor, r.Close, m.head.Raw)
	}
	if !strings.EqualFold(r.Host, string(m.head.Host)) {
		t.Fatalf("net/http reads host %q, not %q", r.Host, m.head.Host)
	}
	sameFraming(t, m, r.ContentLength, r.TransferEncoding)
	want := headerOf(wire.Fields(m.head.Raw))
	want.Del("Host")
	sameHeader(t, m, r.Header, want)
	sameBody(t, m, r.Body, br, rest)
	if m.end {
		sameTrailer(t, m, r.Trailer)
	}
}

// responseLikeNetHTTP compares a response that was accepted without tolerated errors (Head.Sloppy is false)
// with http.ReadResponse.
func responseLikeNetHTTP(t *testing.T, m *message, p, rest []byte, isHead bool) {
	t.Helper()
	if unjudged(m.lines) || bytes.ContainsFunc(m.lines, control) {
		return
	}
	br := bufio.NewReaderSize(bytes.NewReader(p), len(p)+16)
	req := &http.Request{Method: "GET"}
	if isHead {
		req.Method = "HEAD"
	}
	r, err := http.ReadResponse(br, req)
	if err != nil {
		if strings.Contains(err.Error(), "bad trailer key") || m.head.Framing == relay.FramingNone {
			return
		}
		t.Fatalf("net/http refuses it: %v\n%q", err, m.head.Raw)
	}
	if r.StatusCode != m.head.Status || r.ProtoMinor != m.head.Minor {
		t.Fatalf("net/http reads %d, minor %d", r.StatusCode, r.ProtoMinor)
	}
	if m.head.Framing != relay.FramingNone {
		if m.head.Framing != relay.FramingClose {
			sameFraming(t, m, r.ContentLength, r.TransferEncoding)
		}
		want := headerOf(wire.Fields(m.head.Raw))
		if r.Close { // net/http may remove the Connection line
			want.Del("Connection")
			r.Header.Del("Connection")
		}
		sameHeader(t, m, r.Header, want)
	}
	sameBody(t, m, r.Body, br, rest)
}

// control matches the control bytes in trailers of responses that the lenient parser accepts and
// net/http refuses.
func control(r rune) bool {
	return r < ' ' && r != '\r' && r != '\n' && r != '\t' || r == 0x7f
}

func sameFraming(t *testing.T, m *message, length int64, codings []string) {
	t.Helper()
	want := map[relay.Framing]int64{relay.FramingChunked: -1, relay.FramingLength: m.head.Length}[m.head.Framing]
	chunked := slices.Equal(codings, []string{"chunked"})
	if length != want || chunked != (m.head.Framing == relay.FramingChunked) {
		t.Fatalf("net/http reads length %d, codings %q; framing is %v, %d", length, codings, m.head.Framing, m.head.Length)
	}
}

// headerOf returns a list of header lines as net/http stores them.
func headerOf(fields []wire.Field) http.Header {
	h := http.Header{}
	for _, f := range fields {
		key := textproto.CanonicalMIMEHeaderKey(string(f.Name))
		h[key] = append(h[key], string(f.Value))
	}
	return h
}

// sameHeader compares header lists, except for the fields that net/http removes or adds.
func sameHeader(t *testing.T, m *message, got, want http.Header) {
	t.Helper()
	want.Del("Transfer-Encoding")
	if m.head.Framing == relay.FramingChunked {
		want.Del("Trailer")
	}
	if pragma := want["Pragma"]; len(pragma) > 0 && pragma[0] == "no-cache" && want["Cache-Control"] == nil {
		want["Cache-Control"] = []string{"no-cache"}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("header list differs (-wire +net/http):\n%s", diff)
	}
}

// sameBody compares the decoded body, its completeness, and the remaining bytes.
func sameBody(t *testing.T, m *message, body io.Reader, br *bufio.Reader, want []byte) {
	t.Helper()
	got, err := io.ReadAll(body)
	whole := m.end || m.head.Framing == relay.FramingClose
	if !whole {
		if err == nil {
			t.Fatalf("net/http takes an unfinished body for whole: %q", got)
		}
		return
	}
	if err != nil || !bytes.Equal(got, m.body) {
		t.Fatalf("net/http reads body %q, %v; want %q", got, err, m.body)
	}
	rest, err := io.ReadAll(br)
	if err != nil || !bytes.Equal(rest, want) {
		t.Fatalf("net/http goes on at %q, not at %q", rest, want)
	}
}

func sameTrailer(t *testing.T, m *message, got http.Header) {
	t.Helper()
	want := headerOf(wire.Trailers(m.lines))
	for key := range got { // net/http lists trailers that were declared and not sent with the value nil
		if _, sent := want[key]; !sent && got[key] == nil {
			delete(got, key)
		}
	}
	if len(got) == 0 && len(want) == 0 {
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("trailers differ (-wire +net/http):\n%s", diff)
	}
}
