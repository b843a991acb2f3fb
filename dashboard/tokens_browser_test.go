package dashboard_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// TestBrowserTokens: the search box shows the filter as words. Words can be added, also without a script, and
// removed, and the shown number of events changes.
func TestBrowserTokens(t *testing.T) {
	r := newFixture(t)
	r.online()
	send := func(kind string) string {
		return r.send(post("/webhooks/stripe", `{"id":"evt_1","type":"`+kind+`","n":"needle"}`, "Stripe-Signature: t=1,v1=x")).String()
	}
	send("invoice.paid")
	send("payout.paid")
	b := newBrowser(t, r)
	shows := func(tokens, text string, rows int) {
		t.Helper()
		b.until(fmt.Sprintf(`[...document.querySelectorAll(".token")].map(e => e.firstChild.data.trim()).join(" ") === %q && document.querySelector("#search").value === %q && document.querySelectorAll("#rows > li").length === %d`, tokens, text, rows))
	}
	b.open("/aliases/hook?type=invoice.paid&status=2xx")
	shows("status:2xx type:invoice.paid", "", 1)
	b.until(`document.querySelector("#link").textContent === "live"`)
	b.write("#search", "needle\r")
	shows("status:2xx type:invoice.paid", "needle", 1)
	b.until(`document.querySelector("#count").textContent === "1 event" && document.querySelector("#link").textContent === "live"`)
	send("invoice.paid")
	shows("status:2xx type:invoice.paid", "needle", 2)
	b.until(`document.querySelector("#count").textContent.startsWith("2 ")`)
	b.click(`.token a[aria-label="Remove type:invoice.paid"]`)
	shows("status:2xx", "needle", 3)
	value[any](b, `document.querySelector("#search").value = ""; document.querySelector("#search").focus()`)
	b.key("\b")
	shows("", "needle", 3)
	do(b, chromedp.Navigate("about:blank"))
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.open("/aliases/hook?type=payout.paid")
	b.write("#search", "needle\r")
	shows("type:payout.paid", "needle", 1)
}

// TestBrowserMovesWhatChanged: a new row is animated once, unless the user prefers no motion.
func TestBrowserMovesWhatChanged(t *testing.T) {
	r := newFixture(t)
	r.online()
	r.send(post("/first", "{}"))
	b := newBrowser(t, r)
	for _, motion := range []string{"no-preference", "reduce"} {
		call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-reduced-motion", Value: motion}}})
		b.open("/aliases/hook")
		b.until(`document.querySelector("#link").textContent === "live"`)
		value[any](b, `window.moved = 0; addEventListener("animationstart", e => { if (e.target.id) window.moved++; }); null`)
		id := r.send(post("/"+motion, "{}")).String()
		b.until(`document.getElementById("` + id + `")`)
		if motion == "reduce" {
			if n := value[int](b, `document.getAnimations().length`); n != 0 {
				t.Errorf("%d parts move", n)
			}
			continue
		}
		b.until(`window.moved === 1 && !document.querySelector("#rows [data-new]")`)
	}
}
