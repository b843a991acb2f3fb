package body

import (
	"bytes"
	"compress/gzip"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"

	"relay"
)

// shown returns the view of a body; the argument lines are the header lines of its message. text is the
// content of the view, with the fields of forms and the parts of multipart bodies.
func shown(lines, body, view string) (v View, text string) {
	v = Show(Source{
		ID: "b", Body: &relay.Body{Data: []byte(body[:min(len(body), Shown)]), Size: int64(len(body)), State: relay.BodyComplete},
		Head: []byte("POST / HTTP/1.1\r\n" + lines + "\r\n\r\n"), Page: "/", Param: "body", Query: url.Values{"body": {view}}, Download: "/d",
	})
	text = v.Text + v.Mark + v.Rest
	for _, p := range v.Form {
		text += p.Name + "=" + p.Value + "\n"
	}
	for _, p := range v.Parts {
		text += p.Name + "=" + p.Text + "|" + p.Fault + "\n"
	}
	return v, text
}

// TestViews checks the text, the fault and the note of each view for bodies of many types.
func TestViews(t *testing.T) {
	t.Parallel()
	var br, gz bytes.Buffer
	b := brotli.NewWriter(&br)
	_, _ = b.Write([]byte(`{"packed":true}`))
	_ = b.Close()
	g := gzip.NewWriter(&gz)
	_, _ = g.Write(br.Bytes())
	_ = g.Close()
	push := "payload=" + url.QueryEscape(`{"ref":"refs/heads/main","text":"`+strings.Repeat("x", 9900)+`"}`)
	const odd = "----=_Part_7_1002003.1760000000001"
	for _, c := range []struct{ lines, body, view, text, fault, note string }{
		{"Content-Type: application/x-www-form-urlencoded", "text=hello+brave+world&email=ann%40example.org", viewPretty, "text=hello brave world\nemail=ann@example.org\n", "", ""},
		{"Content-Type: application/json", "\xef\xbb\xbf{\"id\":\"evt_1\"}", viewPretty, "{\n  \"id\": \"evt_1\"\n}", "", "Stripped of its byte order mark for this view."},
		{"Content-Type: text/plain", "[2026-11-28 09:00:00] INFO x", viewRaw, "[2026-11-28 09:00:00] INFO x", "", ""},
		{"Content-Type: application/x-ndjson", "{\"a\":1}\n{\"a\":2}\n", viewPretty, "{\n  \"a\": 1\n}\n{\n  \"a\": 2\n}", "", ""},
		{"Content-Type: text/xml; charset=ISO-8859-1", "<n>M\xfcller</n>", viewPretty, "<n>Müller</n>", "", "Decoded from iso-8859-1 for this view."},
		{"Content-Type: text/xml; charset=ISO-8859-1", "<n>M\xfcller</n>", viewRaw, `<n>M\xfcller</n>`, "", ""},
		{"Content-Type: application/json\r\nContent-Encoding: br", br.String(), viewPretty, "{\n  \"packed\": true\n}", "", "Unpacked from br for this view."},
		{"Content-Type: application/json\r\nContent-Encoding: br, gzip", gz.String(), viewPretty, "{\n  \"packed\": true\n}", "", "Unpacked from gzip, br for this view."},
		{"Content-Type: application/json\r\nContent-Encoding: lzw", "{}", viewPretty, "{}", "it is coded as lzw, which cannot be read here", ""},
		{
			"Content-Type: multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--b\r\nContent-Disposition form-data\r\n\r\n2\r\n--b\r\nContent-Disposition: form-data; name=c\r\n\r\n3\r\n--b--\r\n",
			viewParts, "a=1|\n=2|a line of its header has no colon: \"Content-Disposition form-data\"\nc=3|\n", "", "",
		},
		{"Content-Type: multipart/form-data; boundary=" + odd, "--" + odd + "\r\nContent-Disposition: form-data; name=a\r\n\r\n{\"a\":1}\r\n--" + odd + "--\r\n", viewParts, "a={\n  \"a\": 1\n}|\n", "", ""},
		{"Content-Type: application/x-www-form-urlencoded", push, viewPretty, "payload={\n  \"ref\": \"refs/heads/main\",\n  \"text\": \"" + strings.Repeat("x", 9900) + "\"\n}\n", "", ""},
		{"Content-Type: application/json", "{\"a\":\"caf\xe9\"}", viewPretty, `{"a":"caf\xe9"}`, "Not JSON: line 1, column 10 (byte 9): a string that is not UTF-8", ""},
		{"Content-Type: text/plain", strings.Repeat("x", Shown+1), viewRaw, strings.Repeat("x", Shown), "", "Only the first 256.0 KiB are shown; the download has all of it."},
	} {
		v, text := shown(c.lines, c.body, c.view)
		if v.View != c.view || text != c.text || v.Fault != c.fault || v.Note != c.note {
			t.Errorf("%s %.40q as %s: %s\n%.200q\n%q, %q", c.lines, c.body, c.view, v.View, text, v.Fault, v.Note)
		}
	}
	if v, text := shown("Content-Type: application/json", "["+strings.Repeat("1,", 399)+"1]", viewPretty); strings.Count(text, "\n") != 401 || v.Note != "" {
		t.Errorf("400 elements: %d lines, %q", strings.Count(text, "\n"), v.Note)
	}
	fields := make([]string, ShownLines+5)
	for i := range fields {
		fields[i] = "k" + strconv.Itoa(i) + "=v"
	}
	if v, _ := shown("Content-Type: application/x-www-form-urlencoded", strings.Join(fields, "&"), viewPretty); len(v.Form) != ShownLines+1 || v.Form[ShownLines].Value != "5 more fields; the download has them" {
		t.Errorf("%d fields, %v", len(v.Form), v.Form[len(v.Form)-1])
	}
}
