package dashboard_test

import (
	"strings"
	"testing"

	"relay"
)

// TestBrowserPalette: the palette, a search box over all pages, finds an alias, the events of a type, an
// event by its id, and an action of the page.
func TestBrowserPalette(t *testing.T) {
	r := newFixture(t)
	r.online()
	id := r.send(post("/webhooks/stripe", `{"id":"evt_1","type":"invoice.paid"}`, "Stripe-Signature: t=1,v1=x")).String()
	b := newBrowser(t, r)
	open := func(text string) {
		t.Helper()
		b.until(`document.readyState === "complete"`) // the scripts of the page are loaded
		value[any](b, `document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: "k", ctrlKey: true, bubbles: true}))`)
		b.until(`document.querySelector("#palette").open && document.activeElement.id === "palette-text"`)
		b.write("#palette-text", text)
	}
	first := func(text string) string {
		return `document.querySelector("#palette-list [aria-selected=true]")?.textContent.startsWith("` + text + `")`
	}
	b.open("/account")
	open("hook")
	b.until(first("hook"))
	b.key("\r")
	b.until(`location.pathname === "/aliases/hook" && document.querySelector("#link")?.textContent === "live"`)
	open("invoice.p")
	b.until(`[...document.querySelectorAll("#palette-list li")].some(li => li.textContent === "invoice.paidevents")`)
	value[any](b, `[...document.querySelectorAll("#palette-list li")].find(li => li.textContent === "invoice.paidevents").click()`)
	b.until(`location.search === "?type=invoice.paid" && document.querySelector("#link")?.textContent === "live"`)
	open(id)
	b.until(`[...document.querySelectorAll("#palette-list li")].some(li => li.textContent === "` + id + `event")`)
	value[any](b, `[...document.querySelectorAll("#palette-list li")].find(li => li.textContent === "`+id+`event").click()`)
	b.until(`location.pathname === "/events/` + id + `" && document.querySelector("#replay")`)
	open("repla")
	b.until(first("Replay"))
	b.key("\r")
	b.until(`document.querySelectorAll("#event [data-attempt]").length === 2`)
}

// TestPaletteFindsOwnAliases: the palette offers an alias to its owner and not to another account.
func TestPaletteFindsOwnAliases(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	contains(t, "the palette", r.get("/go?text=oo", 200), `href="/aliases/hook"`)
	_, err := r.s.CreateAccount(t.Context(), relay.System(), "bob", false)
	must(t, err)
	r.login("bob")
	if page := r.get("/go?text=oo&alias=hook", 200); strings.Contains(page, "hook") {
		t.Errorf("a stranger is offered %s", page)
	}
}
