package record_test

import (
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"strings"
	"testing"

	"relay"
	"relay/record"
)

// TestSharesHideASecretInEveryPlace: a share shows the secret value of a header line nowhere in the request
// or response, in whatever form and place the value is repeated.
func TestSharesHideASecretInEveryPlace(t *testing.T) {
	const s = "hunter2hunter2Zq9"
	t.Parallel()
	head := "POST / HTTP/1.1\r\nHost: a.example.com\r\nAuthorization: Bearer " + s + "\r\n"
	var wide []byte
	for _, c := range []byte(s) {
		wide = append(wide, c, 0)
	}
	gz := string(gzipped(t, `{"a":"`+s+`"}`))
	msg := func(start, lines, body string) relay.Message {
		return relay.Message{Head: []byte(start + lines + "\r\n"), Body: relay.Body{Data: []byte(body), Size: int64(len(body)), Stored: int64(len(body)), State: relay.BodyComplete}}
	}
	for name, c := range map[string][2]string{
		"json key":               {"Content-Type: application/json\r\n", `{"` + s + `":1,"x":{"a` + s + `b":[1]}}`},
		"nested key":             {"Content-Type: application/json\r\n", `{"m":"{\"` + s + `\":1}"}`},
		"unicode escapes":        {"Content-Type: application/json\r\n", `{"m":"\u0068unter2hunter2Zq9"}`},
		"multipart name":         {"Content-Type: multipart/form-data; boundary=b\r\n", "--b\r\nContent-Disposition: form-data; name=\"" + s + "\"; filename=\"" + s + ".txt\"\r\n\r\nx\r\n--b--\r\n"},
		"multipart name escaped": {"Content-Type: multipart/form-data; boundary=b\r\n", "--b\r\nContent-Disposition: form-data; name*=utf-8''" + strings.ReplaceAll(s, "h", "%68") + "\r\n\r\nx\r\n--b--\r\n"},
		"multipart base64 part":  {"Content-Type: multipart/form-data; boundary=b\r\n", "--b\r\nContent-Disposition: form-data; name=\"x\"\r\nContent-Transfer-Encoding: base64\r\n\r\n" + base64.StdEncoding.EncodeToString([]byte("it is "+s)) + "\r\n--b--\r\n"},
		"multipart qp part":      {"Content-Type: multipart/form-data; boundary=b\r\n", "--b\r\nContent-Disposition: form-data; name=\"x\"\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nhunter2=\r\nhunter2Zq9\r\n--b--\r\n"},
		"gzip":                   {"Content-Encoding: gzip\r\nContent-Type: application/json\r\n", gz},
		"gzip no label":          {"", gz},
		"utf16":                  {"Content-Type: text/plain; charset=utf-16le\r\n", string(wide)},
		"utf16 unlabelled":       {"", string(wide)},
		"hex":                    {"Content-Type: text/plain\r\n", "x " + hex.EncodeToString([]byte(s))},
		"base64 in url":          {"Content-Type: text/plain\r\n", url.QueryEscape(base64.StdEncoding.EncodeToString([]byte("ab" + s + "?")))},
		"split by newline":       {"Content-Type: text/plain\r\n", "hunter2hunt\ner2Zq9"},
		"form name":              {"Content-Type: application/x-www-form-urlencoded\r\n", s + "=1&a" + s + "&b=" + url.QueryEscape(s)},
		"xml attr":               {"Content-Type: text/xml\r\n", "<a b='" + s + "'><" + s + "/><!--" + s + "--><![CDATA[" + s + "]]></a>"},
		"xml entities":           {"Content-Type: text/xml\r\n", "<a>&#x68;unter2hunter2Zq9</a>"},
		"ndjson":                 {"Content-Type: application/x-ndjson\r\n", "{\"a\":\"" + s + "\"}\n" + s + "\n"},
		"sse":                    {"Content-Type: text/event-stream\r\n", "data: {\"a\":\"" + s + "\"}\n\n"},
		"broken json":            {"Content-Type: application/json\r\n", `{"a":1,` + s},
		"jwt":                    {"X-J: eyJhbGciOiJIUzI1NiJ9." + base64.RawURLEncoding.EncodeToString([]byte(`{"k":"`+s+`"}`)) + ".x\r\n", ""},
		"header name":            {"X-" + s + ": 1\r\n", ""},
		"content type":           {"Content-Type: multipart/form-data; boundary=" + s + "\r\n", "--" + s + "\r\n\r\nx\r\n--" + s + "--\r\n"},
		"cookie attr":            {"X-Back: session=" + s + "; Path=/\r\nLink: <https://u:" + s + "@h/>\r\n", ""},
		"binary":                 {"Content-Type: application/octet-stream\r\n", "\x00\x01\x02" + s + "\xff\xfe"},
		"png":                    {"Content-Type: image/png\r\n", "\x89PNG\r\n\x1a\n" + s + "\x00\xff"},
	} {
		for _, where := range []string{"request", "response"} {
			e := replayed(t)
			e.Host, e.Target = "a.example.com", []byte("/"+s+"?q="+s)
			e.Request = msg(head, "", "")
			resp := msg("HTTP/1.1 500 no "+s+"\r\n", "Location: https://x/"+s+"\r\nSet-Cookie: a="+s+"\r\n", "")
			if where == "request" {
				e.Request = msg(head, c[0], c[1])
			} else {
				resp = msg("HTTP/1.1 500 no "+s+"\r\n", "Location: https://x/"+s+"\r\nSet-Cookie: a="+s+"\r\n"+c[0], c[1])
			}
			e.Attempts = []relay.Attempt{{N: 1, HasResponse: true, Status: 500, Response: resp}}
			text := mustJSON(t, sharedOf(t, e, relay.Share{View: true}, true))
			for _, form := range []string{s, "hunter2Zq9", hex.EncodeToString([]byte(s)), "aHVudGVyMmh1bnRlcjJ", base64.StdEncoding.EncodeToString([]byte(gz))[:20]} {
				if at := strings.Index(strings.ToLower(text), strings.ToLower(form)); at >= 0 {
					t.Errorf("%s in the %s: …%s", name, where, text[max(0, at-80):min(len(text), at+60)])
				}
			}
		}
	}
}

// TestSharesHideTheSecretThatASenderRepeats: a share and a masked summary hide the secret that Microsoft Graph
// sends in the body, and the one that Event Grid sends in the query of the URL.
func TestSharesHideTheSecretThatASenderRepeats(t *testing.T) {
	const s = "hunter2hunter2Zq9"
	for name, c := range map[string][3]string{
		"graph":      {"/hook", "", `{"value":[{"subscriptionId":"1","changeType":"updated","clientState":"` + s + `"}]}`},
		"event-grid": {"/hook?k=" + s, "aeg-event-type: Notification\r\n", `[{"id":"1","note":"` + s + `"}]`},
	} {
		e := shareable(t, c[0], c[1], c[2])
		if e.Provider.Name != name {
			t.Errorf("%s is recognised as %q", name, e.Provider.Name)
		}
		if text := mustJSON(t, sharedOf(t, e, relay.Share{View: true}, true)); strings.Contains(text, s) {
			t.Errorf("%s: %s", name, text)
		}
		summary := record.Summarise(e, relay.Site{}, e.ReceivedAt)
		if record.MaskSummary(summary); strings.Contains(mustJSON(t, summary), s) {
			t.Errorf("%s: %s", name, mustJSON(t, summary))
		}
	}
}

// TestMaskedNamesAreNames: if a secret is also the name of a header line, the masked name is still a valid
// name.
func TestMaskedNamesAreNames(t *testing.T) {
	shared := sharedOf(t, shareable(t, "/", "x-odd-event-name: push\r\n", `{"password":"x-odd-event-name"}`), relay.Share{View: true}, true)
	if got := mustJSON(t, shared.Request.Headers); !strings.Contains(got, `["masked","push"]`) {
		t.Error(got)
	}
}

func shareable(t *testing.T, target, lines, data string) *relay.Event {
	t.Helper()
	e := replayed(t)
	e.Host, e.Target, e.Attempts = "a.example.com", []byte(target), nil
	e.Request = relay.Message{
		Head: []byte("POST " + target + " HTTP/1.1\r\nHost: a.example.com\r\nContent-Type: application/json\r\n" + lines + "\r\n"),
		Body: relay.Body{Data: []byte(data), Size: int64(len(data)), Stored: int64(len(data)), State: relay.BodyComplete},
	}
	e.Provider = record.Recognise(e.Request.Head, []byte(data))
	return e
}
