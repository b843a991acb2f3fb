package dashboard_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// TestBrowserHomeAndSidebarAreLive: the list of aliases and the sidebar show a new tunnel, an event, and a
// queue without a reload.
func TestBrowserHomeAndSidebarAreLive(t *testing.T) {
	r := newFixture(t)
	b := newBrowser(t, r)
	b.open("/")
	b.until(`document.querySelector("#side-hook").dataset.state === "never"`)
	value[any](b, `window.samePage = true`)
	r.online()
	b.until(`document.querySelector("#side-hook").dataset.state === "online" && document.querySelector('#aliases tr[data-state="online"]')`)
	r.send(post("/one", "{}"))
	b.until(`document.querySelector("#aliases time")`)
	r.offline()
	r.send(post("/two", "{}"))
	b.until(`document.querySelector("#side-hook .count")?.textContent.startsWith("1") && document.querySelector("#aliases").textContent.includes("1 queued")`)
	b.click("#side-hook a")
	b.until(`document.querySelector("#alias")?.dataset.state === "offline"`)
	if value[bool](b, `Boolean(window.samePage)`) {
		t.Error("the page of an alias is not a page of its own")
	}
}

// TestBrowserFoldsRetries: retries of a delivery are folded below the newest one, in a loaded page and in
// live updates, and can be unfolded.
func TestBrowserFoldsRetries(t *testing.T) {
	r := newFixture(t)
	r.online()
	again := post("/hook", "{}", "X-GitHub-Event: push", "X-GitHub-Delivery: 72d3162e")
	r.send(again)
	r.send(post("/other", "{}"))
	r.send(again)
	b := newBrowser(t, r)
	b.open("/aliases/hook")
	shown := func(n int, text string) {
		t.Helper()
		b.until(fmt.Sprintf(`[...document.querySelectorAll("#rows > li")].filter(row => row.checkVisibility()).length === %d && document.querySelector(".retries").textContent === %q`, n, text))
	}
	shown(2, "+ 1 earlier delivery")
	b.until(`document.querySelector("#link").textContent === "live"`)
	r.send(again)
	shown(2, "+ 2 earlier deliveries")
	b.click(".retries")
	shown(4, "hide 2 earlier deliveries")
}

// TestBrowserTheme: a chosen theme takes effect at once, and the server sends the next page in it, even
// without scripts.
func TestBrowserTheme(t *testing.T) {
	r := newFixture(t)
	b := newBrowser(t, r)
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "light"}}})
	dark := `getComputedStyle(document.body).backgroundColor === "rgb(15, 17, 21)"`
	b.open("/account")
	if value[bool](b, dark) {
		t.Fatal("dark without being asked for")
	}
	choose := func(theme string) {
		b.click("[popovertarget=me]")
		b.click(`#me button[value="` + theme + `"]`)
	}
	choose("dark")
	b.until(dark)
	b.until(`document.cookie.includes("relay_theme=dark")`) // Chromium stores the cookie of the theme only a moment later
	// The browser leaves the page before scripts are disabled: if the page got a Web Lock after that, the
	// console would report an error.
	do(b, chromedp.Navigate("about:blank"))
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.open("/")
	b.until(dark)
	b.until(`document.querySelector(".theme [aria-pressed=true]").value === "dark"`)
	choose("auto")
	b.until(`!document.documentElement.dataset.theme`)
}

// TestBrowserSearch: the search box completes words and shows results without loading the page. The search is
// in the address and the history, new matching events appear, and a mistake is reported.
func TestBrowserSearch(t *testing.T) {
	r := newFixture(t)
	r.online()
	r.send(post("/one", `{"n":{"id":"needle-1"}}`))
	r.send(post("/two", `{"n":2}`))
	b := newBrowser(t, r)
	b.open("/aliases/hook")
	b.until(`document.querySelector("#link").textContent === "live"`)
	value[any](b, `window.samePage = true`)
	b.write("#search", "meth")
	b.until(`[...document.querySelectorAll("#completions option")].some(o => o.value === "method:")`)
	value[any](b, `document.querySelector("#search").value = ""`)
	b.write("#search", "NEEDLE\r")
	b.until(`document.querySelectorAll("#rows > li").length === 1 && location.search === "?find=NEEDLE"`)
	b.until(`document.querySelector("#link").textContent === "live"`)
	r.send(post("/three", `{"n":3}`))
	third := r.send(post("/four", `{"n":{"id":"needle-2"}}`)).String()
	b.until(fmt.Sprintf(`document.querySelectorAll("#rows > li").length === 2 && document.getElementById(%q)`, third))
	b.click("#rows a")
	b.until(`document.querySelector("#event h1")?.textContent.includes("/four") && location.search === "?find=NEEDLE"`)
	value[any](b, `history.back()`)
	b.until(`document.querySelector("#alias") && document.querySelector("#search").value === "NEEDLE"`)
	value[any](b, `history.back()`)
	b.until(`document.querySelectorAll("#rows > li").length === 4 && location.search === "" && document.querySelector("#search").value === ""`)
	if !value[bool](b, `Boolean(window.samePage)`) {
		t.Error("the search loaded the page again")
	}
	b.expect(422)
	value[any](b, `document.querySelector("#search").value = ""`)
	b.write("#search", "statsu:500\r")
	b.until(`document.querySelector("#filter-wrong")?.textContent.includes("did you mean status?")`)
}
