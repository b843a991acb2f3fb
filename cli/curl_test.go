package cli

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/record"
)

// TestReadCURL compares each cURL command with the method, path, header lines and body of the resulting
// request, or with the error.
func TestReadCURL(t *testing.T) {
	t.Parallel()
	const form = "Content-Type: application/x-www-form-urlencoded"
	for _, c := range []struct{ command, want string }{
		{`curl https://a.example/hook?x=1#frag`, `GET /hook?x=1|`},
		{`$ curl a.example`, `GET /|`},
		{`curl http://a.example?x=1`, `GET /?x=1|`},
		{`/usr/bin/curl -X PUT --url http://a.example/ -H 'X-A: b' -H "X-B:c"`, `PUT /|X-A: b|X-B: c|`},
		{`curl -sSXPOST 'http://a/b' -d a=1 -d b=2`, `POST /b|` + form + `|a=1&b=2`},
		{`curl http://a/ --data-raw '@x' -H 'Content-Type: text/plain'`, `POST /|Content-Type: text/plain|@x`},
		{`curl http://a/ -H 'Content-Type:' -d x`, `POST /|-Content-Type|x`},
		{`curl http://a/ -H 'X-Empty;' -H 'Accept:'`, `GET /|X-Empty: |`},
		{`curl http://a/ --json '{"a":1}'`, `POST /|Accept: application/json|Content-Type: application/json|{"a":1}`},
		{`curl -G http://a/?q=1 -d b=2 --data-urlencode 'c=a b&é'`, `GET /?q=1&b=2&c=a%20b%26%C3%A9|`},
		{`curl -I http://a/`, `HEAD /|`},
		{`curl http://a/ -u alice:pw -A me -e http://r -b 'a=b; c=d'`, `GET /|Authorization: Basic YWxpY2U6cHc=|User-Agent: me|Referer: http://r|Cookie: a=b; c=d|`},
		{`curl http://a/ -o /dev/null -w '%{http_code}' -m 5 --compressed -kL --http1.1`, `GET /|`},
		{`curl http://a/ -H 'Host: b' -H 'Content-Length: 3' -H 'Connection: close'`, `GET /|`},
		// Commands of "copy as cURL" in Chrome and Firefox.
		{"curl 'https://a.example/api' \\\n  -H 'accept: */*' \\\n  -H 'content-type: application/json' \\\n  --data-raw $'{\"a\":\"it\\'s \\u0021 \\xc3\\xa9\\n\"}' \\\n  --compressed", "POST /api|accept: */*|content-type: application/json|{\"a\":\"it's ! é\n\"}"},
		{`curl 'https://a.example/' -X 'POST' --data-binary ''`, `POST /|` + form + `|`},
		// Quoting of a shell.
		{`curl "http://a/\$x" -H "X: \"q\" \\ \` + "`" + `"`, "GET /$x|X: \"q\" \\ `|"},
		{`curl http://a/ # a comment`, `GET /|`},
		{`curl http://a/ -H X:\ a\'b`, `GET /|X: a'b|`},
		{`curl http://a/ -d "$(printf 'a\000\377%%')"`, "POST /|" + form + "|a\x00\xff%"},
		{`curl --globoff 'http://a/b[1]'`, `GET /b[1]|`},
		{`curl --request-target '/../x' http://a/`, `GET /../x|`},
		// Refused commands, each with its reason.
		{``, `!does not begin with curl`},
		{`wget http://a/`, `!does not begin with curl`},
		{`curl`, `!no address`},
		{`curl http://a/ http://b/`, `!several addresses`},
		{`curl ftp://a/`, `!"ftp"`},
		{`curl http://a/?x=1&y=2`, `!quotes`},
		{`curl http://a/ | sh`, `!more than one command`},
		{`curl http://a/ > f`, `!more than one command`},
		{`curl http://a/ -d $BODY`, `!variables`},
		{`curl http://a/ -d "$(cat secret)"`, `!variables`},
		{"curl http://a/ -d `id`", `!variables`},
		{`curl http://a/ -d 'x`, `!quote`},
		{`curl http://a/ -d "x`, `!quote`},
		{`curl http://a/ -d $'\q'`, `!escape`},
		{`curl ^"http://a/^" ^`, `!Windows`},
		{`curl http://a/ -d @file`, `!--data names a file`},
		{`curl http://a/ --data-binary @-`, `!--data-binary names a file`},
		{`curl http://a/ --data-urlencode x@file`, `!--data-urlencode names a file`},
		{`curl http://a/ -H @file`, `!--header names a file`},
		{`curl http://a/ -b jar`, `!--cookie names a file`},
		{`curl http://a/ -F a=b`, `!--form`},
		{`curl http://a/ -T file`, `!--upload-file`},
		{`curl http://a/ -K file`, `!--config`},
		{`curl http://a/ -n`, `!--netrc`},
		{`curl http://a/ --next http://b/`, `!--next`},
		{`curl http://a/ -u alice`, `!no password`},
		{`curl http://a/ --http1.0`, `!--http1.0`},
		{`curl http://a/ -Z`, `!-Z`},
		{`curl http://a/ -X`, `!--request has no value`},
		{`curl http://a/{b,c}`, `!brackets`},
		{`curl http://a/ -H nonsense`, `!no 'Name: value'`},
	} {
		p, err := readCURL(c.command)
		if why, refused := strings.CutPrefix(c.want, "!"); refused {
			if err == nil || !strings.Contains(err.Error(), why) {
				t.Errorf("%s: %+v, %v; want %q", c.command, p, err, why)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.command, err)
			continue
		}
		if got := p.text(); got != c.want {
			t.Errorf("%s:\n%q, want\n%q", c.command, got, c.want)
		}
	}
}

func (p *pasted) text() string {
	out := p.method + " " + p.path + "|"
	for _, h := range p.headers {
		out += h[0] + ": " + h[1] + "|"
	}
	for _, name := range p.remove {
		out += "-" + name + "|"
	}
	return out + string(p.body)
}

// TestReadExportedCURL: an exported curl command is parsed into the request of the event.
func TestReadExportedCURL(t *testing.T) {
	t.Parallel()
	body := "{\"a\":\"it's\"}\x00\xff"
	site := relay.Site{Base: url.URL{Scheme: "http", Host: "localhost"}, AliasDomain: "localhost"}
	e := &relay.Event{
		Alias: "shop", Method: "POST", Target: []byte("/hook?x=1"), HTTPMinor: 1, ReceivedAt: time.Now(),
		Request: relay.Message{
			Head:    []byte("POST /hook?x=1 HTTP/1.1\r\nHost: shop.localhost\r\nX-A: b\r\nX-Empty:\r\nStripe-Signature: t=1,v1=00\r\nContent-Length: 14\r\n\r\n"),
			Framing: relay.FramingLength, Body: relay.Body{Data: []byte(body), Stored: int64(len(body)), Size: int64(len(body)), State: relay.BodyComplete},
		},
	}
	command := record.CURL(e, site)
	if strings.HasPrefix(command, "{") { // the command for a binary body has a pipe, which readCURL refuses
		if _, err := readCURL(command); err == nil {
			t.Error("a command with a pipe was read")
		}
		e.Request.Body.Data = []byte(`{"a":"it's"}!!`)
		body, command = string(e.Request.Body.Data), record.CURL(e, site)
	}
	p, err := readCURL(command)
	if err != nil {
		t.Fatalf("%v in\n%s", err, command)
	}
	if want := "POST /hook?x=1|X-A: b|X-Empty: |Stripe-Signature: t=1,v1=00|-Content-Type|" + body; p.text() != want {
		t.Errorf("%q, want %q of\n%s", p.text(), want, command)
	}
}

func TestReadHAR(t *testing.T) {
	t.Parallel()
	entry := func(post string) string {
		return `{"request":{"method":"POST","url":"https://a.example/x?y=1","headers":[{"name":":path","value":"/x"},{"name":"Host","value":"a"},{"name":"X-A","value":"b"}]` + post + `}}`
	}
	log := func(entries ...string) string { return `{"log":{"entries":[` + strings.Join(entries, ",") + `]}}` }
	for _, c := range []struct {
		file string
		n    int
		want string
	}{
		{log(entry("")), 0, "POST /x?y=1|X-A: b|"},
		{"\ufeff" + log(entry(""), entry(`,"postData":{"mimeType":"text/plain","text":"hi"}`)), 2, "POST /x?y=1|X-A: b|Content-Type: text/plain|hi"},
		{log(entry(`,"postData":{"text":"aGk=","encoding":"base64"}`)), 1, "POST /x?y=1|X-A: b|hi"},
		{log(entry(`,"postData":{"mimeType":"application/x-www-form-urlencoded","text":"","params":[{"name":"a b","value":"c&d"}]}`)), 1, "POST /x?y=1|X-A: b|Content-Type: application/x-www-form-urlencoded|a+b=c%26d"},
		{log(entry(`,"postData":{"mimeType":"multipart/form-data","params":[{"name":"a","value":"b"}]}`)), 1, "!in parts"},
		{log(entry(""), entry("")), 0, "!2 requests; name one"},
		{log(entry("")), 2, "!no #2"},
		{log(), 0, "!no requests"},
		{"{", 0, "!not a HAR"},
		{`{"log":{"entries":[{"request":{"method":"GET","url":"data:,x"}}]}}`, 0, "!"},
	} {
		p, err := readHAR([]byte(c.file), c.n)
		if why, refused := strings.CutPrefix(c.want, "!"); refused {
			if why != "" && (err == nil || !strings.Contains(err.Error(), why)) {
				t.Errorf("%s: %v, want %q", c.file, err, why)
			}
			continue
		}
		if err != nil || p.text() != c.want {
			t.Errorf("%s: %v %q, want %q", c.file, err, p.text(), c.want)
		}
	}
	for value, want := range map[string]string{"a.har": "a.har 0", "a.har#3": "a.har 3", "a#b.har": "a#b.har 0", "a#b.har#1": "a#b.har 1", "a#0": "a#0 0"} {
		if file, n := harName(value); file+" "+string(rune('0'+n)) != want {
			t.Errorf("%s: %s %d", value, file, n)
		}
	}
}

// TestEdited: an editor changes the request, and an empty text cancels the send.
func TestEdited(t *testing.T) {
	t.Parallel()
	const raw = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nX-A: b\r\n\r\nhi"
	for _, c := range []struct{ old, new, want string }{
		{"hi", "hello\n", strings.Replace(strings.Replace(raw, "hi", "hello", 1), ": 2", ": 5", 1)},
		{"X-A: b", "X-A: c\nX-B: d", strings.Replace(raw, "X-A: b", "X-A: c\r\nX-B: d", 1)},
		{"Content-Length: 2", "Content-Length: 9", raw},
		{"/a", "/b", strings.Replace(raw, "/a", "/b", 1)},
		{"Host: a\n", "", "!Host"},
		{"X-A: b", "no line", "!"},
	} {
		f := &Front{Edit: func(_ context.Context, text []byte, use func([]byte) error) error {
			return use([]byte(strings.Replace(string(text), c.old, c.new, 1)))
		}}
		var got []byte
		err := f.edited(t.Context(), []byte(raw), func(raw []byte) error { got = raw; return nil })
		if why, refused := strings.CutPrefix(c.want, "!"); refused {
			if err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "nothing was sent") {
				t.Errorf("%q: %q %v", c.new, got, err)
			}
		} else if err != nil || string(got) != c.want {
			t.Errorf("%q: %q %v, want %q", c.new, got, err, c.want)
		}
	}
	f := &Front{Edit: func(_ context.Context, _ []byte, use func([]byte) error) error { return use([]byte(" \n")) }}
	if err := f.edited(t.Context(), []byte(raw), nil); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Error(err)
	}
}
