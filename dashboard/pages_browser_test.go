package dashboard_test

import (
	"bytes"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/klauspost/compress/gzip"
)

// TestBrowserEveryPage checks each page on a narrow screen: nothing is wider than it, every field has
// a name, ids are unique, focus is visible, nothing moves if the user prefers that, and the console is
// empty.
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

// inspect opens a page and checks what every page must satisfy.
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

func TestPagesStayLight(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	for range 105 {
		r.send(post("/webhooks/stripe?source=checkout&attempt=1", `{"type":"checkout.session.completed","id":"evt_1"}`, "Stripe-Signature: t=1,v1=x"))
	}
	page := r.get("/aliases/hook", 200)
	if n := strings.Count(page, "data-event-id="); n != 100 {
		t.Fatalf("%d rows", n)
	}
	packed := func(text string) int { // as the base site sends it
		var out bytes.Buffer
		z, err := gzip.NewWriterLevel(&out, gzip.StatelessCompression)
		must(t, err)
		_, _ = z.Write([]byte(text))
		must(t, z.Close())
		return out.Len()
	}
	took := time.Hour
	for range 5 {
		began := time.Now()
		r.get("/aliases/hook", 200)
		took = min(took, time.Since(began))
	}
	paint, total, script := packed(page), packed(page), ""
	for _, name := range regexp.MustCompile(`/assets/\w+\.(js|css|svg)`).FindAllString(page, -1) {
		sent := len(r.do("GET", name, nil, http.Header{"Accept-Encoding": {"gzip"}}, 200))
		if total += sent; name == "/assets/style.css" || name == "/assets/page.js" { // the other scripts come after the first paint
			paint += sent
		}
		if strings.HasSuffix(name, ".js") {
			script += r.get(name, 200)
		}
	}
	t.Logf("page %d in %v, script %d; packed: the page %d, the first paint %d, all %d bytes", len(page), took, len(script), packed(page), paint, total)
	if paint > 24<<10 || total > 40<<10 {
		t.Errorf("the stream weighs %d bytes, its first paint %d", total, paint)
	}
	if n := strings.Count(script, "\n"); n > 950 { // eight files, each with what it is for
		t.Errorf("the script has %d lines", n)
	}
}

// TestAxe runs axe-core, whose file RELAY_AXE names, over every page in light and dark; `make axe`
// fetches it. Serious and critical findings fail the test.
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
