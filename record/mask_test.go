package record_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"relay"
	"relay/record"
)

// sharedOf returns the result of record.OfShared for an event that can be read.
func sharedOf(t *testing.T, e *relay.Event, s relay.Share, online bool) *record.SharedEvent {
	t.Helper()
	shown, err := record.OfShared(t.Context(), e, s, online)
	must(t, err)
	return shown
}

// sharedView returns what a share with View shows of a request, and the same as JSON.
func sharedView(t *testing.T, line, contentType, body string) (shown *record.SharedEvent, all string) {
	t.Helper()
	e := replayed(t)
	e.Target = []byte(line)
	e.Request.Head = []byte("POST " + line + " HTTP/1.1\r\nHost: stripe-dev.example.com\r\nContent-Type: " + contentType + "\r\n\r\n")
	e.Request.Body = relay.Body{Data: []byte(body), Size: int64(len(body)), Stored: int64(len(body)), State: relay.BodyComplete}
	shown = sharedOf(t, e, relay.Share{View: true}, true)
	text, err := json.Marshal(shown)
	if err != nil {
		t.Fatal(err)
	}
	return shown, string(text)
}

func TestSharedViewMasksSecretFields(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, line, kind, body, want string }{
		{"query", "/hook?a=1&api_key=s3cret&Secret=s3cret;sig=s3cret&b", "text/plain", "hello", ""},
		{"escaped name", "/hook?%74oken=s3cret", "text/plain", "hello", ""},
		{"form", "/", "application/x-www-form-urlencoded", "a=1&token=s3cret&b=2", "a=1&token=[masked]&b=2"},
		{"form with JSON", "/", "application/x-www-form-urlencoded", "payload=%7B%22token%22%3A%22s3cret%22%7D", "payload=%7B%22token%22%3A+%22%5Bmasked%5D%22%7D"},
		{"JSON", "/", "application/json", `{"id": 1.0, "apiKey":"s3cret", "n": {"password" : {"x": ["s3cret"]}, "b": 1e999}}`, `{"id": 1.0, "apiKey": "[masked]", "n": {"password": "[masked]", "b": 1e999}}`},
		{"escaped JSON name", "/", "text/plain", `[{"tok\u0065n":"s3cret"}, "kept"]`, `[{"tok\u0065n": "[masked]"}, "kept"]`},
		{"JSON lines", "/", "application/x-ndjson", "{\"a\":1}\n{\"pin\":\"s3cret\"}\n", "{\"a\":1}\n{\"pin\": \"[masked]\"}\n"},
		{"broken JSON", "/", "application/json", `{"a":1,"b":x,"token":"s3cret"}`, `{"a":1,"b":`},
		{"cut JSON", "/", "application/json", `{"a":1,"token":"s3cret`, `{"a":1,"token": `},
		{
			"multipart", "/", "multipart/form-data; boundary=B", "--B\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\ns3cret\r\n--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nkept\r\n--B--\r\n",
			"--B\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\n[masked]\r\n--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nkept\r\n--B--\r\n",
		},
		{"JSON called a form, as curl does", "/", "application/x-www-form-urlencoded", `{"password":"s3cret","a":1}`, `{"password": "[masked]","a":1}`},
		{"JSON in a string", "/", "application/json", `{"Type": "Notification", "Message" : "{\"token\":\"s3cret\",\"a\":1}", "n": "{x}"}`, `{"Type": "Notification", "Message" : "{\"token\": \"[masked]\",\"a\":1}", "n": "{x}"}`},
		{"form without a label", "/", "", "a=1&password=s3cret", "a=1&password=[masked]"},
		{"form called JSON", "/", "application/json", "a=1&password=s3cret\n", "a=1&password=[masked]"},
		{"secret with a separator", "/hook?token=ab;s3cret&a=1", "application/x-www-form-urlencoded", "password=ab;s3cret&a=1&token=ab#s3cret", "password=[masked]&a=1&token=[masked]"},
		{"names in brackets", "/", "application/x-www-form-urlencoded", "user[pass]=s3cret&card[cvc]=s3cret&a[key][]=s3cret&user.pin=s3cret&a[b]=1", "user[pass]=[masked]&card[cvc]=[masked]&a[key][]=[masked]&user.pin=[masked]&a[b]=1"},
		{"label that cannot be read", "/", "application/x-www-form-urlencoded; charset=a; charset=b", "token=s3cret", "token=[masked]"},
		{
			"JSON in multipart", "/", "multipart/form-data; boundary=B", "--B\r\nContent-Disposition: form-data; name=\"payload_json\"\r\n\r\n{\"token\":\"s3cret\"}\r\n--B--\r\n",
			"--B\r\nContent-Disposition: form-data; name=\"payload_json\"\r\n\r\n{\"token\": \"[masked]\"}\r\n--B--\r\n",
		},
		{
			"multipart with bare LF", "/", "multipart/form-data; boundary=B", "--B\nContent-Disposition: form-data; name=\"token\"\n\ns3cret\n--B--\n",
			"--B\nContent-Disposition: form-data; name=\"token\"\n\n[masked]\n--B--\n",
		},
		{"multipart of no boundary", "/", "multipart/form-data; boundary=----=_Part_1", "------=_Part_1\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\ns3cret\r\n------=_Part_1--\r\n", ""},
		{"multipart of another boundary", "/", "multipart/form-data; boundary=B", "--C\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\ns3cret\r\n--C--\r\n", ""},
		{"fragment of a redirect", "/", "text/plain\r\nLocation: https://app.test/cb#access_token=s3cret", "hello", ""},
		{"compressed", "/", "application/json\r\nContent-Encoding: gzip", "s3cret in gzip", ""},
	} {
		shown, all := sharedView(t, c.line, c.kind, c.body)
		if strings.Contains(all, "s3cret") {
			t.Errorf("%s: the secret is in %s", c.name, all)
		}
		if body := shown.Request.Body; c.want != "" && body.Data != c.want {
			t.Errorf("%s: body %q, want %q", c.name, body.Data, c.want)
		} else if c.want != "" && body.SHA256 != "" {
			t.Errorf("%s: the SHA-256 of a masked body is told", c.name)
		}
	}
}

// TestSharedViewMasksTheWholeEvent: a value that is secret in one place of an event is masked in all
// places.
func TestSharedViewMasksTheWholeEvent(t *testing.T) {
	t.Parallel()
	e := replayed(t)
	const secret = "k3ptSecret+/99"
	message := func(start, lines, body string) relay.Message {
		return relay.Message{
			Head: []byte(start + "Host: stripe-dev.example.com\r\n" + lines + "\r\n\r\n"),
			Body: relay.Body{Data: []byte(body), Size: int64(len(body)), Stored: int64(len(body)), State: relay.BodyComplete},
		}
	}
	packed := string(gzipped(t, `{"echo":"`+url.QueryEscape(secret)+`","n":1}`))
	e.Target = []byte("/hook/" + url.PathEscape(secret) + "?next=https%3A%2F%2Fsvc%3Ap4ssword9%40h%2F&x=1")
	e.Request = message("POST / HTTP/1.1\r\n", "x-functions-key: "+secret+"\r\nX-Echo: a "+secret, `{"n":1,"at":"stripe-dev.example.com","q":"p4ssword9"}`)
	e.Attempts = []relay.Attempt{{N: 1, HasResponse: true, Status: 200, Response: message("HTTP/1.1 200 OK\r\n", "Content-Encoding: gzip\r\nLocation: /x/"+url.PathEscape(secret), packed)}}
	shown := sharedOf(t, e, relay.Share{View: true}, true)
	text, err := json.Marshal(shown)
	must(t, err)
	for _, s := range []string{"k3pt", "p4ssword9", "stripe-dev"} {
		if strings.Contains(string(text), s) {
			t.Errorf("%s is in %s", s, text)
		}
	}
	if shown.Path != "/hook/[masked]?next=https%3A%2F%2F[masked]%40h%2F&x=1" || shown.Request.Body.Data != `{"n":1,"at":"[masked]","q":"[masked]"}` || shown.Response.Body.Data != `{"echo":"[masked]","n":1}` {
		t.Errorf("%s\n%+v\n%+v", shown.Path, shown.Request.Body, shown.Response.Body)
	}
}

// TestSharedViewSaysWhatIsLeftOut: a body of broken JSON is shown only up to its mistake, and marked as
// truncated. Other text that begins like JSON, such as [info], is shown whole and unchanged.
func TestSharedViewSaysWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	const part = "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n%s\r\n--B--\r\n"
	for name, c := range map[string]struct {
		kind, body string
		cut        bool
	}{
		"text":           {"text/plain", "[info] started", false},
		"broken JSON":    {"application/json", `{"a":1,"b":x}`, true},
		"in a form":      {"application/x-www-form-urlencoded", "a=[info] started&b=2", false},
		"in multipart":   {"multipart/form-data; boundary=B", fmt.Sprintf(part, "{x}"), false},
		"JSON":           {"application/json", `{"token":"s3cret","a":"[x"}`, false},
		"form":           {"application/x-www-form-urlencoded", `token=1&a={"b":1}`, false},
		"whole in parts": {"multipart/form-data; boundary=B", fmt.Sprintf(part, `{"token":"s3cret"}`), false},
	} {
		if shown, _ := sharedView(t, "/", c.kind, c.body); shown.Request.Body.Truncated != c.cut {
			t.Errorf("%s: %+v", name, shown.Request.Body)
		} else if !c.cut && !strings.Contains(c.body, "token") && shown.Request.Body.Data != c.body {
			t.Errorf("%s: %q", name, shown.Request.Body.Data)
		}
	}
}

// TestSharedViewKeepsTheRest: values that are not secret are shown unchanged.
func TestSharedViewKeepsTheRest(t *testing.T) {
	t.Parallel()
	const body = `{"amount": 1.50, "id": "in_1", "monkey": true}`
	shown, _ := sharedView(t, "/hook?x=1&y=%20#z", "application/json", body)
	if shown.Path != "/hook?x=1&y=%20#z" || shown.Request.Body.Data != body || shown.Request.Body.SHA256 == "" {
		t.Errorf("%s %+v", shown.Path, shown.Request.Body)
	}
}

func FuzzSharedViewMasks(f *testing.F) {
	f.Add(`{"token":"s3cret"}`)
	f.Add(`{"a":[{"b":{"password":{"c":"s3cret"}}}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		var v any
		if json.Unmarshal([]byte(body), &v) != nil {
			t.Skip()
		}
		e := replayed(t)
		e.Request.Body = relay.Body{Data: []byte(body), Size: int64(len(body)), Stored: int64(len(body)), State: relay.BodyComplete}
		shown := sharedOf(t, e, relay.Share{View: true}, true).Request.Body
		if shown.Encoding == record.EncodingUTF8 && strings.ContainsAny(strings.TrimSpace(body)+" ", "{[") && !json.Valid([]byte(strings.TrimPrefix(shown.Data, "\ufeff"))) {
			t.Errorf("%q is shown as %q, which is no JSON", body, shown.Data)
		}
	})
}
