package record_test

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"
	"time"

	"github.com/andybalholm/brotli"

	"relay"
	"relay/record"
)

// requestOf is an event whose request has these header lines and this body.
func requestOf(lines, body string) *relay.Event {
	return &relay.Event{
		Method: "POST", Target: []byte("/"), State: relay.StateDelivered,
		Request: relay.Message{
			Head: []byte("POST / HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n\r\n"),
			Body: relay.Body{State: relay.BodyComplete, Size: int64(len(body)), Stored: int64(len(body)), Data: []byte(body)},
		},
	}
}

func gzipOf(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	return b.String()
}

func brotliOf(text string) string {
	var b bytes.Buffer
	z := brotli.NewWriter(&b)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	return b.String()
}

// TestShownBodies: a terminal shows a body as a person reads it, whole, and says what it is not.
func TestShownBodies(t *testing.T) {
	t.Parallel()
	long := "[" + strings.Repeat("1,\n", 399) + "1]"
	for _, c := range []struct{ lines, body, want string }{
		{"Content-Type: application/json\r\nContent-Encoding: gzip", gzipOf(`{"packed":true}`), "{\"packed\":true}\n(unpacked from gzip)\n"},
		{"Content-Type: application/json\r\nContent-Encoding: br", brotliOf(`{"packed":true}`), "{\"packed\":true}\n(unpacked from br)\n"},
		{"Content-Type: application/x-www-form-urlencoded", "text=hello+brave+world&payload=%7B%22a%22%3A1%7D", "text: hello brave world\npayload: {\n  \"a\": 1\n}\n"},
		{"Content-Type: text/xml; charset=ISO-8859-1", "<n>M\xfcller</n>", "<n>Müller</n>\n(decoded from iso-8859-1)\n"},
		{"Content-Type: text/plain", "[2026-11-28 09:00:00] INFO x", "[2026-11-28 09:00:00] INFO x\n"},
		{"Content-Type: application/json", "{\"a\":\"caf\xe9\"}", "{\"a\":\"caf\\xe9\"}\n(Not JSON: line 1, column 10 (byte 9): a string that is not UTF-8)\n"},
		{"Content-Type: application/json", long, long + "\n"},
		{"Content-Type: text/plain\r\nContent-Encoding: gzip", gzipOf(strings.Repeat("x", 2<<20)), strings.Repeat("x", 1<<20) + "\n(unpacked from gzip)\n(only the first 1048576 bytes of what it unpacks to)\n"},
	} {
		text := record.EventText(record.Of(requestOf(c.lines, c.body), relay.Site{}, time.Now()))
		if _, shown, _ := strings.Cut(text, "Content-Type: "); !strings.HasSuffix(shown, "\n\n"+c.want) {
			t.Errorf("%s: %.300q, want %.300q", c.lines, shown, c.want)
		}
	}
}
