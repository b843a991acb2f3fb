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
	"relay/record/body"
)

// requestOf returns an event whose request has the given header lines and body.
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

// TestShownBodies: a terminal shows the whole body in readable form and names anything left out.
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
		{"Content-Type: text/plain\r\nContent-Encoding: gzip", gzipOf(strings.Repeat("x", 2<<20)), strings.Repeat("x", 1<<20) + "\n(unpacked from gzip)\n(only the first 1048576 unpacked bytes)\n"},
	} {
		text := record.EventText(record.Of(requestOf(c.lines, c.body), relay.Site{}, time.Now()))
		if _, shown, _ := strings.Cut(text, "Content-Type: "); !strings.HasSuffix(shown, "\n\n"+c.want) {
			t.Errorf("%s: %.300q, want %.300q", c.lines, shown, c.want)
		}
	}
}

const formKind = "application/x-www-form-urlencoded"

// TestSearchedBodies: a search finds text in its decoded form.
func TestSearchedBodies(t *testing.T) {
	t.Parallel()
	pad := strings.Repeat("x", 64<<10-1)
	part := "--b\r\nContent-Disposition: form-data; name=n\r\nContent-Transfer-Encoding: quoted-printable\r\nContent-Type: text/plain; charset=iso-8859-1\r\n\r\nM=FCller\r\n--b--\r\n"
	for _, c := range []struct {
		kind, coding, body, words string
		want                      bool
	}{
		{formKind, "", "text=hello+brave+world&email=ann%40example.org", `"hello brave" ann@example.org`, true},
		{formKind, "", "text=hello+brave+world", `"hello+brave"`, true},
		{"", "", "text=hello%20brave", `"hello brave"`, true},
		{"text/plain", "", "100%25 of it", "100%25", true},
		{formKind, "", "a=" + pad + "%C3%A9+end", `"é end"`, true},
		{formKind, "", "a=" + pad + "x%C3%A9+end", `"é end"`, true},
		{formKind, "", "payload=%7B%22name%22%3A%22caf%5Cu00e9%22%7D", "café", true},
		{formKind + "; charset=iso-8859-1", "", "n=M%FCller", "müller", true},
		{"text/xml; charset=ISO-8859-1", "", "<n>M\xfcller</n>", "Müller", true},
		{"application/json; charset=utf-16", "", "\xfe\xff\x00{\x00\"\x00a\x00\"\x00:\x00\"\x00\xfc\x00\"\x00}", `"\"a\":\"ü\""`, true},
		{"application/json", "br", brotliOf(`{"name":"packed text"}`), `"packed text"`, true},
		{"application/json", "gzip, br", brotliOf(gzipOf(`{"name":"packed text"}`)), `"packed text"`, true},
		{"multipart/mixed; boundary=b", "", part, "müller", true},
		{"multipart/mixed; boundary=b", "", part, "m=fcller", true},
		{"multipart/mixed; boundary=b", "", part, "miller", false},
		{formKind, "", "a=1", "nothing", false},
	} {
		f, err := record.ParseFilterWords(c.words)
		if err != nil {
			t.Fatal(err)
		}
		s := record.NewTextSearch(f.Texts)
		if got := s.SearchBody(body.NewLabel(c.kind, c.coding), []byte(c.body)); got != c.want {
			t.Errorf("%s %.40q, %s: %v", c.kind, c.body, c.words, got)
		}
	}
	for words, want := range map[string]bool{`"hello wide"`: true, "/caf\u00e9": true, `"a b"`: true, "1+1": true, "absent": false} {
		f, err := record.ParseFilterWords(words)
		if err != nil {
			t.Fatal(err)
		}
		if got := record.NewTextSearch(f.Texts).LookDecoded([]byte("/caf%C3%A9?text=hello%20wide&q=a+b&sum=1%2B1")); got != want {
			t.Errorf("%s: %v", words, got)
		}
	}
}

// TestMatchedBodies: a filter by a field works for every body format that has fields.
func TestMatchedBodies(t *testing.T) {
	t.Parallel()
	push := "payload=" + strings.NewReplacer("{", "%7B", "}", "%7D", `"`, "%22", ":", "%3A").Replace(`{"repository":{"full_name":"a/b"},"ref":"main"}`)
	part := "--b\r\nContent-Disposition: form-data; name=kind\r\n\r\nhook\r\n--b\r\nContent-Disposition: form-data; name=data\r\nContent-Type: application/json\r\n\r\n{\"id\":7}\r\n--b--\r\n"
	for _, c := range []struct {
		kind, coding, body, words string
		want                      bool
	}{
		{"application/json", "", "\xef\xbb\xbf{\"id\":\"evt_1\",\"type\":\"invoice.paid\"}", "id=evt_1 json:type=invoice.paid", true},
		{formKind, "", push, "repository.full_name=a/b ref=main", true},
		{formKind, "", push, "payload.repository.full_name=a/b", true},
		{formKind, "", push, "repository.full_name=a/c", false},
		{formKind, "", "text=hello+brave&card[number]=42", `"json:text=hello brave" card.number=42`, true},
		{formKind, "", "text=hello", "text=hell", false},
		{"multipart/form-data; boundary=b", "", part, "kind=hook id=7 data.id=7", true},
		{"multipart/form-data; boundary=b", "", part, "id=8", false},
		{"application/x-ndjson", "", "{\"a\":1}\nbroken\n{\"a\":2}\n", "a=2", true},
		{"application/x-ndjson", "", "{\"a\":1}\n{\"a\":2}\n", "[1].a=2", true},
		{"application/x-ndjson", "", "{\"a\":1}\n{\"a\":2}\n", "[0].a=2", false},
		{"application/json", "br", brotliOf(`{"a":{"b":"c"}}`), "a.b=c", true},
		{"application/json; charset=iso-8859-1", "", "{\"n\":\"M\xfcller\"}", "n=Müller", true},
		{"application/json", "", `{"a":1,"b":`, "a=1", true},
	} {
		f, err := record.ParseFilterWords(c.words)
		if err != nil {
			t.Fatal(err)
		}
		if got := record.MatchBody(f.JSON, body.NewLabel(c.kind, c.coding), []byte(c.body), false, 1<<20); got != c.want {
			t.Errorf("%s %.60q, %s: %v", c.kind, c.body, c.words, got)
		}
	}
}
