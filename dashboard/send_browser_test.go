package dashboard_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"

	"relay/compose"
	"relay/signature"
)

// TestBrowserSendsByKeys goes from an event to a new one with a fresh signature, and to a changed one. A
// change after the preview leads to another preview.
func TestBrowserSendsByKeys(t *testing.T) {
	r := newResendFixture(t)
	b := newBrowser(t, r.fixture)
	b.expect(409)
	b.open("/events/" + r.id)
	b.until(`document.querySelector("#link").textContent === "live"`)
	value[any](b, `document.querySelector("#sign-again button").focus()`)
	b.key("\r")
	b.until(`location.pathname === "/aliases/hook/send" && document.readyState === "complete" && document.querySelector("#send-now")`)
	b.picture("send-preview")
	if text := value[string](b, `document.querySelector("#diff").innerText`); !strings.Contains(text, "Stripe-Signature") {
		t.Error(text)
	}
	value[any](b, `document.querySelector("#send-now").focus()`)
	b.key("\r")
	b.until(`location.pathname.startsWith("/events/evt_") && document.querySelector("#sent")?.textContent.includes("made from ` + r.id + `")`)
	b.until(`document.querySelector("#rows .sent")?.textContent === "sent by alice"`)
	<-r.raws

	b.open("/events/" + r.id)
	b.until(`document.querySelector("#link").textContent === "live"`)
	b.key("e")
	b.until(`document.readyState === "complete" && document.querySelector("#send-body")`)
	value[any](b, `document.querySelector("#send-body").focus()`)
	value[any](b, `document.querySelector("#send-body").value = document.querySelector("#send-body").value.replace("open", "paid")`)
	value[any](b, `document.querySelector("#send-path").focus()`)
	// The first Enter shows a preview.
	b.key("\r")
	b.until(`document.readyState === "complete" && document.querySelector("#diff")?.innerText.includes('"open" → "paid"')`)
	value[any](b, `(path => { path.value += "/more"; path.focus(); })(document.querySelector("#send-path"))`)
	// The form was changed, so Enter shows another preview and sends nothing.
	b.key("\r")
	b.until(`document.readyState === "complete" && document.querySelector("#preview-of [role=alert]")?.textContent.includes("Nothing was sent yet")`)
	if len(r.raws) > 0 {
		t.Error("something was sent that was not shown")
	}
	value[any](b, `setTimeout(() => { const b = document.querySelector("#send-now"); b.click(); b.click(); }); null`)
	b.until(`location.pathname.startsWith("/events/evt_") && document.querySelector("#sent")`)
	if raw := <-r.raws; !strings.HasPrefix(raw, "POST /stripe/more ") || !strings.Contains(raw, `"paid"`) || len(r.raws) > 0 {
		t.Errorf("%q, and %d more", raw, len(r.raws))
	}
}

// TestBrowserFromFailedToAccepted: without a stored secret, three clicks and one typed secret lead from a
// failed signature to an accepted new event.
func TestBrowserFromFailedToAccepted(t *testing.T) {
	r := &resendFixture{fixture: newFixture(t), raws: make(chan string, 20)}
	accepted := func(head, body []byte) bool {
		made, err := compose.Parse(append(append([]byte{}, head...), body...))
		if err != nil {
			return false
		}
		request := &signature.Request{Method: "POST", Body: made.Body, Line: made.Line}
		return signature.Explain(signature.Find("stripe", nil), []signature.Secret{{Value: sendSecret}}, nil, request, time.Now()).Verdict.Verdict == signature.Valid
	}
	r.answers(func(head, body []byte) string {
		if accepted(head, body) {
			return ok
		}
		return "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
	})
	r.online()
	r.id = r.send(post("/stripe", `{"id":"evt_1"}`, fmt.Sprintf("Stripe-Signature: t=%d,v1=%064d", time.Now().Add(-time.Hour).Unix(), 0))).String()
	b := newBrowser(t, r.fixture)
	b.expect(409)
	b.open("/events/" + r.id)
	b.until(`document.querySelector("#link").textContent === "live"`)
	clicks := 0
	click := func(selector, then string) {
		t.Helper()
		value[any](b, `setTimeout(() => document.querySelector("`+selector+`").click()); null`)
		clicks++
		b.until(then)
	}
	click("#sign-again button", `document.readyState === "complete" && document.querySelector("#send-sign")?.value === "given"`)
	value[any](b, `(s => { s.value = "`+sendSecret+`"; })(document.querySelector("#send-secret"))`)
	click("#preview", `document.readyState === "complete" && document.querySelector("#send-now")`)
	click("#send-now", `location.pathname.startsWith("/events/evt_") && document.querySelector("#sent")?.textContent.includes("signed with a secret that Relay does not store")`)
	b.until(`document.querySelector("main").innerText.includes("200")`)
	if clicks != 3 {
		t.Errorf("%d clicks", clicks)
	}
}

// TestBrowserSendsWithoutScript: without scripts, links and buttons lead from an event to a new one.
func TestBrowserSendsWithoutScript(t *testing.T) {
	r := newResendFixture(t)
	b := newBrowser(t, r.fixture)
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.open("/events/" + r.id)
	b.click("#edit-send")
	b.see("#preview")
	b.click("#preview")
	b.see("#send-now")
	b.click("#send-now")
	b.see("#sent")
	<-r.raws
}

// TestBrowserReadsPastedRequests: pasted cURL commands and HAR entries fill the form. A text that cannot be
// used completely is refused with a reason, and leaves the form unchanged.
func TestBrowserReadsPastedRequests(t *testing.T) {
	r := newResendFixture(t)
	b := newBrowser(t, r.fixture)
	b.open("/aliases/hook/send")
	value[any](b, `document.querySelector("#paste").open = true`)
	paste := func(text string) {
		value[any](b, fmt.Sprintf(`told.length = 0; document.querySelector("#pasted").value = %q; document.querySelector("#use-pasted").click()`, text))
	}
	filled := func() string {
		return value[string](b, `["method", "path", "headers", "body"].map(name => document.querySelector("#send-" + name).value).join("\n")`)
	}
	for text, want := range map[string]string{
		"curl -sS -X PUT 'https://api.example.com/a%20b?x=1#no' \\\n -H 'X-A: it'\\''s' -H \"Content-Type: text/plain\" -d $'a\\nb'": "PUT\n/a%20b?x=1\nHost: HOST\nX-A: it's\nContent-Type: text/plain\na\nb",
		`curl --json '{"a":1}' --url=http://h`:                                                             "POST\n/\nHost: HOST\nContent-Type: application/json\nAccept: application/json\n{\"a\":1}",
		"curl https://h/x?a -d b=1 -d c=2":                                                                 "POST\n/x?a\nHost: HOST\nContent-Type: application/x-www-form-urlencoded\nb=1&c=2",
		"curl https://h/x -d $'\\U0001F600\\101\\x42'":                                                     "POST\n/x\nHost: HOST\nContent-Type: application/x-www-form-urlencoded\n😀AB",
		`{"request":{"method":"POST","url":"https://h/x","postData":{"encoding":"base64","text":"aMOp"}}}`: "POST\n/x\nHost: HOST\nhé",
		"curl -G https://h/x -d b=1 -u a:b":                                                                "GET\n/x?b=1\nHost: HOST\nAuthorization: Basic YTpi\n",
		`{"log":{"entries":[{"request":{"method":"POST","url":"https://h/p","headers":[{"name":":path","value":"/p"},{"name":"content-length","value":"2"},{"name":"X-B","value":"1"}],"postData":{"text":"{}"}}}]}}`: "POST\n/p\nHost: HOST\nX-B: 1\n{}",
	} {
		paste(text)
		b.waitForAnnouncement("Filled in.")
		if got := regexp.MustCompile(`hook\.localhost:\d+`).ReplaceAllString(filled(), "HOST"); got != want {
			t.Errorf("%s\ngave %q, want\n%q", text, got, want)
		}
	}
	before := filled()
	for text, want := range map[string]string{
		"curl https://h -d @secret.json":                                                                "files that it names are not read",
		"curl https://h --data-urlencode n@secret.json":                                                 "files that it names are not read",
		`{"request":{"url":"/","postData":{"encoding":"base64","text":"/w=="}}}`:                        "its body is no text",
		`{"request":{"url":"/","postData":{"mimeType":"multipart/form-data","params":[{"name":"a"}]}}}`: "not the body",
		`curl "https://h/$TOKEN"`:                                                                       "variables in it are not read",
		"curl https://h --frobnicate":                                                                   "--frobnicate is not understood",
		"curl https://h; rm -rf /":                                                                      "more than one command",
		"curl 'https://h":                                                                               "a quote in it has no end",
		"wget https://h":                                                                                "neither with curl nor",
		`{"log":`:                                                                                       "it is no JSON",
		`{"log":{"entries":[]}}`:                                                                        "it has no request",
	} {
		paste(text)
		b.waitForAnnouncement(want)
	}
	if filled() != before {
		t.Error("what was refused has changed the form")
	}
}

// TestBrowserOpensTheFieldsOfASecret: if the user chooses to sign with a typed secret, the field for the
// secret is opened.
func TestBrowserOpensTheFieldsOfASecret(t *testing.T) {
	r := newFixture(t)
	b := newBrowser(t, r)
	b.open("/aliases/hook/send")
	b.until(`document.readyState === "complete" && document.querySelector("#send-sign") && !document.querySelector("#given").open`)
	value[any](b, `(s => { s.value = "given"; s.dispatchEvent(new Event("change", { bubbles: true })); })(document.querySelector("#send-sign"))`)
	b.until(`document.querySelector("#given").open`)
}
