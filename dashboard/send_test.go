package dashboard_test

import (
	"bytes"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"relay"
	"relay/compose"
	"relay/signature"
)

const sendSecret = "whsec_dGhlIHNlY3JldCBvZiBhIHNlbmRlcg=="

// resendFixture has a Stripe event from an hour ago, and a secret of its alias with which new events may be
// signed. raws receives each request that the local server got.
type resendFixture struct {
	*fixture
	id   string
	raws chan string
}

func newResendFixture(t *testing.T) *resendFixture {
	t.Helper()
	r := &resendFixture{fixture: newFixture(t), raws: make(chan string, 20)}
	r.answers(func(head, body []byte) string {
		r.raws <- string(head) + string(body)
		return ok
	})
	r.online()
	old := time.Now().Add(-time.Hour).Unix()
	r.id = r.send(post("/stripe", `{"id":"evt_1","type":"invoice.paid","data":{"object":{"status":"open"}}}`, fmt.Sprintf("Stripe-Signature: t=%d,v1=00", old), "X-Odd: caf\xe9")).String()
	<-r.raws
	r.submit("/aliases/hook/settings/secrets", url.Values{"provider": {"stripe"}, "secret": {sendSecret}, "sign": {"on"}}, 200)
	return r
}

var formField = regexp.MustCompile(`(?s)<(?:input [^>]*?name="(\w+)"[^>]*?value="([^"]*)"|textarea [^>]*?name="(\w+)"[^>]*>\n?(.*?)</textarea>|button [^>]*name="once" value="([^"]*)")`)

// formOf returns the fields of the form of a new event, as a browser posts them; once is the value of
// OnceField.
func formOf(t *testing.T, page string) (form url.Values, once string) {
	t.Helper()
	_, page, found := strings.Cut(page, `id="send"`)
	if !found {
		t.Fatalf("no form: %.300s", page)
	}
	form = url.Values{}
	for _, m := range formField.FindAllStringSubmatch(page, -1) {
		switch {
		case m[5] != "":
			once = m[5]
		case m[3] != "":
			form.Set(m[3], strings.ReplaceAll(strings.ReplaceAll(html.UnescapeString(m[4]), "\r\n", "\n"), "\n", "\r\n"))
		case m[1] != "newId":
			form.Set(m[1], html.UnescapeString(m[2]))
		}
	}
	if m := regexp.MustCompile(`<option value="([^"]*)" selected`).FindStringSubmatch(page); m != nil {
		form.Set("sign", m[1])
	}
	return form, once
}

// TestSendAgainFreshlySigned: for an event whose signature has expired, a form shows a preview with the
// differences. Sending it, also twice, makes one new event with a valid signature, and leaves the original
// unchanged.
func TestSendAgainFreshlySigned(t *testing.T) {
	t.Parallel()
	r := newResendFixture(t)
	before := r.get("/api/v1/events/"+r.id+"/request.raw", 200)
	inspector := r.get("/events/"+r.id, 200)
	contains(t, "inspector", inspector, "Send again, freshly signed…", "Edit and send…", "A new event:", `form="sign-again"`, "Expired: a replay")

	preview := r.submit("/aliases/hook/send", url.Values{"from": {r.id}, "sign": {"auto"}}, 200)
	contains(t, "preview", preview, "What differs: 1 change", "<code>Stripe-Signature</code>", "as it came", "the new event", "signed by sec_", "Send now", "This makes a new event, signed now.")
	if len(r.raws) > 0 {
		t.Fatal("a preview was sent")
	}
	form, once := formOf(t, preview)
	form.Set("once", once)
	page := r.submit("/aliases/hook/send", form, 200)
	contains(t, "new event", page, "sent by alice", "made from ", `href="/events/`+r.id+`"`, "changed: header:stripe-signature", "signed by sec_")
	raw := <-r.raws
	made, err := compose.Parse([]byte(raw))
	must(t, err)
	request := &signature.Request{Method: "POST", Body: made.Body, Line: made.Line}
	if v := signature.Explain(signature.Find("stripe", nil), []signature.Secret{{Value: sendSecret}}, nil, request, time.Now()).Verdict; v.Verdict != signature.Valid {
		t.Errorf("%+v of %q", v, raw)
	}
	line := regexp.MustCompile(`Stripe-Signature: [^\r]*`)
	if line.ReplaceAllString(raw, "") != line.ReplaceAllString(before, "") || raw == before {
		t.Errorf("sent\n%q from\n%q", raw, before)
	}
	if again := r.submit("/aliases/hook/send", form, 200); again != page && !strings.Contains(again, "sent by alice") || len(r.raws) > 0 {
		t.Errorf("the same form was sent twice: %d", len(r.raws))
	}
	if r.get("/api/v1/events/"+r.id+"/request.raw", 200) != before {
		t.Error("the original has changed")
	}
	list := r.get("/aliases/hook", 200)
	contains(t, "list", list, `<span class="label sent">sent by alice</span>`, "made from "+r.id)
	if strings.Count(list, "data-delivery") > 1 {
		t.Error("a new event counts as a retry of the sender")
	}
}

// TestSendByAGivenSecret: a typed secret signs the event, with a typed definition of the scheme if needed, and
// is not stored. A typed secret is refused if another way to sign is chosen.
func TestSendByAGivenSecret(t *testing.T) {
	t.Parallel()
	r := newResendFixture(t)
	other := r.send(post("/shop", `{}`, "X-Shop: 00")).String()
	<-r.raws
	for from, c := range map[string]struct{ custom, line string }{
		r.id:  {"", "\r\nStripe-Signature: t="},
		other: {`{"header":"X-Shop","template":"{body}"}`, "\r\nX-Shop: "},
	} {
		form := url.Values{"from": {from}, "sign": {"given"}, "secret": {"a given secret"}, "custom": {c.custom}}
		page := r.submit("/aliases/hook/send", form, 200)
		contains(t, "preview", page, "signed with a secret that Relay does not store", "Send now")
		shown, once := formOf(t, page)
		shown.Set("once", once)
		if shown.Get("secret") != "a given secret" || shown.Get("sign") != "given" {
			t.Errorf("the form has lost the secret: %v", shown)
		}
		if page = r.submit("/aliases/hook/send", shown, 200); strings.Contains(page, "a given secret") {
			t.Error("the page of the event has the secret")
		}
		contains(t, "new event", page, "sent by alice", "signed with a secret that Relay does not store")
		if raw := <-r.raws; !strings.Contains(raw, c.line) || strings.Contains(raw, c.line+"00") {
			t.Errorf("%q", raw)
		}
	}
	list, err := r.s.Secrets(t.Context(), relay.System(), "hook")
	if err != nil || len(list) != 1 {
		t.Errorf("secrets %+v, %v", list, err)
	}
	contains(t, "none", r.submit("/aliases/hook/send", url.Values{"from": {r.id}, "sign": {"given"}}, 422), "Enter the secret that signs")
	for _, sign := range []string{"none", "auto"} {
		for field, typed := range map[string]string{"secret": "a typed secret", "custom": `{"header":"X-Shop","template":"{body}"}`} {
			page := r.submit("/aliases/hook/send", url.Values{"from": {r.id}, "sign": {sign}, field: {typed}}, 422)
			contains(t, "typed, not chosen", page, "It is not used: choose the signature by a secret that you enter", `<details open id="given">`)
		}
	}
	if len(r.raws) > 0 {
		t.Error("sent although a typed secret was not used")
	}
	contains(t, "no definition", r.submit("/aliases/hook/send", url.Values{"from": {other}, "sign": {"given"}, "secret": {"x"}}, 409), "give a definition")
}

// TestEditAndSend: the preview names the changes, and a change after the preview leads to another preview.
// The new event differs from the original in the changes only.
func TestEditAndSend(t *testing.T) {
	t.Parallel()
	r := newResendFixture(t)
	form, _ := formOf(t, r.get("/aliases/hook/send?from="+r.id, 200))
	if form.Get("sign") != "auto" || form.Get("method") != "POST" || form.Get("path") != "/stripe" || !strings.Contains(form.Get("body"), `"open"`) || strings.Contains(form.Get("headers"), "Content-Length") {
		t.Errorf("%v", form)
	}
	form.Set("sign", "none")
	contains(t, "unchanged", r.submit("/aliases/hook/send", form, 200), "nothing but the time")
	form.Set("body", strings.Replace(form.Get("body"), "open", "paid", 1))
	form.Set("headers", form.Get("headers")+"X-New: 1\r\n")
	page := r.submit("/aliases/hook/send", form, 200)
	contains(t, "preview", page, "2 changes", "data.object.status", "<code>X-New</code>", "not signed anew")
	shown, once := formOf(t, page)
	shown.Set("once", once)
	shown.Set("path", "/other")
	page = r.submit("/aliases/hook/send", shown, 409)
	contains(t, "changed", page, "Something was changed after the preview", "/other")
	if len(r.raws) > 0 {
		t.Fatal("something was sent that was not shown")
	}
	shown, once = formOf(t, page)
	shown.Set("once", once)
	r.submit("/aliases/hook/send", shown, 200)
	want := strings.NewReplacer("POST /stripe", "POST /other", `"open"`, `"paid"`).Replace(r.get("/api/v1/events/"+r.id+"/request.raw", 200))
	want = strings.Replace(want, "\r\n\r\n", "\r\nX-New: 1\r\n\r\n", 1)
	if raw := <-r.raws; raw != want {
		t.Errorf("sent\n%q, want\n%q", raw, want)
	}
}

func TestSendFromSampleAndNothing(t *testing.T) {
	t.Parallel()
	r := newResendFixture(t)
	send := func(form url.Values) string {
		t.Helper()
		shown, once := formOf(t, r.submit("/aliases/hook/send", form, 200))
		shown.Set("once", once)
		r.submit("/aliases/hook/send", shown, 200)
		return <-r.raws
	}
	form, _ := formOf(t, r.get("/aliases/hook/send?sample=stripe/invoice.paid", 200))
	if form.Get("sign") != "auto" {
		t.Errorf("%v", form)
	}
	if raw := send(form); !strings.Contains(raw, "Stripe-Signature: t=") || !strings.Contains(raw, `"type":"invoice.paid"`) {
		t.Errorf("%q", raw)
	}
	form, _ = formOf(t, r.get("/aliases/hook/send?sample=last:invoice.paid", 200))
	if !strings.HasPrefix(form.Get("from"), "evt_") || form.Get("sample") != "" {
		t.Errorf("%v", form)
	}
	page := r.get("/aliases/hook/send", 200)
	contains(t, "empty form", page, "stripe/invoice.paid", "last:invoice.paid")
	form, _ = formOf(t, page)
	form.Set("path", "/a?b=1")
	form.Set("body", "{}")
	if raw := send(form); !strings.HasPrefix(raw, "POST /a?b=1 HTTP/1.1\r\nHost: hook.localhost") || !strings.HasSuffix(raw, "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}") {
		t.Errorf("%q", raw)
	}
}

// TestSendRefusals checks the status and the message of each error of the form. A refused form sends and stores
// nothing.
func TestSendRefusals(t *testing.T) {
	t.Parallel()
	r := newResendFixture(t)
	other := r.send(post("/plain", `{}`, "X-GitHub-Event: push", "X-Hub-Signature-256: sha256=00")).String()
	<-r.raws
	gone := r.send("POST /gz HTTP/1.1\r\nHost: hook.localhost\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b").String()
	<-r.raws
	if page := r.get("/aliases/hook/send?from="+gone, 200); !strings.Contains(page, "The body has a content coding.") || strings.Contains(page, `name="body"`) {
		t.Error("a body that is no text can be edited")
	}
	for name, c := range map[string]struct {
		form   url.Values
		status int
		text   string
	}{
		"no secret":    {url.Values{"from": {other}, "sign": {"auto"}}, 409, "no secret"},
		"bad header":   {url.Values{"from": {r.id}, "headers": {"Host"}}, 422, "line 1 is not as expected"},
		"framing":      {url.Values{"from": {r.id}, "headers": {"Content-Length: 5"}}, 422, "follows from the body"},
		"bad path":     {url.Values{"from": {r.id}, "path": {"nothing here"}}, 422, "begins with /"},
		"bad method":   {url.Values{"from": {r.id}, "method": {"GE T"}}, 422, "send-method-wrong"},
		"bad id":       {url.Values{"from": {"evt_1"}}, 404, "Not found"},
		"bad sample":   {url.Values{"sample": {"nobody/nothing"}}, 422, "no such sample"},
		"unknown sign": {url.Values{"from": {r.id}, "sign": {"sec_none"}}, 422, "not there any more"},
		"no such id":   {url.Values{"from": {other}, "newId": {"on"}}, 422, "send-newId-wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			if page := r.submit("/aliases/hook/send", c.form, c.status); !strings.Contains(strings.ToLower(page), strings.ToLower(c.text)) {
				t.Errorf("%s", page[strings.Index(page, "<main"):])
			}
		})
	}
	r.offline()
	form, once := formOf(t, r.submit("/aliases/hook/send", url.Values{"from": {r.id}}, 200))
	form.Set("once", once)
	contains(t, "offline", r.submit("/aliases/hook/send", form, 409), "a new event is never queued")
	if len(r.raws) > 0 {
		t.Error("something was sent")
	}
	page, err := r.s.Events(t.Context(), relay.System(), relay.Filter{Alias: "hook", Origin: relay.OriginSend, Limit: 1})
	must(t, err)
	if len(page.Events) > 0 {
		t.Error("a refused event was stored")
	}
}

// TestSendAsMember: a member may send an event, and reads that only the owner can add a secret. Other
// accounts get 404.
func TestSendAsMember(t *testing.T) {
	t.Parallel()
	r := newResendFixture(t)
	for _, name := range []string{"bob", "eve"} {
		_, err := r.s.CreateAccount(t.Context(), relay.System(), name, false)
		must(t, err)
	}
	r.submit("/aliases/hook/settings/members", url.Values{"user": {"bob"}}, 200)
	hub := r.send(post("/plain", `{}`, "X-GitHub-Event: push", "X-Hub-Signature-256: sha256=00")).String()
	<-r.raws
	r.login("bob")
	contains(t, "member", r.get("/aliases/hook/send?from="+hub, 200), "No secret of GitHub may sign", "Only alice, the owner of the alias, can add one.")
	form, once := formOf(t, r.submit("/aliases/hook/send", url.Values{"from": {r.id}, "sign": {"auto"}}, 200))
	form.Set("once", once)
	contains(t, "sent", r.submit("/aliases/hook/send", form, 200), "sent by bob")
	<-r.raws
	r.login("eve")
	r.get("/aliases/hook/send?from="+r.id, 404)
	r.submit("/aliases/hook/send", url.Values{"from": {r.id}}, 404)
}

// TestSharedNewEvent: the page of a share says that its event was made with Relay, but not by whom or from
// which event.
func TestSharedNewEvent(t *testing.T) {
	t.Parallel()
	r := newResendFixture(t)
	form, once := formOf(t, r.submit("/aliases/hook/send", url.Values{"from": {r.id}, "sign": {"auto"}}, 200))
	form.Set("once", once)
	page := r.submit("/aliases/hook/send", form, 200)
	made := regexp.MustCompile(`<article id="event" data-event-id="(evt_\w+)"`).FindStringSubmatch(page)[1]
	contains(t, "preview", r.get("/events/"+made+"/share?expires=7d", 200), "made and sent here")
	page = r.submit("/events/"+made+"/shares", url.Values{"expires": {"7d"}}, 200)
	shared := r.get(regexp.MustCompile(`/s/[A-Za-z0-9_-]+`).FindString(page), 200)
	contains(t, "share", shared, "made and sent here")
	if strings.Contains(shared, "alice") || strings.Contains(shared, r.id) || bytes.Contains([]byte(shared), []byte("sec_")) {
		t.Error("a share tells who sent the event")
	}
}

// TestSendTwice: of three equal forms that are sent at the same time, only one sends an event.
func TestSendTwice(t *testing.T) {
	t.Parallel()
	r := newResendFixture(t)
	form, once := formOf(t, r.submit("/aliases/hook/send", url.Values{"from": {r.id}, "sign": {"auto"}}, 200))
	form.Set("once", once)
	var ended atomic.Int32
	for range 3 {
		go func() {
			defer ended.Add(1)
			res, err := r.client.PostForm(r.base+"/aliases/hook/send", form)
			if err == nil {
				_ = res.Body.Close()
			}
		}()
	}
	r.await("all three answers", func() bool { return ended.Load() == 3 })
	if n := len(r.raws); n != 1 {
		t.Errorf("sent %d times", n)
	}
}
