package dashboard_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"relay"
)

// newTasks has the events of the tasks in docs/dashboard.md, "Common tasks": four events, two of them
// invoices that were answered with 500. A second alias never had a tunnel.
func newTasks(t *testing.T) *fixture {
	r := newFixture(t)
	_, err := r.s.CreateAlias(t.Context(), relay.System(), "other", "alice")
	must(t, err)
	r.online()
	invoice := func(n int) string {
		return post("/stripe", fmt.Sprintf(`{"id":"evt_%d","type":"invoice.paid","data":{"object":{"amount":%d}}}`, n, n), "Stripe-Signature: t=1,v1=x")
	}
	r.answers(func([]byte, []byte) string { return "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n" })
	r.send(invoice(1))
	r.send(invoice(2))
	r.answers(func([]byte, []byte) string { return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" })
	r.send(post("/stripe", `{"id":"evt_3","type":"charge.refunded"}`, "Stripe-Signature: t=1,v1=x"))
	r.send(post("/plain", "{}"))
	return r
}

// TestBrowserTasksWithoutScript does the common tasks by links, buttons and forms, and counts the clicks.
func TestBrowserTasksWithoutScript(t *testing.T) {
	r := newTasks(t)
	b := newBrowser(t, r)
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	clicks := 0
	// This waits until the page is loaded, so that no element moves before the click.
	click := func(sel string) {
		t.Helper()
		clicks++
		b.until(`document.readyState === "complete"`)
		b.click(sel)
	}
	// want is the number of clicks in docs/dashboard.md, less the click on the row if the event is already
	// open.
	took := func(task string, want int) {
		t.Helper()
		if clicks != want {
			t.Errorf("%s takes %d clicks, want %d", task, clicks, want)
		}
		clicks = 0
	}
	rows := func(n int) {
		t.Helper()
		b.until(fmt.Sprintf(`document.readyState === "complete" && document.querySelectorAll("#rows > li").length === %d`, n))
	}
	b.open("/aliases/hook")
	b.see(`#side-other .dot[aria-label=never]`) // shows whether another alias is online
	rows(4)
	click(`.chips a[href*="status=error"]`) // finds the failed events
	rows(2)
	click(`.chips [popovertarget=filters]`)
	click(`#filters a[href*="invoice.paid"]`)
	rows(2)
	click("#rows a")
	b.see("#event")
	b.see(`#request-part pre`) // its body
	took("to find an event", 4)
	// This compares the event with the first other event that the page offers.
	click("#compare")
	b.until(`location.pathname === "/diff"`)
	click(`main a[href*="right="], main a[href*="left="]:not([href*="/events/"])`)
	b.see("#diff")
	b.until(`document.querySelector("#diff").textContent.includes("data.object.amount")`)
	took("to compare it", 2)

	b.open("/aliases/hook?status=error")
	// This replays the event of the row.
	click("#rows button")
	b.see(`[data-attempt="2"]`)
	b.ended(`[data-attempt="2"]`)
	b.until(`document.querySelector("#diff").textContent.includes("500 → 200")`) // what became different
	took("a replay", 1)
	click("#pin")
	b.until(`document.querySelector("#pin")?.textContent === "Unpin"`)
	took("to pin", 1)
	click("#mark summary")
	b.write("#mark-label", "bug-17\r")
	b.until(`document.querySelector(".marks .label")?.textContent === "bug-17"`)
	took("a label", 1)
	click("[popovertarget=share-box]")
	click("#share")
	click("#create-share")
	b.see("#share-url")
	took("to share", 3)
	// This opens another event of the list.
	click("#rows > li:last-child a")
	b.until(`(p => p?.jsonSource ?? p?.textContent)(document.querySelector("#request-part pre"))?.includes("evt_1")`)

	took("to read another event", 1)
	b.open("/aliases/hook")
	click("#tick")
	b.see("#rows input")
	for n := range 3 {
		click(fmt.Sprintf("#rows > li:nth-child(%d) input", n+1))
	}
	click("#many button")
	b.until(`document.querySelector("main h1")?.textContent.includes("Replay 3 events")`)
	click("main form button")
	b.until(`location.pathname === "/aliases/hook" && document.querySelectorAll("#rows .replays").length >= 3`)
	took("to replay three", 6)
}

// TestBrowserTasksByKeys does the common tasks with keys.
func TestBrowserTasksByKeys(t *testing.T) {
	r := newTasks(t)
	b := newBrowser(t, r)
	b.open("/aliases/hook")
	live := func() {
		t.Helper()
		b.until(`document.querySelector("#link")?.textContent === "live"`)
	}
	live()
	search := func(words string) {
		t.Helper()
		b.key("/")
		b.until(`document.activeElement.id === "search" && document.activeElement.selectionEnd === document.activeElement.value.length`)
		b.key("\b")
		b.until(`document.activeElement.value === ""`)
		do(b, chromedp.KeyEvent(words+"\r"))
	}
	search("status:error type:invoice.* since:12h")
	b.until(`document.querySelectorAll("#rows > li").length === 2`)
	b.key("\x1b")
	b.key("j")
	b.until(`(p => p?.jsonSource ?? p?.textContent)(document.querySelector("#request-part pre"))?.includes("evt_2")`)
	// This opens the next event, and then goes back.
	b.key("]")
	b.until(`(p => p?.jsonSource ?? p?.textContent)(document.querySelector("#request-part pre"))?.includes("evt_1")`)
	b.key("[")
	b.until(`(p => p?.jsonSource ?? p?.textContent)(document.querySelector("#request-part pre"))?.includes("evt_2")`)
	b.key("\x1b")
	b.key("\r")
	b.until(`document.activeElement.matches("#event h1")`)
	// Tab leads from the heading to a value of the body.
	b.tabTo("#request-part pre .ln, #request-part pre summary, #request-part pre", 30)
	b.key(kb.ArrowDown)
	value[any](b, `told.length = 0`)
	b.until(`document.activeElement.matches(".ln")`)
	b.key("c")
	b.until(`told.includes("Copied.") || document.querySelector("dialog[open] textarea")`)
	value[any](b, `document.querySelector("dialog[open]")?.close()`)
	b.key("r")
	b.until(`document.querySelector("#diff")?.textContent.includes("500 → 200")`)
	// This leaves the JSON, where the key p would copy a path. In the list, p pins the event.
	b.key("\x1b")
	b.until(`document.activeElement.matches("#rows a")`)
	b.key("p")
	b.until(`document.querySelector("#pin")?.textContent === "Unpin"`)
	b.key("s")
	b.until(`document.activeElement.id === "share"`)
	b.key("\r")
	b.until(`document.readyState === "complete" && document.querySelector("#create-share")`)
	b.tabTo("#create-share", 40)
	b.key("\r")
	b.see("#share-url")
	b.open("/aliases/hook?type=invoice.*")
	live()
	b.key("j")
	b.until(`(p => p?.jsonSource ?? p?.textContent)(document.querySelector("#request-part pre"))?.includes("evt_2")`)
	b.key("d")
	b.until(`document.querySelector("#diff")?.textContent.includes("data.object.amount") && location.pathname === "/diff"`)

	b.open("/aliases/hook?tick=1")
	live()
	for n := range 3 {
		b.key("j")
		b.key(" ")
		b.until(fmt.Sprintf(`document.querySelectorAll("#rows input:checked").length === %d`, n+1))
	}
	value[any](b, `document.activeElement.blur()`)
	b.tabTo("#many button", 120)
	b.key("\r")
	b.until(`document.readyState === "complete" && document.querySelector("main h1")?.textContent.includes("Replay 3 events")`)
	b.tabTo("main form button", 15)
	b.key("\r")
	b.until(`location.pathname === "/aliases/hook" && document.querySelectorAll("#rows .replays").length >= 3`)
}
