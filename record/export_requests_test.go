package record_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"

	"relay"
	"relay/record"
	"relay/wire"
)

// exportCase is a request that an export could change.
type exportCase struct {
	name    string
	start   string // request line
	lines   string // header lines except Host and X-Case
	body    string // body without its transfer coding; "" = the request has no body
	chunks  string // chunk lines, for a body in chunks
	state   string // "" = complete
	refused string // formats that cannot send the request, separated by spaces
	asForm  bool   // the body is a form, which programs that read HAR build anew from its fields, so its bytes may differ
}

const (
	textBody = "Content-Type: text/plain\r\n"
	formBody = "Content-Type: application/x-www-form-urlencoded\r\n"
	jsonBody = "Content-Type: application/json\r\n"
	onlyCURL = "har go js python"
	allForms = "curl har go js python"
)

// exportCases returns requests with characters that shells, programs or archives interpret.
func exportCases(t *testing.T) []exportCase {
	t.Helper()
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(`{"id":"evt_1"}`))
	_ = z.Close()
	return []exportCase{
		{name: "nothing but a target", start: "GET / HTTP/1.1"},
		{name: "JSON", start: "POST /hook?x=1&y=(z) HTTP/1.1", lines: jsonBody, body: `{"a":1.0,"b":"x","a":2}`},
		{name: "what shells expand", start: "POST / HTTP/1.1", lines: textBody, body: "it's \"$HOME\" `id` $(id) \\ !x! * ~ #\n"},
		{name: "at sign first", start: "POST / HTTP/1.1", lines: textBody, body: "@/etc/hostname"},
		{name: "every byte", start: "PUT / HTTP/1.1", body: string(every), refused: "har"},
		{name: "NUL in text", start: "POST / HTTP/1.1", lines: textBody, body: "a\x00b", refused: "har"},
		{name: "line ends", start: "POST / HTTP/1.1", lines: textBody, body: "a\nb\r\nc\rd\te\n\n"},
		{name: "only a line end", start: "POST / HTTP/1.1", lines: textBody, body: "\n"},
		{name: "minus first", start: "POST / HTTP/1.1", lines: textBody, body: "-n \x01"},
		{name: "percent signs", start: "POST / HTTP/1.1", lines: textBody, body: "100%s %d%n\\101\x02"},
		{name: "places of the template", start: "POST /{id}?{status} HTTP/1.1", lines: textBody, body: "{lines}{status}{id}\"\"\"'''`${x}#*/", refused: "har"},
		{name: "chunks", start: "POST / HTTP/1.1", lines: textBody + "Transfer-Encoding: chunked\r\n", body: "pieces of it", chunks: "6\r\n6\r\n0\r\n\r\n"},
		{name: "chunks of another spelling", start: "POST / HTTP/1.1", lines: textBody + "Transfer-Encoding: Chunked\r\n", body: "pieces of it", chunks: "0c;a=\"b\"\r\n000\r\n\r\n"},
		{name: "trailers", start: "POST / HTTP/1.1", lines: "Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n", body: "ab", chunks: "2\r\n0\r\nX-Sum: 1\r\n\r\n", refused: "curl har"},
		{name: "empty chunks", start: "POST / HTTP/1.1", lines: "Transfer-Encoding: chunked\r\n", chunks: "0\r\n\r\n"},
		{name: "empty", start: "POST / HTTP/1.1", lines: "Content-Length: 0\r\n"},
		{name: "no framing", start: "DELETE /x HTTP/1.1"},
		{name: "GET with a body", start: "GET / HTTP/1.1", lines: textBody, body: "a"},
		{name: "HEAD", start: "HEAD / HTTP/1.1"},
		{name: "HEAD with an empty body", start: "HEAD / HTTP/1.1", lines: "Content-Length: 0\r\n"},
		{name: "HEAD with empty chunks", start: "HEAD / HTTP/1.1", lines: "Transfer-Encoding: chunked\r\n", chunks: "0\r\n\r\n"},
		{name: "HEAD with a body", start: "HEAD / HTTP/1.0", body: "ab"},
		{name: "HTTP/1.0", start: "POST / HTTP/1.0", lines: textBody, body: "ab"},
		{name: "no path", start: "OPTIONS * HTTP/1.1", refused: "har"},
		{name: "a whole address", start: "POST http://a.b?x HTTP/1.1", refused: "har"},
		{name: "number sign in the target", start: "GET /a#b HTTP/1.1", refused: "har"},
		{name: "target that is not ASCII", start: "GET /caf\u00e9?\xff HTTP/1.1", refused: "har"},
		{name: "dots in the path", start: "GET /../a/./b//c/.. HTTP/1.1"},
		{name: "brackets in the target", start: "GET /[1-3]/{a,b}?x[]=1&y={} HTTP/1.1", refused: "har"},
		{name: "other characters in the target", start: "GET /|^\"<>\\`?a=|\"<>`'$(id) HTTP/1.1", refused: "har"},
		{name: "two slashes first", start: "GET //a/../b HTTP/1.1"},
		{name: "a method in small letters", start: "post /x HTTP/1.1", lines: textBody, body: "a"},
		{name: "a method of another protocol", start: "PROPFIND /x HTTP/1.1", lines: "Depth: 1\r\n"},
		{name: "Host alone in HTTP/1.0", start: "GET / HTTP/1.0"},
		{name: "DELETE with a body", start: "DELETE /x HTTP/1.1", lines: jsonBody, body: "{}"},
		{name: "OPTIONS with a body", start: "OPTIONS /x HTTP/1.1", lines: jsonBody, body: "{}"},
		{name: "a tab in a line", start: "GET / HTTP/1.1", lines: "X-A: a\tb  c\r\n"},
		{name: "names in small letters", start: "POST / HTTP/1.1", lines: "content-type: text/plain\r\naccept: a/b\r\nuser-agent: me\r\n", body: "a"},
		{name: "types twice", start: "POST / HTTP/1.1", lines: textBody + "Content-Type: a/b\r\n", body: "a"},
		{name: "at sign and semicolon in a line", start: "GET / HTTP/1.1", lines: "X-A: @/etc/hostname\r\nX-B: ;\r\nX-C: a;\r\nX-D: :\r\n"},
		{name: "only quotes", start: "POST / HTTP/1.1", lines: textBody, body: "'''\"\"\"```"},
		{name: "only NUL", start: "POST / HTTP/1.1", body: strings.Repeat("\x00", 5000), refused: "har"},
		{name: "a lone CR at the end", start: "POST / HTTP/1.1", lines: textBody, body: "a\r"},
		{name: "the end of a here document", start: "POST / HTTP/1.1", lines: textBody, body: "\nEOF\nexit 1\n"},
		{name: "options of curl in a body", start: "POST / HTTP/1.1", lines: textBody, body: "--next -o out <file"},
		{name: "Expect with chunks", start: "POST / HTTP/1.1", lines: textBody + "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n", body: "ab", chunks: "2\r\n0\r\n\r\n"},
		{name: "an upgrade", start: "GET /ws HTTP/1.1", lines: "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"},
		{name: "a form that is not UTF-8", start: "POST / HTTP/1.1", lines: formBody, body: "a=%ff&b=caf\xe9", refused: "har"},
		{name: "a form without values", start: "POST / HTTP/1.1", lines: formBody, body: "&a&=b&&c=", asForm: true},
		{name: "an empty query", start: "GET /x? HTTP/1.1"},
		{name: "percent signs in the target", start: "GET /%41%2f%2E?x=%zz&y=%c3%a9&y=+ HTTP/1.1", refused: "har"},
		{name: "valid percent signs in the target", start: "GET /%41%2f%2E?x=%26&y=%c3%a9&y=+ HTTP/1.1"},
		{name: "lines twice", start: "GET / HTTP/1.1", lines: "X-A: 1\r\nx-a: 2\r\nX-A: 1\r\nCookie: a=b\r\nCookie: c=d\r\n"},
		{name: "an empty line", start: "GET / HTTP/1.1", lines: "X-Empty:\r\nX-Space:   \r\nX-Semicolon: ;\r\n"},
		{name: "bytes in a line", start: "GET / HTTP/1.1", lines: "X-Bin: caf\xe9 \xff\r\n", refused: "har"},
		{name: "UTF-8 in a line", start: "GET / HTTP/1.1", lines: "X-Name: Zo\u00eb \u65e5\r\n", refused: "har"},
		{name: "what shells expand in a line", start: "GET / HTTP/1.1", lines: "X-A: it's \"$HOME\" `id` $(id) \\ !x! @f %s\r\n"},
		{name: "an odd method", start: "A'`!$&*B / HTTP/1.1"},
		{name: "an odd name", start: "GET / HTTP/1.1", lines: "-x: 1\r\n!#$%&'*+.^_`|~: 2\r\n"},
		{name: "what curl makes by itself", start: "POST / HTTP/1.1", lines: textBody + "User-Agent: me\r\nAccept: a/b\r\nAuthorization: Basic eDp5\r\nReferer: http://x\r\nRange: bytes=0-1\r\nAccept-Encoding: gzip\r\nConnection: close\r\nTE: trailers\r\n", body: "a"},
		{name: "Expect", start: "POST / HTTP/1.1", lines: textBody + "Expect: 100-continue\r\n", body: "a"},
		{name: "a form", start: "POST / HTTP/1.1", lines: formBody, body: "text=hello+brave%20world&email=ann%40example.org&a=1&a=%32", asForm: true},
		{name: "JSON called a form", start: "POST / HTTP/1.1", lines: formBody, body: `{"a": "b&c=d"}`},
		{name: "multipart", start: "POST / HTTP/1.1", lines: "Content-Type: multipart/form-data; boundary=xYz\r\n", body: "--xYz\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nhello\r\n--xYz--\r\n"},
		{name: "compressed", start: "POST / HTTP/1.1", lines: jsonBody + "Content-Encoding: gzip\r\n", body: packed.String(), refused: "har"},
		{name: "text that turns and hides", start: "POST / HTTP/1.1", lines: textBody, body: "\u0301a\u202eb\u200bc\ufeffd\u2028e"},
		{name: "a byte order mark", start: "POST / HTTP/1.1", lines: jsonBody, body: "\ufeff{}"},
		{name: "70,000 bytes of text", start: "POST / HTTP/1.1", lines: textBody, body: strings.Repeat("\u65e5it's\n", 8750)},
		{name: "70,000 bytes of data", start: "POST / HTTP/1.1", body: strings.Repeat("\x00\xff%\\'!-", 10000), refused: "har"},
		{name: "1 MiB", start: "POST / HTTP/1.1", lines: textBody, body: strings.Repeat("'\"\n\\", 1<<18)},
		{name: "more than 1 MiB", start: "POST / HTTP/1.1", lines: textBody, body: strings.Repeat("x", 1<<20+1), refused: onlyCURL},
		{name: "not whole", start: "POST / HTTP/1.1", body: strings.Repeat("x", 31), state: relay.BodyAborted, refused: allForms},
		{name: "a long line", start: "POST / HTTP/1.1", lines: "X-Long: " + strings.Repeat("x'", 20<<10) + "\r\n", body: "a"},
	}
}

// event is the event of a case, as it is stored.
func (c *exportCase) event(t *testing.T, n int) *relay.Event {
	t.Helper()
	head := c.start + "\r\nHost: a.b\r\n" + c.lines
	if c.body != "" && c.chunks == "" {
		head += fmt.Sprintf("Content-Length: %d\r\n", len(c.body))
	}
	head += fmt.Sprintf("X-Case: %d\r\n\r\n", n)
	h, _, err := wire.Request([]byte(head), wire.Limits{})
	if err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
	e := &relay.Event{
		ID: relay.ID{14: byte(n >> 8), 15: byte(n)}, Alias: "hook", Method: string(h.Method), Target: wire.ShownTarget(h.Target), HTTPMinor: h.Minor,
		Request: relay.Message{Head: []byte(head), Framing: h.Framing, Lines: []byte(c.chunks), Body: relay.Body{
			Data: []byte(c.body), Size: int64(len(c.body)), Stored: int64(len(c.body)), State: relay.BodyComplete,
		}},
	}
	if c.state != "" {
		e.Blocker, e.Request.Body.State = relay.BlockedIncomplete, c.state
	}
	e.Request.Body.Data = e.Request.Body.Data[:min(len(c.body), record.MaxBody)] // truncated to MaxBody, as in an event that the API has read
	return e
}

// wire returns the transferred bytes of a case that was stored completely.
func (c *exportCase) wire(t *testing.T, e *relay.Event) []byte {
	t.Helper()
	m := e.Request
	m.Body.Data = []byte(c.body)
	var b bytes.Buffer
	if err := wire.Rebuild(&b, &m, nil, nil); err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
	return b.Bytes()
}
