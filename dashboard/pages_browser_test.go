package dashboard_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"relay/server"
)

// TestBrowserEveryPage calls inspect for each page on a narrow screen, with a dark theme and reduced motion.
// The console has no unexpected errors.
func TestBrowserEveryPage(t *testing.T) {
	g := newAllPages(t)
	b := newBrowser(t, g.fixture)
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 390, Height: 800, DeviceScaleFactor: 1, Mobile: true})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-reduced-motion", Value: "reduce"}, {Name: "prefers-color-scheme", Value: "dark"},
	}})
	own, admin := g.pages()
	for _, path := range own {
		b.inspect(path)
	}
	g.login("root")
	b.signIn()
	for _, path := range admin {
		b.inspect(path)
	}
	b.expect(404, 422)
}

// inspect opens a page and checks its width, labels, ids, motion, theme and headings, and that the focus is
// visible.
func (b *browser) inspect(path string) {
	b.t.Helper()
	b.open(path)
	b.until(`document.readyState === "complete"`)
	if wide := value[int](b, `document.documentElement.scrollWidth`); wide > 390 {
		b.t.Errorf("%s is %d px wide", path, wide)
	}
	for what, find := range map[string]string{
		"no label on": `[...document.querySelectorAll("main input:not([type=hidden]), main select, main textarea")].filter(e => !e.labels.length && !e.ariaLabel).map(e => e.name).join()`,
		"ids twice:":  `[...document.querySelectorAll("[id]")].map(e => e.id).filter((id, i, all) => all.indexOf(id) !== i).join()`,
		"moves:":      `document.getAnimations().map(a => a.effect.target.outerHTML.slice(0, 80)).join()`,
		"light:":      `getComputedStyle(document.body).backgroundColor === "rgb(15, 17, 21)" ? "" : getComputedStyle(document.body).backgroundColor`,
		"headings:":   `document.querySelectorAll("h1").length === 1 ? "" : String(document.querySelectorAll("h1").length)`,
	} {
		if found := value[string](b, find); found != "" {
			b.t.Errorf("%s: %s %s", path, what, found)
		}
	}
	b.key("\t")
	b.key("\t")
	if !value[bool](b, `(e => e !== document.body && (getComputedStyle(e).outlineStyle !== "none" || getComputedStyle(e.closest("tr") || e).outlineStyle !== "none"))(document.activeElement)`) {
		b.t.Errorf("%s: the focus is not seen on %s", path, value[string](b, `document.activeElement.outerHTML.slice(0, 120)`))
	}
}

// TestPagesStayLight: at the first visit of an alias with a hundred events, the page and all its assets have
// at most 40 KiB. The page and the assets for the first paint have at most 28 KiB.
func TestPagesStayLight(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	for i := range 105 {
		r.answers(func([]byte, []byte) string { return ok })
		if i%9 == 0 {
			r.answers(func([]byte, []byte) string {
				return httpAnswer("500 Internal Server Error", fmt.Sprintf(`{"error":"orders: no customer cus_%x, line %d"}`, i*i*7919, 100+i))
			})
		}
		switch i % 5 {
		case 0, 1, 2:
			r.send(stripe([]string{"charge.succeeded", "invoice.paid", "customer.subscription.updated", "payment_intent.succeeded", "checkout.session.completed"}[i%7%5], i))
		case 3:
			r.send(forge([]string{"push", "pull_request", "check_run"}[i%3], "opened"))
		default:
			r.send(fmt.Sprintf("GET /health?probe=%d HTTP/1.1\r\nHost: hook.localhost\r\nUser-Agent: curl/8.5.0\r\n\r\n", i))
		}
	}
	page := r.get("/aliases/hook", 200)
	if n := strings.Count(page, "data-event-id="); n != 100 {
		t.Fatalf("%d rows", n)
	}
	site := httptest.NewServer(server.Compress(r.handler))
	defer site.Close()
	// sent returns the number of bytes of a response, including its head.
	sent := func(path string) (n int) {
		req, err := http.NewRequest("GET", site.URL+path, nil)
		must(t, err)
		req.Header.Set("Accept-Encoding", "gzip, deflate, br, zstd")
		req.Header.Set("Cookie", "relay_session="+r.session)
		res, err := site.Client().Do(req)
		must(t, err)
		defer res.Body.Close()
		whole, err := httputil.DumpResponse(res, true)
		must(t, err)
		if res.StatusCode != 200 {
			t.Fatalf("%s = %d", path, res.StatusCode)
		}
		return len(whole)
	}
	html := sent("/aliases/hook")
	paint, total := html, html
	for _, name := range regexp.MustCompile(`/assets/\w+\.(js|css|svg)`).FindAllString(page, -1) {
		n := sent(name)
		if total += n; name == "/assets/style.css" || name == "/assets/page.js" {
			// The first paint does not need the other scripts.
			paint += n
		}
		t.Logf("%s: %d bytes", name, n)
	}
	t.Logf("page %d; sent: the page %d, the first paint %d, all %d bytes", len(page), html, paint, total)
	if paint > 28<<10 || total > 40<<10 {
		t.Errorf("the page weighs %d bytes, its first paint %d", total, paint)
	}
}

// TestScriptsStaySmall: the scripts that every page loads have at most 990 lines in total, and no script
// contains a comment with /* or a text of several lines.
func TestScriptsStaySmall(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("assets/*.js")
	must(t, err)
	lines := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		must(t, err)
		if name != "assets/paste.js" {
			// paste.js does not count, because only the page that sends an event loads it.
			lines += bytes.Count(text, []byte("\n"))
		}
		for n, line := range strings.Split(string(text), "\n") {
			if strings.Contains(line, "/*") || strings.HasSuffix(line, "`") {
				t.Errorf("%s:%d: a text of several lines, or a comment within a line: %s", name, n+1, line)
			}
		}
	}
	// The limit allows for eight files, each with a comment on its purpose.
	if len(files) == 0 || lines > 990 {
		t.Errorf("%d scripts have %d lines", len(files), lines)
	}
}

// TestAxe runs axe-core over every page in light and dark; serious and critical findings fail the test.
// RELAY_AXE names the file of axe-core, and `make axe` runs the test.
func TestAxe(t *testing.T) {
	file := os.Getenv("RELAY_AXE")
	if file == "" {
		t.Skip("RELAY_AXE names no axe.min.js")
	}
	axe, err := os.ReadFile(file)
	must(t, err)
	g := newAllPages(t)
	b := newBrowser(t, g.fixture)
	own, admin := g.pages()
	var checked, rules, minor int
	look := func(path, scheme string) {
		call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		b.open(path)
		b.until(`document.readyState === "complete"`)
		value[any](b, string(axe)+"; null")
		value[any](b, `window.found = null; axe.run(document, {resultTypes: ["violations"]}).then(r => { window.found = {passes: r.passes.length, bad: r.violations.filter(v => v.impact === "serious" || v.impact === "critical").map(v => v.id + ": " + v.nodes.map(n => n.html + " " + n.failureSummary).slice(0, 3).join(" | ")), minor: r.violations.filter(v => v.impact !== "serious" && v.impact !== "critical").map(v => v.id + ": " + v.nodes[0].html.slice(0, 120))}; }, e => { window.found = {passes: 0, bad: [String(e)], minor: []}; }); null`)
		b.until(`window.found`)
		for _, bad := range value[[]string](b, `found.bad`) {
			t.Errorf("%s (%s): %.900s", path, scheme, bad)
		}
		for _, m := range value[[]string](b, `found.minor`) {
			minor++
			t.Logf("%s (%s): minor: %s", path, scheme, m)
		}
		rules += value[int](b, `found.passes`)
		checked++
	}
	for _, scheme := range []string{"light", "dark"} {
		for _, path := range own {
			look(path, scheme)
		}
	}
	g.login("root")
	b.signIn()
	for _, scheme := range []string{"light", "dark"} {
		for _, path := range admin {
			look(path, scheme)
		}
	}
	b.expect(404, 422)
	t.Logf("axe %s: %d pages, %d rules passed, %d minor or moderate findings, 0 serious or critical unless told above", do(b, chromedp.Evaluate[string]("axe.version")), checked, rules, minor)
}
