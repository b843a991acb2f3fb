package dashboard_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"relay"
	"relay/api"
	"relay/dashboard"
)

// hostile is a page that the owner of another alias may serve. It tries to read and change the dashboard with
// the session of its visitor, and stores the results in got. The test replaces BASE, EVENT and TOSSED by an
// address, an event id and a session.
const hostile = `<!DOCTYPE html><title>evil</title><body><script>
const base = "BASE", got = [];
const note = (what, text) => { if (text) got.push(what + ": " + text); };
async function run() {
	for (const path of ["/", "/account", "/events/EVENT", "/api/v1/events/EVENT/export?format=json"]) {
		try { note("read " + path, (await (await fetch(base + path, {credentials: "include"})).text()).slice(0, 80)); } catch {}
		try { note("read opaque " + path, await (await fetch(base + path, {credentials: "include", mode: "no-cors"})).text()); } catch {}
	}
	const acts = [["/events/EVENT/replay", ""], ["/aliases/hook/settings", "paused=on"], ["/aliases/hook/settings/remove", "confirm=hook"], ["/aliases", "name=stolen"],
		["/aliases/hook/settings/members", "user=mallory"], ["/account/tokens", "name=x&scopes=account"], ["/logout", ""], ["/events/EVENT/shares", "expires="], ["/link/k3yl1nk", "code=WXYZ-2345"]];
	for (const [path, body] of acts) {
		try { await fetch(base + path, {method: "POST", body, credentials: "include", mode: "no-cors", headers: {"Content-Type": "application/x-www-form-urlencoded"}}); } catch {}
		try { const r = await fetch(base + path, {method: "POST", body, credentials: "include", headers: {"X-Regions": "detail", "Content-Type": "application/x-www-form-urlencoded"}}); note("post " + path, String(r.status)); } catch {}
		try { navigator.sendBeacon(base + path, new URLSearchParams(body)); } catch {}
		const frame = document.createElement("iframe");
		frame.name = "f" + path.replace(/\W/g, "");
		document.body.append(frame);
		const form = document.createElement("form");
		form.method = "post"; form.action = base + path; form.target = frame.name;
		for (const [name, value] of new URLSearchParams(body)) { const i = document.createElement("input"); i.name = name; i.value = value; form.append(i); }
		document.body.append(form);
		form.submit();
	}
	await new Promise(done => {
		const frame = document.createElement("iframe");
		frame.src = base + "/account";
		frame.onload = () => { try { note("frame", frame.contentDocument.body.innerText.includes("alice") && "alice"); } catch {} done(); };
		document.body.append(frame);
	});
	for (const path of ["/api/v1/events/EVENT/export?format=json", "/api/v1/events/EVENT/export?format=curl", "/aliases/hook"]) await new Promise(done => {
		const script = document.createElement("script");
		script.src = base + path;
		script.onload = () => { note("script " + path, "loaded"); done(); };
		script.onerror = done;
		document.body.append(script);
	});
	try {
		const source = new EventSource(base + "/aliases/hook/live", {withCredentials: true});
		await new Promise(done => { source.onopen = () => { note("live", "open"); done(); }; source.onerror = done; });
		source.close();
	} catch {}
	note("cookie read", document.cookie.includes("relay_session=") && document.cookie);
	for (const more of ["; Domain=relay.test; Path=/", "; Domain=relay.test; Path=/account", "; Domain=.relay.test; Path=/aliases", "; Path=/"]) document.cookie = "relay_session=TOSSED" + more;
	for (const more of ["; Domain=relay.test; Path=/", "; Path=/"]) document.cookie = "__Host-relay_session=TOSSED; Secure" + more;
	window.tossed = document.cookie;
	const w = window.open(base + "/account");
	window.opened = w;
	window.got = got;
}
run().catch(e => { window.got = ["broke: " + e]; });
</script>`

// TestBrowserHostileNeighbour opens the page hostile in a logged-in browser. The page reads nothing and
// changes nothing.
func TestBrowserHostileNeighbour(t *testing.T) {
	r := newFixture(t)
	r.online()
	id := r.send(post("/hook", "{}")).String()
	ctx, sys := t.Context(), relay.System()
	_, err := r.s.CreateAccount(ctx, sys, "mallory", false)
	must(t, err)
	mallory, err := r.s.CreateLoginLink(ctx, sys, "mallory", 0)
	must(t, err)
	tossed, _, err := r.s.UseLoginLink(ctx, mallory, "", "")
	must(t, err)

	// The dashboard and the alias have names in relay.test, because the browser must take them for one site. It
	// takes names below localhost for different sites.
	srv := httptest.NewUnstartedServer(nil)
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	must(t, err)
	base := "http://relay.test:" + port
	u, _ := url.Parse(base)
	w := &fakeEnrolments{}
	pages := dashboard.New(dashboard.Options{
		Accounts: r.s, Events: r.s, Deliver: r.d, Limits: api.NewLimits(api.Rate{}, api.Rate{}), Enrolments: w,
		Site: relay.Site{Base: *u, AliasDomain: "relay.test", SSHAddr: "localhost:2222", Loopback: true},
	})
	// This counts the requests to the dashboard that have two session cookies: the real one, and the one that
	// the hostile page has set for the common domain (tossed).
	var twice atomic.Int64
	srv.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		if !strings.HasPrefix(req.Host, "evil.") {
			if len(req.CookiesNamed("relay_session")) > 1 {
				twice.Add(1)
			}
			pages.ServeHTTP(rw, req)
			return
		}
		rw.Header().Set("Content-Type", "text/html")
		rw.Header().Add("Set-Cookie", "relay_session="+tossed+"; Domain=relay.test; Path=/")
		_, _ = io.WriteString(rw, strings.NewReplacer("BASE", base, "EVENT", id, "TOSSED", tossed).Replace(hostile))
	})
	srv.Start()
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	r.base = base

	b := newBrowser(t, r)
	before := r.state(id)
	do(b, chromedp.Navigate("http://evil.relay.test:"+port+"/"))
	b.until(`window.got`)
	if got := value[[]string](b, `got`); len(got) > 0 {
		t.Errorf("the neighbour got something:\n%s", strings.Join(got, "\n"))
	}
	b.until(`(() => { try { return !opened || opened.closed || !opened.document; } catch { return true; } })()`)
	if after := r.state(id); after != before {
		t.Errorf("something changed:\n%s\n%s", before, after)
	}
	if w.gone || w.wrong > 0 {
		t.Error("a key was let in, or a code was tried")
	}
	if got := value[string](b, `tossed`); !strings.Contains(got, "relay_session="+tossed) || twice.Load() == 0 {
		t.Errorf("the browser did not take the tossed cookies (%q), or sent them %d times: the test shows nothing", got, twice.Load())
	}
	// The first request with the sessions of two accounts counts as logged out: it gets 401, and the tossed
	// cookie is removed.
	b.expect(401)
	b.open("/account")
	// Until the browser leaves the page, its console adds errors about refused requests. They are therefore
	// removed only now.
	b.forget()
	b.open("/account")
	if who := value[string](b, `document.querySelector("[popovertarget=me]")?.textContent || "nobody"`); who != "alice" {
		t.Errorf("alice is now %s", who)
	}
}

// state describes the data that an attack might change: numbers of attempts, members, tokens, shares and
// aliases, and the pause of the alias.
func (r *fixture) state(id string) string {
	r.t.Helper()
	ctx, sys := context.Background(), relay.System()
	var b strings.Builder
	who, err := r.s.SessionOwner(ctx, r.session)
	must(r.t, err)
	event, err := relay.ParseID(id)
	must(r.t, err)
	e, err := r.s.Event(ctx, sys, event, 0)
	must(r.t, err)
	a, err := r.s.Alias(ctx, who, "hook")
	must(r.t, err)
	members, err := r.s.Members(ctx, who, "hook")
	must(r.t, err)
	tokens, err := r.s.Tokens(ctx, who, "alice")
	must(r.t, err)
	shares, err := r.s.Shares(ctx, who, event)
	must(r.t, err)
	aliases, err := r.s.Aliases(ctx, who)
	must(r.t, err)
	for _, n := range []int{len(e.Attempts), len(members), len(tokens), len(shares), len(aliases)} {
		b.WriteString(strings.Repeat("|", n) + ".")
	}
	if a.Settings.Paused {
		b.WriteString("paused")
	}
	return b.String()
}
