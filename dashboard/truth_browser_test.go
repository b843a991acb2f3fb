package dashboard_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// TestBrowserShowsAndCopiesWhatIsThere: the Copy button copies the shown text, or says why it cannot. The
// list folds only retries of one delivery. The shortcuts [ and ] also work with AltGr. After midnight, the
// heading of the day becomes Yesterday.
func TestBrowserShowsAndCopiesWhatIsThere(t *testing.T) {
	r := newFixture(t)
	r.online()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(`{"name":"Zoë","n":1}`))
	must(t, z.Close())
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	raw := func(path, body string, lines ...string) string {
		return r.send(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: hook.localhost\r\n%sContent-Length: %d\r\n\r\n%s", path, strings.Join(append(lines, ""), "\r\n"), len(body), body)).String()
	}
	binary := raw("/binary", string(every))
	zipped := raw("/gzip", packed.String(), "Content-Type: application/json", "Content-Encoding: gzip")
	long := raw("/long", strings.Repeat("long ", 100<<10), "Content-Type: text/plain")
	form := raw("/form", "text=hello+world&n=1", "Content-Type: application/x-www-form-urlencoded")
	for _, source := range []string{"/shop", "/stock"} {
		raw("/ce", "{}", "ce-specversion: 1.0", "ce-id: 1", "ce-type: made", "ce-source: "+source)
	}
	for _, path := range []string{"/github/a", "/github/b", "/github/b"} {
		raw(path, "{}", "X-GitHub-Event: push", "X-GitHub-Delivery: 72d3162e")
	}

	b := newBrowser(t, r)
	// In this time zone it is about noon, so that the day does not end during the test. The sign in the name of such a
	// zone is the opposite of the usual one.
	call(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: fmt.Sprintf("Etc/GMT%+d", time.Now().UTC().Hour()-12)})
	b.open("/aliases/hook")
	b.until(`[...document.querySelectorAll("#rows > li")].filter(row => row.checkVisibility()).length === 8 && document.querySelectorAll(".retries").length === 1`)

	copies := func(id, want string) {
		t.Helper()
		b.open("/events/" + id)
		value[any](b, `Object.defineProperty(navigator, "clipboard", { value: { writeText: async text => { window.copied = text; } } })`)
		b.click("#request-part [data-copy-body]")
		b.until(fmt.Sprintf(`(window.copied ?? told.at(-1)) === %q`, want))
	}
	copies(zipped, "{\n  \"name\": \"Zoë\",\n  \"n\": 1\n}")
	copies(form, "text: hello world\nn: 1")
	copies(long, "Not copied: only the start of the body is shown here. Save has all of it.")
	copies(binary, "Not copied: this body is binary. Save has its bytes.")

	press := func(options string) {
		value[any](b, `document.body.dispatchEvent(new KeyboardEvent("keydown", { bubbles: true, altKey: true, `+options+` }))`)
	}
	press(`key: "[", ctrlKey: true, modifierAltGraph: true`)
	b.until(fmt.Sprintf(`document.querySelector("#event").dataset.eventId === %q`, zipped))
	press(`key: "]"`)
	b.until(fmt.Sprintf(`document.querySelector("#event").dataset.eventId === %q`, binary))

	if value[bool](b, `Boolean(document.querySelector("#rows [data-day=Yesterday]"))`) {
		t.Fatal("what came today has the line of yesterday")
	}
	value[any](b, `(Real => { Date = class extends Real { constructor(...at) { super(...(at.length ? at : [Real.now() + 864e5])); } static now() { return Real.now() + 864e5; } }; })(Date)`)
	value[any](b, `document.dispatchEvent(new Event("visibilitychange"))`)
	b.until(`document.querySelector("#rows > li").dataset.day === "Yesterday"`)
}

// TestBrowserManyTabsLoad: with notifications on, eight further tabs load and the last one gets live updates,
// although a browser has only six connections to a host.
func TestBrowserManyTabsLoad(t *testing.T) {
	r := newFixture(t)
	r.online()
	first := newBrowser(t, r)
	first.open("/aliases/hook")
	value[any](first, `localStorage.setItem("notify", "true")`)
	for n := range 8 {
		ctx, cancel := chromedp.NewContext(first.ctx)
		t.Cleanup(cancel)
		must(t, chromedp.Do(ctx))
		b := &browser{t: t, r: r, ctx: ctx}
		call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: fmt.Sprintf(`Object.defineProperty(document, "hidden", { get: () => %v }); Object.defineProperty(Notification, "permission", { get: () => "granted" });`, n < 7)})
		b.open("/aliases/hook")
		b.until(`document.querySelector("#notify")?.getAttribute("aria-pressed") === "true"`)
		if n == 7 {
			b.until(`document.querySelector("#link").textContent === "live"`)
		}
	}
}
