package body_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"relay/record/body"
)

const most = 1 << 20

func read(kind, p string) *body.Reading {
	return body.Read(body.NewLabel(kind), []byte(p), false, most)
}

// TestForms: the form of a body is found by its label and its bytes.
func TestForms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, in string
		form     body.Form
		fault    string // beginning of the expected fault, "" = none
	}{
		{"application/json", ``, body.Empty, ""},
		{"application/json", `{"a":1}`, body.JSON, ""},
		{"", ` [1]`, body.JSON, ""},
		{"application/json", `"text"`, body.JSON, ""},
		{"application/json", "\xef\xbb\xbf{\"id\":\"evt_1\"}", body.JSON, ""},
		{"application/x-www-form-urlencoded", `{"a":1}`, body.JSON, ""},
		{"application/vnd.api+json; charset=utf-8", `{"a":1}`, body.JSON, ""},
		{"application/json", `{"a":1,}`, body.JSON, "Not JSON: line 1, column 8 (byte 7)"},
		{"application/json", `{"a":`, body.JSON, "Not JSON: line 1, column 6 (byte 5): the end within a value"},
		{"application/json", "{\"a\":\"caf\xe9\"}", body.JSON, "Not JSON: line 1, column 10 (byte 9): a string that is not UTF-8"},
		{"text/plain", `[2026-11-28 09:00:00] INFO x`, body.Text, ""},
		{"text/plain", "{\"a\":1}\n{\"a\":2}\n", body.JSONLines, ""},
		{"application/json", "{\"a\":1}\n{\"a\":2}\n", body.JSONLines, ""},
		{"application/x-ndjson", "{\"a\":1}\n{\"a\":2}\n", body.JSONLines, ""},
		{"application/x-ndjson", "{\"a\":1}\nnot\n{\"a\":2}\n", body.JSONLines, "1 line is not JSON, the first of them line 2"},
		{"application/json-seq", "\x1e{\"a\":1}\n\x1e{\"a\":2}\n", body.JSONLines, ""},
		{"text/plain", "{ not } json", body.Text, ""},
		{"text/plain", "1\n2\n", body.Text, ""},
		{"application/x-www-form-urlencoded", `a=b`, body.URLEncoded, ""},
		{"", `a=b&c=d`, body.URLEncoded, ""},
		{"text/plain", `a=b`, body.Text, ""},
		{"application/x-www-form-urlencoded", `a=100%&b=1`, body.URLEncoded, "1 names or values have a %"},
		{"text/xml", `<a>b</a>`, body.XML, ""},
		{"text/xml", `<a>b</c>`, body.XML, "Not XML: line 1"},
		{"", `<?xml version="1.0"?><a/>`, body.XML, ""},
		{"text/html", `<p>a`, body.Text, ""},
		{"text/plain", "M\xfcller", body.Text, "Line 1, column 2 (byte 1) is not UTF-8"},
		{"application/octet-stream", "M\xfcller", body.Binary, ""},
		{"image/png", "\x89PNG\r\n\x1a\n\x00", body.Binary, ""},
		{"text/plain", "\x00\x01\x02\x03", body.Binary, ""},
		{"text/plain; charset=klingon", "text", body.Text, "the charset klingon cannot be read here"},
	} {
		r := read(c.kind, c.in)
		if r.Form != c.form || c.fault == "" && len(r.Faults) > 0 || !strings.HasPrefix(r.FaultText(), c.fault) {
			t.Errorf("%s %.40q: %v, %q, want %v, %q", c.kind, c.in, r.Form, r.FaultText(), c.form, c.fault)
		}
	}
}

// TestBeginningsOfJSON: a complete body with an incomplete JSON text has a fault that says that it ends
// within a value. A body whose end is not stored is JSON without a fault.
func TestBeginningsOfJSON(t *testing.T) {
	t.Parallel()
	text := `{"a": [true, false, null, -1.5e+7, "\u00e9\n\ud83d\ude00é"], "b": {}}`
	for n := 1; n < len(text); n++ {
		p := []byte(text[:n])
		want := fmt.Sprintf("(byte %d): the end within a value", n)
		if r := read("application/json", text[:n]); !strings.HasSuffix(r.FaultText(), want) {
			t.Errorf("%q: %s, want %s", p, r.FaultText(), want)
		}
		if r := body.Read(body.NewLabel(""), p, true, most); r.Form != body.JSON || r.FaultText() != "" {
			t.Errorf("%q of which the rest is missing: %v, %s", p, r.Form, r.FaultText())
		}
	}
	for p, want := range map[string]string{"[fa ": "literal false", "[1 x": "after array element", "[-": "the end within a value", "[- ": "numeric literal", `["\u00 `: "escape"} {
		if r := read("application/json", p); !strings.Contains(r.FaultText(), want) {
			t.Errorf("%q: %s, want %s", p, r.FaultText(), want)
		}
	}
}

// TestCharsets: text is decoded by its byte order mark, its label, or the charset that the document
// declares.
func TestCharsets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, in, want string }{
		{"text/xml; charset=ISO-8859-1", "<n>M\xfcller</n>", "<n>Müller</n>"},
		{"text/xml", "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><n>M\xfcller</n>", "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><n>Müller</n>"},
		{"application/json; charset=utf-8", "\xef\xbb\xbf{}", "{}"},
		{"application/json", "\xff\xfe{\x00}\x00", "{}"},
		{"application/json", "{\x00\"\x00\xfc\x00\"\x00:\x001\x00}\x00", `{"ü":1}`},
		{"application/json; charset=utf-16", "\xfe\xff\x00{\x00}", "{}"},
		{"text/plain", "\xff\xfe\x00\x00a\x00\x00\x00", "a"},
		{"text/plain; charset=shift_jis", "\x93\xfa\x96\x7b", "日本"},
		{"text/plain; charset=windows-1251", "\xcf\xf0\xe8", "При"},
		{"text/plain; charset=\"utf-8\"", "é", "é"},
		{"text/html", "<meta charset=iso-8859-1>\xfc", "<meta charset=iso-8859-1>ü"},
	} {
		if r := read(c.kind, c.in); string(r.Text) != c.want || len(r.Faults) > 0 {
			t.Errorf("%s %q: %q, %s", c.kind, c.in, r.Text, r.FaultText())
		}
	}
}

// pack encodes a text with one content coding.
func pack(t testing.TB, coding, text string) string {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch coding {
	case "gzip", "x-gzip":
		w = gzip.NewWriter(&b)
	case "deflate":
		w = zlib.NewWriter(&b)
	case "raw":
		w, _ = flate.NewWriter(&b, 6)
	case "br":
		w = brotli.NewWriter(&b)
	case "zstd":
		w, _ = zstd.NewWriter(&b)
	}
	_, _ = io.WriteString(w, text)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestCodings: every content coding is decoded, and several in the right order. A body that cannot be decoded
// is returned unchanged, with the reason.
func TestCodings(t *testing.T) {
	t.Parallel()
	const text = `{"text":"the decoded text, the decoded text"}`
	for _, c := range []struct{ codings, in, want, fault string }{
		{"gzip", pack(t, "gzip", text), text, ""},
		{"X-GZIP", pack(t, "gzip", text), text, ""},
		{"deflate", pack(t, "deflate", text), text, ""},
		{"deflate", pack(t, "raw", text), text, ""},
		{"br", pack(t, "br", text), text, ""},
		{"zstd", pack(t, "zstd", text), text, ""},
		{"identity", text, text, ""},
		{"gzip, br", pack(t, "br", pack(t, "gzip", text)), text, ""},
		{"zstd, identity , gzip", pack(t, "gzip", pack(t, "zstd", text)), text, ""},
		{"gzip", pack(t, "gzip", text) + pack(t, "gzip", " "), text + " ", ""},
		{"gzip", text, text, "it says gzip, but is not"},
		{"br", text, text, "it says br, but is not"},
		{"deflate", text, text, "it says deflate, but is not"},
		{"zstd", text, text, "it says zstd, but is not"},
		{"aws-chunked", text, text, "it is coded as aws-chunked, which cannot be read here"},
		{"utf-8", text, text, "it is coded as utf-8, which cannot be read here"},
		{"gzip", pack(t, "gzip", text)[:30], "", "the gzip data ends early"},
		{"gzip", pack(t, "gzip", text) + "the rest that is no gzip", text, "the gzip data is damaged"},
		{strings.Repeat("gzip,", 5), text, text, "it has 5 content codings"},
	} {
		r := body.Read(body.NewLabel("application/json", c.codings), []byte(c.in), false, most)
		whole := string(r.Text) == c.want || c.want == "" && len(r.Text) > 0 && strings.HasPrefix(text, string(r.Text))
		if !whole || !strings.HasPrefix(r.FaultText(), c.fault) || c.fault == "" && len(r.Faults) > 0 {
			t.Errorf("%s of %.20q: %q, %q", c.codings, c.in, r.Text, r.FaultText())
		}
	}
	whole := pack(t, "gzip", strings.Repeat(text, 100))
	if r := body.Read(body.NewLabel("text/plain", "gzip"), []byte(whole[:60]), true, most); len(r.Text) == 0 || len(r.Faults) > 0 || !r.Cut {
		t.Errorf("the beginning of a body: %q, %v, %v", r.Text, r.Faults, r.Cut)
	}
	bomb := pack(t, "gzip", strings.Repeat("\x00", 64<<20))
	if r := body.Read(body.NewLabel("text/plain", "gzip"), []byte(bomb), false, 1<<10); len(r.Text) != 1<<10 || !r.Cut {
		t.Errorf("%d bytes, cut %v", len(r.Text), r.Cut)
	}
}

// TestFields: the fields of a form are decoded, JSON inside a field is detected, and the charset
// applies to the decoded escapes.
func TestFields(t *testing.T) {
	t.Parallel()
	const form = "application/x-www-form-urlencoded"
	for _, c := range []struct {
		kind, in string
		want     []body.Field
	}{
		{form, "text=hello+brave+world&email=ann%40example.org", []body.Field{{Name: "text", Value: "hello brave world"}, {Name: "email", Value: "ann@example.org"}}},
		{form, "payload=%7B%22type%22%3A%22block_actions%22%7D", []body.Field{{Name: "payload", Value: `{"type":"block_actions"}`, JSON: true}}},
		{form, "a&=b&&c=d=e&%zz=%4", []body.Field{{Name: "a"}, {Value: "b"}, {Name: "c", Value: "d=e"}, {Name: "%zz", Value: "%4"}}},
		{form + "; charset=ISO-8859-1", "n=M%FCller", []body.Field{{Name: "n", Value: "Müller"}}},
		{form, "_charset_=windows-1252&n=M%FCller", []body.Field{{Name: "_charset_", Value: "windows-1252"}, {Name: "n", Value: "Müller"}}},
		{form, "\xef\xbb\xbfa=b", []body.Field{{Name: "a", Value: "b"}}},
		{form, "a=%7Bnot", []body.Field{{Name: "a", Value: "{not"}}},
	} {
		if r := read(c.kind, c.in); r.Form != body.URLEncoded || !slices.Equal(r.Fields, c.want) {
			t.Errorf("%s: %v %+v", c.in, r.Form, r.Fields)
		}
	}
	if got := body.Query([]byte("/a?text=hello%20wide#x=y")); len(got) != 1 || got[0].Value != "hello wide" {
		t.Errorf("%+v", got)
	}
}

// TestParts: every part of a multipart body is read, even if another part or the label is wrong.
func TestParts(t *testing.T) {
	t.Parallel()
	part := func(boundary, name, text string) string {
		return "--" + boundary + "\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + text + "\r\n"
	}
	const odd = "----=_Part_7_1002003.1760000000001"
	for _, c := range []struct {
		name, kind, in string
		want           []string // name:text of each part
		fault          string   // part of the text of all faults
	}{
		{"plain", "multipart/form-data; boundary=b", part("b", "a", "1") + part("b", "c", "3") + "--b--\r\n", []string{"a:1", "c:3"}, ""},
		{
			"a header without a colon", "multipart/form-data; boundary=b",
			part("b", "a", "1") + "--b\r\nContent-Disposition form-data\r\n\r\n2\r\n" + part("b", "c", "3") + "--b--\r\n",
			[]string{"a:1", ":2", "c:3"},
			"a line of its header has no colon",
		},
		{"boundary without quotes", "multipart/form-data; boundary=" + odd, part(odd, "a", "1") + "--" + odd + "--", []string{"a:1"}, ""},
		{"boundary twice", "multipart/form-data; boundary=b; boundary=b", part("b", "a", "1") + "--b--", []string{"a:1"}, ""},
		{"no boundary", "multipart/form-data", part("b", "a", "1") + "--b--", []string{"a:1"}, "the boundary of the label is not in it"},
		{"another boundary", "multipart/form-data; boundary=z", part("b", "a", "1") + "--b--", []string{"a:1"}, "the boundary of the label is not in it"},
		{"without carriage returns", "multipart/form-data; boundary=b", strings.ReplaceAll(part("b", "a", "1")+"--b--\n", "\r", ""), []string{"a:1"}, ""},
		{"no end", "multipart/form-data; boundary=b", part("b", "a", "1") + "--b\r\nContent-Disposition: form-data; name=c\r\n\r\n3", []string{"a:1", "c:3"}, "the last part has no end"},
		{"no header", "multipart/form-data; boundary=b", "--b\r\n\r\n1\r\n--b\r\n2\n3\r\n--b--", []string{":1", ":2\n3"}, ""},
		{"header without end", "multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=a\r\n--b\r\n\r\n2\r\n--b--", []string{"a:", ":2"}, "its header does not end"},
		{"text around it", "multipart/form-data; boundary=b", "before\r\n" + part("b", "a", "1") + "--b--\r\nbehind", []string{"a:1"}, "6 bytes before the first part"},
		{"the boundary within a line", "multipart/form-data; boundary=b", part("b", "a", "x--b\r\ny--b") + "--b--", []string{"a:x--b\r\ny--b"}, ""},
		{
			"codings of parts", "multipart/mixed; boundary=b",
			"--b\r\nContent-Disposition: form-data; name=q\r\nContent-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nM=FCller\r\n" +
				"--b\r\nContent-Disposition: form-data; name=b\r\nContent-Type: application/json\r\nContent-Transfer-Encoding: base64\r\n\r\neyJhIjox\r\nfQ==\r\n--b--",
			[]string{"q:Müller", `b:{"a":1}`},
			"",
		},
	} {
		r := read(c.kind, c.in)
		var got []string
		faults := r.FaultText()
		for _, p := range r.Parts {
			got, faults = append(got, p.Name+":"+string(p.Text)), faults+p.FaultText()
		}
		if r.Form != body.Multipart || !slices.Equal(got, c.want) || !strings.Contains(faults, c.fault) || c.fault == "" && faults != "" {
			t.Errorf("%s: %v %q, %q", c.name, r.Form, got, faults)
		}
	}
	names := read("multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"a\"; filename*=UTF-8''na%C3%AFve%20+.txt\r\n\r\n1\r\n--b\r\nContent-Disposition: form-data; name=b; filename=\"C:\\dir\\f.txt\"\r\n\r\n1\r\n--b--")
	if names.Parts[0].File != "naïve +.txt" || names.Parts[1].File != `C:\dir\f.txt` {
		t.Errorf("%q, %q", names.Parts[0].File, names.Parts[1].File)
	}
	nested := read("multipart/mixed; boundary=b", "--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n\r\nx\r\n--c--\r\n--b--")
	if len(nested.Parts) != 1 || len(nested.Parts[0].Parts) != 1 || string(nested.Parts[0].Parts[0].Text) != "x" {
		t.Errorf("%+v", nested.Parts)
	}
}
