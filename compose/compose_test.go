package compose_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/compose"
	"relay/signature"
	"relay/wire"
)

// parse reads a request that must be valid.
func parse(t testing.TB, raw string) *compose.Request {
	t.Helper()
	r, err := compose.Parse([]byte(raw))
	if err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	return r
}

const (
	plain   = "POST /hook?x=1 HTTP/1.1\r\nHost:  a.example.com\r\nX-One:\ta  b \r\nx-two: 2\r\nX-Two: 3\r\nContent-Length: 28\r\nContent-Type: application/json\r\n\r\n" + `{ "a" : {"b":"c"}, "n":1.0 }`
	chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\n{\"a\r\n4\r\n\":1}\r\n0;last\r\nX-Trailer: t\r\n\r\n"
)

func value(text string) map[string]json.RawMessage {
	path, v, _ := strings.Cut(text, "=")
	return map[string]json.RawMessage{path: json.RawMessage(v)}
}

func TestApplyChangesNothingElse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, raw string
		edit      compose.Edit
		old, new  []string // the expected request is raw with old[i] replaced by new[i]
		changes   string
	}{
		{name: "nothing", raw: plain},
		{name: "the same", raw: plain, edit: compose.Edit{Method: "POST", Path: "/hook?x=1", Header: []compose.Header{{"X-ONE", "a  b"}}, Set: value("a.b=\"c\"")}},
		{name: "method", raw: plain, edit: compose.Edit{Method: "PUT"}, old: []string{"POST"}, new: []string{"PUT"}, changes: "method"},
		{name: "path", raw: plain, edit: compose.Edit{Path: "/x"}, old: []string{"/hook?x=1"}, new: []string{"/x"}, changes: "path"},
		{
			name: "path of an address", raw: "GET http://a/x HTTP/1.0\r\n\r\n", edit: compose.Edit{Path: "/y"},
			old: []string{"a/x"}, new: []string{"a/y"}, changes: "path",
		},
		{name: "path of an authority", raw: "GET http://a HTTP/1.0\r\n\r\n", edit: compose.Edit{Path: "/y"}, old: []string{"//a "}, new: []string{"//a/y "}, changes: "path"},
		{
			name: "a line keeps its spelling and spaces", raw: plain, edit: compose.Edit{Header: []compose.Header{{"x-one", "new"}}},
			old: []string{"X-One:\ta  b "}, new: []string{"X-One:\tnew "}, changes: "header:x-one",
		},
		{
			name: "lines of one name", raw: plain, edit: compose.Edit{Header: []compose.Header{{"X-Two", "2"}, {"X-Two", "4"}, {"X-Two", "5"}}},
			old: []string{"X-Two: 3", "json\r\n"}, new: []string{"X-Two: 4", "json\r\nX-Two: 5\r\n"}, changes: "header:x-two",
		},
		{
			name: "fewer lines", raw: plain, edit: compose.Edit{Header: []compose.Header{{"X-Two", "2"}}},
			old: []string{"X-Two: 3\r\n"}, new: []string{""}, changes: "header:x-two",
		},
		{name: "remove", raw: plain, edit: compose.Edit{Remove: []string{"x-TWO", "none"}}, old: []string{"x-two: 2\r\nX-Two: 3\r\n"}, new: []string{""}, changes: "header:x-two"},
		{
			name: "a new line is the last one", raw: plain, edit: compose.Edit{Header: []compose.Header{{"New", "caf\xe9"}}},
			old: []string{"json\r\n"}, new: []string{"json\r\nNew: caf\xe9\r\n"}, changes: "header:new",
		},
		{
			name: "body", raw: plain, edit: compose.Edit{Body: []byte("hello")},
			old: []string{": 28", `{ "a" : {"b":"c"}, "n":1.0 }`}, new: []string{": 5", "hello"}, changes: "body",
		},
		{
			name: "no body", raw: plain, edit: compose.Edit{Body: []byte{}},
			old: []string{": 28", `{ "a" : {"b":"c"}, "n":1.0 }`}, new: []string{": 0", ""}, changes: "body",
		},
		{
			name: "member", raw: plain, edit: compose.Edit{Set: value(`a.b={"x": 1.50}`)},
			old: []string{": 28", `"c"`}, new: []string{": 36", `{"x": 1.50}`}, changes: "body:/a/b",
		},
		{
			name: "new member", raw: plain, edit: compose.Edit{Set: value(`/a/x~1y=null`)},
			old: []string{": 28", `"c"}`}, new: []string{": 39", `"c","x/y":null}`}, changes: "body:/a/x~1y",
		},
		{
			name: "chunks", raw: chunked, edit: compose.Edit{Set: value(`a=22`)},
			old: []string{"3;x=y\r\n{\"a\r\n4\r\n\":1}"}, new: []string{"8\r\n{\"a\":22}"}, changes: "body:/a",
		},
		{
			name: "no chunks", raw: chunked, edit: compose.Edit{Body: []byte{}},
			old: []string{"3;x=y\r\n{\"a\r\n4\r\n\":1}\r\n"}, new: []string{""}, changes: "body",
		},
		{
			name: "member behind a byte order mark", raw: strings.Replace(strings.Replace(plain, "28", "31", 1), "\r\n\r\n", "\r\n\r\n\ufeff", 1), edit: compose.Edit{Set: value(`n=2`)},
			old: []string{": 31", `1.0`}, new: []string{": 29", `2`}, changes: "body:/n",
		},
		{
			name: "a body where none was", raw: "GET / HTTP/1.1\r\nHost: a\r\n\r\n", edit: compose.Edit{Body: []byte("{}")},
			old: []string{"Host: a\r\n\r\n"}, new: []string{"Host: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"}, changes: "header:content-type body",
		},
	} {
		m := parse(t, c.raw).Message()
		r := compose.From(&m, m.Body.Data)
		if err := r.Apply(&c.edit); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		want := c.raw
		for i := range c.old {
			if strings.Count(want, c.old[i]) != 1 {
				t.Fatalf("%s: %q is there %d times", c.name, c.old[i], strings.Count(want, c.old[i]))
			}
			want = strings.Replace(want, c.old[i], c.new[i], 1)
		}
		if got := string(r.Wire()); got != want {
			t.Errorf("%s: got\n%q\nwant\n%q", c.name, got, want)
		}
		if got := strings.Join(r.Changes, " "); got != c.changes {
			t.Errorf("%s: changes %q, want %q", c.name, got, c.changes)
		}
		if err := r.Check(compose.Limits{}); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		before := parse(t, c.raw)
		if string(m.Head) != string(before.Head) || !bytes.Equal(m.Body.Data, before.Body) || string(m.Lines) != string(before.Lines) {
			t.Errorf("%s: the request that it was made from was changed", c.name)
		}
	}
}

func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	line := func(name, value string) compose.Edit {
		return compose.Edit{Header: []compose.Header{{"A", "b"}, {name, value}}}
	}
	for _, c := range []struct {
		raw   string
		edit  compose.Edit
		field string
	}{
		{plain, compose.Edit{Method: "a b"}, "body.method"},
		{plain, compose.Edit{Method: "CONNECT"}, "body.method"},
		{plain, compose.Edit{Path: "x"}, "body.path"},
		{plain, compose.Edit{Path: "/a b"}, "body.path"},
		{plain, compose.Edit{Path: "/\r\nX: y"}, "body.path"},
		{plain, line("a b", ""), "body.headers[1]"},
		{plain, line("", "x"), "body.headers[1]"},
		{plain, line("x", "a\r\nb: c"), "body.headers[1]"},
		{plain, line("x", "a\x00"), "body.headers[1]"},
		{plain, line("x", "a\x7f"), "body.headers[1]"},
		{plain, line("x", " a"), "body.headers[1]"},
		{plain, line("content-length", "3"), "body.headers[1]"},
		{plain, line("Transfer-Encoding", "chunked"), "body.headers[1]"},
		{plain, compose.Edit{Remove: []string{"x", "Content-Length"}}, "body.removeHeaders[1]"},
		{plain, compose.Edit{Remove: []string{"\n"}}, "body.removeHeaders[0]"},
		{plain, compose.Edit{Remove: []string{"Host"}}, "body.headers"},
		{plain, compose.Edit{Header: []compose.Header{{"Host", "a"}, {"Host", "b"}}}, "body.headers"},
		{plain, compose.Edit{Set: value("a.x.y=1")}, "body.set"},
		{plain, compose.Edit{Set: value("n.y=1")}, "body.set"},
		{plain, compose.Edit{Set: value("a..b=1")}, "body.set"},
		{plain, compose.Edit{Set: value("a={")}, "body.set"},
		{strings.Replace(plain, "X-One:", "Content-Encoding: gzip\r\nX-One:", 1), compose.Edit{Set: value("a=1")}, "body.set"},
		{strings.Replace(plain, `{ "a"`, `x "a"`, 1), compose.Edit{Set: value("a=1")}, "body.set"},
	} {
		r := parse(t, c.raw)
		err := r.Apply(&c.edit)
		if err == nil {
			err = r.Check(compose.Limits{})
		}
		e := relay.AsError(err)
		if e == nil || e.Code != relay.CodeValidationFailed || len(e.Fields) != 1 || e.Fields[0].Location != c.field {
			t.Errorf("%+v: %v, want the field %s", c.edit, err, c.field)
		}
	}
}

// TestBoundsOfAnEdit: an edit at a limit is accepted, and an edit beyond it is refused.
func TestBoundsOfAnEdit(t *testing.T) {
	t.Parallel()
	lines := func(n int) compose.Edit {
		e := compose.Edit{Remove: []string{"none"}}
		for i := range n - 1 {
			e.Header = append(e.Header, compose.Header{Name: fmt.Sprintf("x-%d", i), Value: "v"})
		}
		return e
	}
	members := func(n int) compose.Edit {
		e := compose.Edit{Set: map[string]json.RawMessage{}}
		for i := range n {
			e.Set[fmt.Sprintf("m%d", i)] = json.RawMessage("1")
		}
		return e
	}
	for name, c := range map[string]struct {
		of   func(n int) compose.Edit
		most int
	}{
		"header lines":           {lines, 200},
		"members":                {members, 50},
		"bytes of a method":      {func(n int) compose.Edit { return compose.Edit{Method: strings.Repeat("M", n)} }, 64},
		"bytes of a name":        {func(n int) compose.Edit { return compose.Edit{Header: []compose.Header{{strings.Repeat("n", n), "v"}}} }, 256},
		"bytes of a gone name":   {func(n int) compose.Edit { return compose.Edit{Remove: []string{strings.Repeat("n", n)}} }, 256},
		"bytes of a path of one": {func(n int) compose.Edit { return compose.Edit{Set: value(strings.Repeat("m", n) + "=1")} }, 256},
	} {
		for more := range 2 {
			e := c.of(c.most + more)
			if err := parse(t, plain).Apply(&e); (err == nil) != (more == 0) {
				t.Errorf("%s, %d: %v", name, c.most+more, err)
			}
		}
	}
}

// TestMemberOfAPackedBody: a member of a compressed body is set in the decompressed body, which is
// then sent uncompressed.
func TestMemberOfAPackedBody(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write([]byte(`{ "a" :1 }`))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := parse(t, fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", packed.Len(), packed.Bytes()))
	if err := r.Apply(&compose.Edit{Set: value("a=22")}); err != nil {
		t.Fatal(err)
	}
	if got, want := string(r.Wire()), "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n"+`{ "a" :22 }`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := strings.Join(r.Changes, " "); got != "body:/a header:content-encoding" {
		t.Errorf("changes %q", got)
	}
}

func TestCheckLimits(t *testing.T) {
	t.Parallel()
	r := parse(t, plain)
	for code, l := range map[string]compose.Limits{
		"body.headers": {Head: 50}, "body.path": {Target: 5}, relay.CodeBodyTooLarge: {Body: 27}, "": {Head: 1000, Target: 9, Body: 28},
	} {
		err := r.Check(l)
		if e := relay.AsError(err); code == "" && err != nil || code != "" && (e == nil || e.Code != code && (len(e.Fields) == 0 || e.Fields[0].Location != code)) {
			t.Errorf("%+v: %v, want %q", l, err, code)
		}
	}
}

func TestParseTakesExactlyOneRequest(t *testing.T) {
	t.Parallel()
	for raw, why := range map[string]string{
		"": "within its head", "GET / HTTP/1.1\r\nHost: a\r\n": "within its head", "GET / HTTP/1.1\r\n\r\n": "no Host line",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab": "within its body", plain + "x": "1 bytes follow",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n": "was not understood",
		"GET / HTTP/1.1\nHost: a\n\n":                                            "was not understood",
	} {
		if _, err := compose.Parse([]byte(raw)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want %q", raw, err, why)
		}
	}
	for _, raw := range []string{plain, chunked, "\r\n" + plain, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"} {
		if got := string(parse(t, raw).Wire()); got != strings.TrimPrefix(raw, "\r\n") {
			t.Errorf("%q became %q", raw, got)
		}
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	r, err := compose.New("POST", "/x", "a.example.com")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(&compose.Edit{Body: []byte("hi"), Header: []compose.Header{{"X-A", "b"}}}); err != nil {
		t.Fatal(err)
	}
	if got, want := string(r.Wire()), "POST /x HTTP/1.1\r\nHost: a.example.com\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 2\r\nX-A: b\r\n\r\nhi"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if _, err := compose.New("GET", "x", "a"); err == nil {
		t.Error("a path without / was taken")
	}
}

// TestSignedAnew: a new signature replaces the old one in its line, and verifies.
func TestSignedAnew(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	for _, c := range []struct{ provider, secret, raw, changes string }{
		{"stripe", "whsec_x", "POST / HTTP/1.1\r\nHost: a\r\nstripe-signature:  t=1,v1=aa,v0=bb\r\nContent-Length: 11\r\n\r\n" + `{"id":"ev"}`, "header:stripe-signature"},
		{"github", "s", "POST / HTTP/1.1\r\nHost: a\r\nX-GitHub-Event: push\r\nContent-Length: 2\r\n\r\n{}", "header:x-hub-signature-256"},
		{"slack", "s", "POST / HTTP/1.1\r\nHost: a\r\nX-Slack-Signature: v0=a\r\nX-Slack-Request-Timestamp: 1\r\nContent-Length: 2\r\n\r\n{}", "header:x-slack-request-timestamp header:x-slack-signature"},
		{"svix", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}", "header:svix-id header:svix-timestamp header:svix-signature"},
		{"svix", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "POST / HTTP/1.1\r\nHost: a\r\nSvix-Id: msg_1\r\nContent-Length: 2\r\n\r\n{}", "header:svix-timestamp header:svix-signature"},
		{"linear", "s", "POST / HTTP/1.1\r\nHost: a\r\nLinear-Signature: aa\r\nContent-Length: 28\r\n\r\n" + `{"webhookTimestamp": 1,"a":2}`[:28], "body:/webhookTimestamp header:linear-signature"},
		{"square", "s", "POST /x HTTP/1.1\r\nHost: a\r\nX-Square-HmacSha256-Signature: aa\r\nContent-Length: 2\r\n\r\n{}", "header:x-square-hmacsha256-signature"},
	} {
		if c.provider == "linear" {
			c.raw = strings.Replace(c.raw, "28", "29", 1) + "}"
		}
		r := parse(t, c.raw)
		before := parse(t, c.raw)
		p := signature.Find(c.provider, nil)
		s, err := r.Scheme(p)
		if err == nil {
			err = r.Sign(s, c.secret, "https://a.example.com/x", now)
		}
		if err != nil {
			t.Errorf("%s: %v", c.provider, err)
			continue
		}
		if got := strings.Join(r.Changes, " "); got != c.changes {
			t.Errorf("%s: changes %q, want %q", c.provider, got, c.changes)
		}
		request := &signature.Request{Method: "POST", URL: "https://a.example.com/x", Body: r.Body, Line: func(name string) (string, bool) { return r.Line(name) }}
		v := signature.Explain(p, []signature.Secret{{Value: c.secret}}, nil, request, now).Verdict
		if v.Verdict != signature.Valid || !r.HasSignature() {
			t.Errorf("%s: %+v of\n%s", c.provider, v, r.Wire())
		}
		if fields := wire.Fields(before.Head); len(fields) > 0 && !slices.ContainsFunc(wire.Fields(r.Head), func(f wire.Field) bool { return string(f.Name) == string(fields[len(fields)-1].Name) }) {
			t.Errorf("%s: lines were lost: %s", c.provider, r.Head)
		}
		if err := r.Check(compose.Limits{}); err != nil {
			t.Errorf("%s: %v", c.provider, err)
		}
	}
	r := parse(t, plain)
	if _, err := r.Scheme(signature.Find("discord", nil)); relay.AsError(err).Code != relay.CodeCannotSign {
		t.Errorf("discord: %v", err)
	}
}

func TestRenew(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ raw, old, changes, shape string }{
		{"POST / HTTP/1.1\r\nHost: a\r\nX-GitHub-Event: push\r\nX-GitHub-Delivery: 72d3162e-cc78-11e3-81ab-4c9367dc0958\r\n\r\n", "72d3162e-cc78-11e3-81ab-4c9367dc0958", "header:x-github-delivery", ` [1-9]\d[a-f]\d{4}[a-f]-[a-f]{2}\d\d-\d\d[a-f]\d-`},
		{"POST / HTTP/1.1\r\nHost: a\r\nStripe-Signature: t=1\r\nContent-Length: 14\r\n\r\n" + `{"id":"evt_1"}`, `"evt_1"`, "body:/id", `"evt_[1-9]"`},
		{"POST / HTTP/1.1\r\nHost: a\r\nsvix-id: msg_aA9\r\nsvix-signature: v1,x\r\n\r\n", "msg_aA9", "header:svix-id", ` msg_[a-z][A-Z]\d`},
	} {
		for range 20 { // several tries, because an id of one digit may stay the same by chance
			r := parse(t, c.raw)
			if err := r.Renew(r.Sender()); err != nil {
				t.Fatalf("%q: %v", c.raw, err)
			}
			if got := string(r.Wire()); len(got) != len(c.raw) {
				t.Fatalf("%q became %q", c.raw, got)
			} else if got != c.raw {
				if changes := strings.Join(r.Changes, " "); changes != c.changes || strings.Contains(got, c.old) || !regexp.MustCompile(c.shape).MatchString(got) {
					t.Errorf("%q: changes %q", got, changes)
				}
				break
			}
		}
	}
	if err := parse(t, plain).Renew(nil); relay.AsError(err).Code != relay.CodeValidationFailed {
		t.Error(err)
	}
}

// FuzzApply: an edited request is read back as one request, and all bytes that no change names are
// unchanged.
func FuzzApply(f *testing.F) {
	f.Add([]byte(plain), "X-One", "v", "a.b", `"x"`)
	f.Add([]byte(chunked), "New", "", "a", `2`)
	f.Add([]byte("GET / HTTP/1.0\r\n\r\n"), "a", "b", "", "")
	f.Add([]byte("\r\nPOST http://a HTTP/1.1\r\nHost: a\r\nContent-Length:\t002\r\n\r\n{}"), "a", "b", "x", "[]")
	f.Fuzz(func(t *testing.T, raw []byte, name, v, path, member string) {
		m, err := compose.Parse(raw)
		if err != nil {
			return
		}
		message := m.Message()
		for i, e := range []compose.Edit{
			{Header: []compose.Header{{name, v}}}, {Remove: []string{name}}, {Set: map[string]json.RawMessage{path: json.RawMessage(member)}}, {Path: "/" + name}, {Body: []byte(v)},
		} {
			r := compose.From(&message, message.Body.Data)
			if r.Apply(&e) != nil || r.Check(compose.Limits{}) != nil {
				continue
			}
			again, err := compose.Parse(r.Wire())
			if err != nil {
				t.Fatalf("edit %d of %q is %q, which is no request: %v", i, raw, r.Wire(), err)
			}
			if !bytes.Equal(again.Body, r.Body) || !bytes.Equal(again.Head, bytes.TrimPrefix(r.Head, []byte("\r\n"))) {
				t.Fatalf("edit %d of %q is read as another request: %q", i, raw, r.Wire())
			}
			others := func(x *compose.Request) (list []string) {
				for _, f := range wire.Fields(x.Head) {
					if n := string(f.Name); !strings.EqualFold(n, name) && !strings.EqualFold(n, "Content-Length") && !strings.EqualFold(n, "Content-Type") && !strings.EqualFold(n, "Content-Encoding") {
						list = append(list, n+"="+string(f.Value))
					}
				}
				return list
			}
			if !slices.Equal(others(r), others(m)) {
				t.Fatalf("edit %d of %q changed other lines: %q", i, raw, r.Wire())
			}
			if i != 2 && i != 4 && !bytes.Equal(r.Body, m.Body) {
				t.Fatalf("edit %d changed the body", i)
			}
		}
	})
}
