package api_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// hostilePage is a page that a tunnel may serve at a neighbouring host of the API: its script tries to read
// and change data of the API with the visitor's cookie, and records the results.
const hostilePage = `<!DOCTYPE html><title>evil</title><body><script>
const base = "BASE/api/v1", got = [];
const note = (what, text) => { if (text) got.push(what + ": " + text); };
const acts = [["POST", "/tokens", '{"name":"stolen"}'], ["POST", "/aliases", '{"name":"stolen"}'], ["PATCH", "/aliases/shop", '{"paused":true}'],
	["PUT", "/aliases/shop/members/bob", ""], ["POST", "/aliases/shop/transfer", '{"user":"bob"}'], ["POST", "/aliases/shop/replay-queued", ""],
	["POST", "/events/EVENT/replay", ""], ["POST", "/events/EVENT/shares", "{}"], ["DELETE", "/events/EVENT", ""], ["POST", "/users", '{"name":"stolen","admin":true}']];
const reads = ["/me", "/events", "/events/EVENT", "/events/EVENT/request.body", "/tokens", "/events/EVENT/export?format=json"];
async function run() {
	for (const path of reads) for (const mode of ["cors", "no-cors"])
		try { note("read " + mode + path, await (await fetch(base + path, {credentials: "include", mode})).text()); } catch {}
	for (const [method, path, body] of acts) {
		const all = {method, credentials: "include", body: body || undefined};
		try { note("act " + path, String((await fetch(base + path, {...all, headers: {"Content-Type": "application/json"}})).status)); } catch {}
		try { note("act plainly " + path, String((await fetch(base + path, {...all, headers: {"Content-Type": "text/plain"}})).status)); } catch {}
		try { await fetch(base + path, {...all, method: "POST", mode: "no-cors", headers: {"Content-Type": "text/plain"}}); } catch {}
		try { navigator.sendBeacon(base + path, new Blob([body], {type: "text/plain"})); } catch {}
		const frame = document.createElement("iframe");
		frame.name = "f" + path.replace(/\W/g, "");
		document.body.append(frame);
		const form = document.createElement("form");
		form.method = "post"; form.action = base + path; form.target = frame.name; form.enctype = "text/plain";
		const field = document.createElement("input");
		field.name = body.slice(0, -1) + (body ? ',"x":"' : ""); field.value = body ? '"}' : "";
		form.append(field); document.body.append(form); form.submit();
	}
	for (const path of ["/events/EVENT/export?format=js", "/events/EVENT/export?format=json", "/me", "/openapi.json"]) await new Promise(done => {
		const script = document.createElement("script");
		script.src = base + path;
		script.onload = () => { if (path !== "/openapi.json") note("script " + path, "loaded"); done(); };
		script.onerror = done;
		document.body.append(script);
	});
	await new Promise(done => {
		const source = new EventSource(base + "/stream", {withCredentials: true});
		source.onopen = () => { note("stream", "open"); source.close(); done(); };
		source.onerror = () => { source.close(); done(); };
	});
	window.got = got;
}
run().catch(e => { window.got = ["broke: " + e]; });
</script>`

// TestBrowserHostileNeighbour opens, with a logged-in browser, a page of an alias that attacks the API. The
// attack reads nothing and changes nothing.
func TestBrowserHostileNeighbour(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.deliver.feed = newFeed()
	close(h.deliver.feed.items)
	id := h.event("shop", nil).String()
	cookie := h.session("alice")
	visits := &lockedBuffer{}
	front := httptest.NewUnstartedServer(nil)
	_, port, err := net.SplitHostPort(front.Listener.Addr().String())
	must(t, err)
	base := "http://relay.test:" + port // relay.test and evil.relay.test are one site; two hosts under localhost are two sites
	front.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.Host, "evil."):
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, strings.NewReplacer("BASE", base, "EVENT", id).Replace(hostilePage))
		case r.URL.Path == "/":
			http.SetCookie(w, &http.Cookie{Name: "relay_session", Value: cookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode})
		default:
			if _, err := r.Cookie("relay_session"); err == nil {
				fmt.Fprintln(visits, r.Method)
			}
			h.handler.ServeHTTP(w, r)
		}
	})
	front.Start()
	t.Cleanup(func() { front.CloseClientConnections(); front.Close() })
	before := h.resources(id)
	if got := loadPages(t, base+"/", "http://evil.relay.test:"+port+"/"); len(got) > 0 {
		t.Errorf("the neighbour got something:\n%.3000s", strings.Join(got, "\n"))
	}
	if after := h.resources(id); after != before {
		t.Errorf("something changed:\n%s\n%s", before, after)
	}
	// Some of the requests carried the cookie; otherwise the test would prove nothing.
	if seen := visits.String(); !strings.Contains(seen, "GET") || !strings.Contains(seen, "POST") {
		t.Errorf("no request carried the cookie: %q", seen)
	}
}

// loadPages opens pages in a new Chromium and returns the result of the last one. A browser that does
// not start, dies, or loses its network says nothing about the API, so it gets three tries.
func loadPages(t *testing.T, pages ...string) []string {
	t.Helper()
	for try := 1; ; try++ {
		got, err := tryLoadPages(t, pages)
		if err == nil {
			return got
		}
		if try == 3 {
			t.Fatal(err)
		}
		t.Logf("try %d: %v", try, err)
	}
}

func tryLoadPages(t *testing.T, pages []string) (got []string, err error) {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("chromium is not installed; `make setup` does that")
	}
	// The path must be short: Chromium creates a socket in the directory, and a socket address has at most
	// 107 bytes.
	dir, err := os.MkdirTemp("", "relay-api-")
	must(t, err)
	defer func() { // child processes of the browser may still write for a moment
		for end := time.Now().Add(10 * time.Second); os.RemoveAll(dir) != nil && time.Now().Before(end); {
			<-time.After(20 * time.Millisecond)
		}
	}()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("host-resolver-rules", "MAP *.test 127.0.0.1"),
		chromedp.WSURLReadTimeout(time.Minute), chromedp.UserDataDir(filepath.Join(dir, "profile")), chromedp.Env("TMPDIR="+dir))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	defer cancel()
	ctx, cancel = chromedp.NewContext(ctx)
	defer cancel()
	for _, page := range pages {
		if _, err := chromedp.Run(ctx, chromedp.Navigate(page)); err != nil {
			return nil, err
		}
	}
	for there := false; !there; <-time.After(20 * time.Millisecond) {
		if there, err = chromedp.Run(ctx, chromedp.Evaluate[bool]("!!window.got")); err != nil {
			return nil, err
		}
	}
	return chromedp.Run(ctx, chromedp.Evaluate[[]string]("window.got"))
}

// resources describes the objects that an attack might change.
func (h *fixture) resources(id string) string {
	h.t.Helper()
	var b strings.Builder
	for _, path := range []string{"tokens", "aliases", "aliases/shop/members", "events/" + id + "/shares", "events/" + id, "users"} {
		for line := range strings.SplitSeq(h.get(h.asAlice, "/api/v1/"+path).want(200).body, ",") {
			if !strings.Contains(line, "lastUsedAt") {
				b.WriteString(line + ",")
			}
		}
	}
	fmt.Fprint(&b, h.deliver.calls())
	return b.String()
}
