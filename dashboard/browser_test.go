package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/inspector"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"relay"
)

// browser is one window of a real Chromium, logged in to a fixture. Errors in its console fail the
// test.
type browser struct {
	t   *testing.T
	r   *fixture
	ctx context.Context

	mu       sync.Mutex
	errors   []string
	expected []int // statuses of dashboard responses that the browser may report as errors in its console
	crashed  bool
}

func newBrowser(t *testing.T, r *fixture) *browser {
	t.Helper()
	return newBrowserOf(&shell, t, r)
}

func newBrowserOf(c *chromium, t *testing.T, r *fixture) *browser {
	t.Helper()
	b := &browser{t: t, r: r, ctx: c.tab(t)}
	must(t, chromedp.Listen(b.ctx, b.listen))
	var cancel context.CancelFunc
	b.ctx, cancel = context.WithTimeout(b.ctx, 5*time.Minute)
	t.Cleanup(cancel)
	call(b, log.Enable, cdp.Empty{})
	call(b, runtime.Enable, cdp.Empty{})
	// This window behaves as if it had the focus, whatever other windows are open, and has a fixed
	// size.
	call(b, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1280, Height: 900, DeviceScaleFactor: 1})
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: listener})
	b.signIn()
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, e := range b.errors {
			if !b.isExpected(e) {
				t.Errorf("console: %s", e)
			}
		}
	})
	return b
}

// listener is a script for every page. It stores the announcements to screen readers in told, because the
// page soon removes them.
const listener = `window.told = []; addEventListener("DOMContentLoaded", () => { const say = document.querySelector("#say"); if (say) new MutationObserver(() => { if (say.textContent) told.push(say.textContent); }).observe(say, {childList: true, characterData: true, subtree: true}); })`

// waitForAnnouncement waits until a text was announced, at any time since the page was opened or the list
// told was emptied.
func (b *browser) waitForAnnouncement(text string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`told.some(text => text.includes(%q))`, text))
}

// listen collects the errors in the console, including violations of the content security policy.
func (b *browser) listen(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := ev.(type) {
	case *inspector.EventTargetCrashed:
		b.crashed = true
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			b.errors = append(b.errors, e.Entry.Text+" "+e.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		b.errors = append(b.errors, e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			b.errors = append(b.errors, "console."+string(e.Type))
		}
	}
}

// signIn gives the browser the session of its fixture.
func (b *browser) signIn() {
	b.t.Helper()
	if b.r.session == "" {
		return
	}
	call(b, network.SetCookie, network.SetCookieParams{Name: "relay_session", Value: b.r.session, URL: b.r.base})
}

// forget removes the console errors that were collected.
func (b *browser) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.errors = nil
}

// expect allows console errors about pages of the dashboard with these statuses, also those that were collected
// before the call.
func (b *browser) expect(statuses ...int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, statuses...)
}

func (b *browser) isExpected(e string) bool {
	return slices.ContainsFunc(b.expected, func(status int) bool {
		return strings.HasPrefix(e, fmt.Sprintf("Failed to load resource: the server responded with a status of %d (%s) %s/", status, http.StatusText(status), b.r.base))
	})
}

// checkAlive ends the test if the browser has died.
func (b *browser) checkAlive() {
	b.t.Helper()
	b.mu.Lock()
	crashed := b.crashed
	b.mu.Unlock()
	switch {
	case crashed:
		b.t.Fatal("the page crashed in Chromium")
	case gone(b.ctx):
		b.t.Fatal("Chromium died")
	case b.ctx.Err() != nil:
		b.t.Fatalf("the test had its time with Chromium: %v", b.ctx.Err())
	}
}

// try runs an action, for at most the duration patience, and returns its error.
func try[T any](b *browser, action chromedp.Action[T]) (T, error) {
	b.t.Helper()
	b.checkAlive()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, action)
}

func call[P, R any](b *browser, cmd cdp.Command[P, R], params P) {
	b.t.Helper()
	b.checkAlive()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if _, err := chromedp.Call(ctx, cmd, params); err != nil {
		b.checkAlive()
		b.t.Fatal(err)
	}
}

func do[T any](b *browser, action chromedp.Action[T]) T {
	b.t.Helper()
	v, err := try(b, action)
	if err != nil {
		b.checkAlive()
		b.t.Fatal(err)
	}
	return v
}

// open loads a page.
func (b *browser) open(path string) { b.t.Helper(); do(b, chromedp.Navigate(b.r.base+path)) }

// value evaluates an expression.
func value[T any](b *browser, expression string) T {
	b.t.Helper()
	return do(b, chromedp.Evaluate[T](expression))
}

// until waits for an expression to become true.
func (b *browser) until(expression string) {
	b.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if is, err := try(b, chromedp.Evaluate[bool]("!!("+expression+")")); err == nil && is {
			return
		}
		if time.Now().After(end) {
			text, _ := try(b, chromedp.Evaluate[string]("document.body.innerText"))
			b.t.Fatalf("never true: %s\n%.1500s", expression, text)
		}
	}
}

// click clicks an element, and tries again if a live update has replaced the element. A click goes to a place in the
// window, so click waits until the page is loaded and the element no longer moves. A button of a menu is clicked again
// if the menu is as before: the click was lost.
func (b *browser) click(sel string) {
	b.t.Helper()
	menu := fmt.Sprintf(`String((e => e?.popoverTargetElement?.matches(":popover-open"))(document.querySelector(%q)))`, sel)
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		b.see(sel)
		before, err := try(b, chromedp.Evaluate[string](menu))
		if err == nil {
			err = b.rest(sel)
		}
		if err == nil {
			_, err = try(b, chromedp.Click(chromedp.CSS(sel)))
		}
		if err == nil && before == "undefined" {
			return
		}
		if err == nil {
			if after, err := try(b, chromedp.Evaluate[string](menu)); err == nil && after != before {
				return
			}
			b.t.Logf("the click on %s was lost", sel)
		}
		if time.Now().After(end) {
			b.t.Fatalf("click %s: %v", sel, err)
		}
	}
}

// rest moves the mouse to an element, and returns an error if the element then has another place or is not below the
// mouse. Chromium handles the move with the next frame, and only with a frame does it scroll a loaded page to the
// fragment of its address. An element that is covered, for example by the bar at the top of the page, is scrolled to the
// middle.
func (b *browser) rest(sel string) error {
	b.t.Helper()
	find := fmt.Sprintf("(e => { if (!e) return []; e.scrollIntoViewIfNeeded(); const r = e.getClientRects()[0]; return r ? [r.left, r.top, r.width, r.height] : []; })(document.querySelector(%q))", sel)
	before, err := try(b, chromedp.Evaluate[[]float64](find))
	if err != nil || len(before) == 0 {
		return fmt.Errorf("%s is not there: %v", sel, err)
	}
	x, y := before[0]+before[2]/2, before[1]+before[3]/2
	if _, err := try(b, chromedp.MouseEvent(chromedp.MouseMoved, x, y)); err != nil {
		return err
	}
	after, err := try(b, chromedp.Evaluate[[]float64](find))
	if err != nil || !slices.Equal(before, after) {
		return fmt.Errorf("%s moved from %v to %v: %v", sel, before, after, err)
	}
	hit := fmt.Sprintf(`((e, at) => !!at && e.contains(at) || (e.scrollIntoView({ block: "center" }), false))(document.querySelector(%q), document.elementFromPoint(%f, %f))`, sel, x, y)
	if is, err := try(b, chromedp.Evaluate[bool](hit)); err != nil || !is {
		return fmt.Errorf("%s is covered: %v", sel, err)
	}
	return nil
}

// key presses a key once the scripts of the page are ready: the page ignores an earlier press.
func (b *browser) key(k string) {
	b.t.Helper()
	b.until(`document.readyState === "complete"`)
	do(b, chromedp.KeyEvent(k))
}

// write gives the focus to an element and types a text into it.
func (b *browser) write(sel, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`(e => { e?.focus(); return e && document.activeElement === e })(document.querySelector(%q))`, sel))
	b.key(text)
}

// follow presses Enter on the focused link until the address of the page has changed, because a live update
// may remove the link before a key press reaches it.
func (b *browser) follow() {
	b.t.Helper()
	from := value[string](b, `location.href`)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		b.key("\r")
		for pause := time.Now().Add(3 * time.Second); time.Now().Before(pause); time.Sleep(20 * time.Millisecond) {
			if to, err := try(b, chromedp.Evaluate[string](`location.href`)); err == nil && to != from {
				return
			}
		}
	}
	b.t.Fatalf("Enter leads nowhere from %s", from)
}

// see waits until an element is visible, also if the browser is still loading the page that contains it. It
// also waits for the style sheet, so that measurements are correct afterwards.
func (b *browser) see(sel string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`document.readyState === "complete" && document.querySelector(%q)?.checkVisibility()`, sel))
}

func TestBrowserJourney(t *testing.T) {
	r := newFixture(t)
	b := newBrowser(t, r)
	b.open("/aliases/hook")
	b.until(`document.querySelector("#link").textContent === "live"`)
	r.online()
	b.until(`document.querySelector("#alias").dataset.state === "online"`)

	began := time.Now()
	id := r.send(post("/hook?x=1", `{"a":1}`)).String()
	b.until(fmt.Sprintf(`document.querySelector('[data-event-id="%s"][data-state="delivered"]')`, id))
	t.Logf("a row after %v", time.Since(began))
	if value[bool](b, `!!document.querySelector("#empty")`) {
		t.Error("the empty state is still there")
	}
	// On a list without an open event, the key j opens the newest event.
	b.key("j")
	b.until(`document.querySelector("#event")`)
	b.until(`document.readyState === "complete" && document.querySelectorAll("[data-attempt]").length === 1`)
	r.answers(func([]byte, []byte) string {
		return "HTTP/1.1 500 Oops\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{\"ok\":false}"
	})
	b.click("#replay")
	b.until(`document.querySelector('[data-attempt="2"][data-state="delivered"]')`)
	b.waitForAnnouncement("Replayed: 500 in ")
	b.key("r")
	b.until(`document.querySelector('[data-attempt="3"][data-state="delivered"]')`)
	b.until(`document.querySelector("#diff")?.textContent.includes("Attempt 1 and 3: 200 → 500")`)
	b.click(`.strip [data-attempt="2"] a`)
	b.until(`document.querySelector("#diff")?.textContent.includes("Attempt 1 and 2: 200 → 500")`)
	if !strings.Contains(value[string](b, "location.href"), "attempt=2") {
		t.Error("the chosen attempt is not in the address")
	}
	b.open("/events/" + id + "?diff=2,3")
	b.until(`document.querySelector("#diff")?.textContent.includes("500 in both, same body")`)
	b.click(`#request nav a:last-child`)
	b.until(`document.querySelector("#request .hex").textContent.includes("7b 22 61 22")`)

	r.offline()
	b.until(`document.querySelector("#reconnect")`)
	b.click("#replay")
	b.until(`document.querySelector('[data-attempt="4"][data-state="queued"]')`)
	b.until(`document.querySelector("#event").textContent.includes("position 1")`)
	b.click("#cancel")
	b.until(`document.querySelector('[data-attempt="4"][data-state="canceled"]')`)
	b.key("?")
	b.until(`document.querySelector("#keys").open`)
	b.click("#keys button")
	b.until(`!document.querySelector("#keys").open`)
	// One script presses both keys, because on a busy machine two key presses of the browser may be too
	// far apart.
	b.until(`["g", "a"].every(key => document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true})))`)
	b.until(`location.pathname === "/"`)
}

func TestBrowserWithoutScript(t *testing.T) {
	r := newFixture(t)
	r.online()
	id := r.send(post("/plain", `{"a":1}`)).String()
	b := newBrowser(t, r)
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.open("/aliases/hook")
	b.click("#rows a")
	b.see("#replay")
	b.click("#replay")
	b.see(`[data-attempt="2"]`)
	b.ended(`[data-attempt="2"]`)
	b.click("[popovertarget=share-box]")
	b.click("#share")
	b.click("#create-share")
	b.see("#share-url")
	url := value[string](b, `document.querySelector("#share-url").innerText`)
	call(b, network.ClearBrowserCookies, cdp.Empty{})
	do(b, chromedp.Navigate(strings.TrimSpace(url)))
	b.click("#replay")
	b.see(`#result`)
	b.ended(`#result`)
	shared := value[string](b, `document.documentElement.outerHTML`)
	for _, secret := range []string{"alice", "hook.", ">hook<", id} {
		if strings.Contains(shared, secret) {
			t.Errorf("the shared page tells %q", secret)
		}
	}
}

// ended loads the page again until the attempt that matches sel has ended, and checks that it was delivered.
// It does not use the script of the page.
func (b *browser) ended(sel string) {
	b.t.Helper()
	for end := time.Now().Add(patience); value[string](b, fmt.Sprintf(`document.querySelector(%q).dataset.state`, sel)) == "delivering"; {
		if time.Now().After(end) {
			b.t.Fatalf("%s is never delivered", sel)
		}
		do(b, chromedp.Navigate(value[string](b, `location.href.split("#")[0]`)))
		b.see(sel)
	}
	if state := value[string](b, fmt.Sprintf(`document.querySelector(%q).dataset.state`, sel)); state != "delivered" {
		b.t.Errorf("%s is %s", sel, state)
	}
}

func TestBrowserNarrow(t *testing.T) {
	r := newFixture(t)
	r.online()
	r.answers(func([]byte, []byte) string {
		return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Long: " + strings.Repeat("x", 400) + "\r\nContent-Length: 402\r\n\r\n\"" + strings.Repeat("y", 400) + "\""
	})
	id := r.send(post("/"+strings.Repeat("long", 60), `{"a":"`+strings.Repeat("z", 500)+`"}`)).String()
	r.replay(id)
	long := strings.Repeat("z", 63)
	_, err := r.s.CreateAlias(t.Context(), relay.System(), long, "alice")
	must(t, err)
	r.await("alias known", func() bool { _, ok := r.d.Alias(long); return ok })
	r.sendTo(long, post("/queued", "{}"))
	b := newBrowser(t, r)
	for _, path := range []string{"/aliases/hook", "/events/" + id, "/events/" + id + "?diff=1,2", "/events/" + id + "?body=hex", "/aliases/hook/replay-queued", "/aliases/" + long, "/"} {
		b.open(path)
		for _, width := range []int64{390, 768, 1280} {
			call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 800, DeviceScaleFactor: 1, Mobile: true})
			b.until(fmt.Sprintf(`matchMedia("(width: %dpx)").matches`, width))
			if wide := value[int64](b, `document.documentElement.scrollWidth`); wide > width {
				t.Errorf("%s is %d px wide, where %d are visible", path, wide, width)
			}
		}
	}
}
