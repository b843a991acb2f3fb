package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is one tab of a real Chromium, signed in at a rig. What its console says
// that is an error fails the test.
type browser struct {
	t   *testing.T
	r   *rig
	ctx context.Context

	mu     sync.Mutex
	errors []string
}

func newBrowser(t *testing.T, r *rig) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("chromium is not installed; `make setup` does that")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(time.Minute), chromedp.WindowSize(1280, 900),
		chromedp.Flag("host-resolver-rules", "MAP *.test 127.0.0.1"))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &browser{t: t, r: r, ctx: ctx}
	must(t, chromedp.Listen(ctx, b.listen))
	b.ctx, cancel = context.WithTimeout(ctx, 5*time.Minute)
	t.Cleanup(cancel)
	call(b, log.Enable, cdp.Empty{})
	call(b, runtime.Enable, cdp.Empty{})
	b.signIn()
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, e := range b.errors {
			t.Errorf("console: %s", e)
		}
	})
	return b
}

// listen collects what the console says that is an error; violations of the content
// security policy are.
func (b *browser) listen(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := ev.(type) {
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

// signIn gives the browser the session of its rig.
func (b *browser) signIn() {
	b.t.Helper()
	if b.r.session == "" {
		return
	}
	call(b, network.SetCookie, network.SetCookieParams{Name: "relay_session", Value: b.r.session, URL: b.r.base})
}

// forget empties the console.
func (b *browser) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.errors = nil
}

// ignore forgets what the browser says of pages of ours that were to have a status,
// and nothing else.
func (b *browser) ignore(statuses ...int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.errors = slices.DeleteFunc(b.errors, func(e string) bool {
		return slices.ContainsFunc(statuses, func(status int) bool {
			return strings.HasPrefix(e, fmt.Sprintf("Failed to load resource: the server responded with a status of %d (%s) %s/", status, http.StatusText(status), b.r.base))
		})
	})
}

func call[P, R any](b *browser, cmd cdp.Command[P, R], params P) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, cmd, params); err != nil {
		b.t.Fatal(err)
	}
}

func do[T any](b *browser, action chromedp.Action[T]) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, action)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// open loads a page; its script has run then.
func (b *browser) open(path string) { b.t.Helper(); do(b, chromedp.Navigate(b.r.base+path)) }

// value evaluates an expression.
func value[T any](b *browser, expression string) T {
	b.t.Helper()
	return do(b, chromedp.Evaluate[T](expression))
}

// until waits for an expression to become true.
func (b *browser) until(expression string) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if is, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("!!("+expression+")")); err == nil && is {
			return
		}
		if time.Now().After(end) {
			page, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.body.innerText"))
			b.t.Fatalf("never true: %s\n%.1500s", expression, page)
		}
	}
}

// click tries again when a live update took the element away in between.
func (b *browser) click(sel string) {
	b.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		_, err := chromedp.Run(b.ctx, chromedp.Click(chromedp.CSS(sel)))
		if err == nil {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("click %s: %v", sel, err)
		}
	}
}

func (b *browser) key(k string) { b.t.Helper(); do(b, chromedp.KeyEvent(k)) }

// follow opens the focused link by Enter, and tries again when a live update took it
// away between the press and what it does.
func (b *browser) follow() {
	b.t.Helper()
	from := value[string](b, `location.href`)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		b.key("\r")
		for pause := time.Now().Add(3 * time.Second); time.Now().Before(pause); time.Sleep(20 * time.Millisecond) {
			if to, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`location.href`)); err == nil && to != from {
				return
			}
		}
	}
	b.t.Fatalf("Enter leads nowhere from %s", from)
}

func (b *browser) see(sel string) { b.t.Helper(); do(b, chromedp.WaitVisible(chromedp.CSS(sel))) }

func TestBrowserJourney(t *testing.T) {
	r := newRig(t)
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
	b.key("j")
	b.follow()
	b.until(`document.querySelector("#event")`)
	b.until(`document.readyState === "complete" && document.querySelectorAll("[data-attempt]").length === 1`)
	r.answers(func([]byte, []byte) string {
		return "HTTP/1.1 500 Oops\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{\"ok\":false}"
	})
	b.click("#replay")
	b.until(`document.querySelector('[data-attempt="2"][data-state="delivered"]')`)
	b.until(`document.querySelector("#say").textContent.includes("Attempt 2: delivered 500")`)
	b.key("r")
	b.until(`document.querySelector('[data-attempt="3"][data-state="delivered"]')`)
	b.key("d")
	b.until(`document.querySelector("#diff")?.textContent.includes("500 both times, same body")`)
	b.click("#attempt-2 a.compare")
	b.until(`document.querySelector("#diff")?.textContent.includes("200 → 500")`)
	if !strings.Contains(value[string](b, "location.href"), "diff=1,2") {
		t.Error("the comparison is not in the address")
	}
	b.click(`#request nav a:last-child`)
	b.until(`document.querySelector("#request .hex").textContent.includes("7b 22 61 22")`)

	r.offline()
	b.until(`document.querySelector("#reconnect")`)
	b.click("#replay")
	b.until(`document.querySelector('[data-attempt="4"][data-state="queued"]')`)
	b.until(`document.querySelector("#event").textContent.includes("place 1")`)
	b.click("#cancel")
	b.until(`document.querySelector('[data-attempt="4"][data-state="canceled"]')`)
	b.key("?")
	b.until(`document.querySelector("#keys").open`)
	b.click("#keys button")
	b.until(`!document.querySelector("#keys").open`)
	// At once: on a busy machine two keys of the browser's own may lie too far apart.
	b.until(`["g", "a"].every(key => document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true})))`)
	b.until(`location.pathname === "/"`)
}

func TestBrowserWithoutScript(t *testing.T) {
	r := newRig(t)
	r.online()
	id := r.send(post("/plain", `{"a":1}`)).String()
	b := newBrowser(t, r)
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.open("/aliases/hook")
	b.click("#rows a")
	b.see("#replay")
	b.click("#replay")
	b.see(`[data-attempt="2"][data-state="delivered"]`)
	b.click("#share")
	b.see("#share-url")
	url := do(b, chromedp.Text(chromedp.CSS("#share-url")))
	call(b, network.ClearBrowserCookies, cdp.Empty{})
	do(b, chromedp.Navigate(strings.TrimSpace(url)))
	b.click("#replay")
	b.see(`#result[data-state="delivered"]`)
	page := do(b, chromedp.OuterHTML(chromedp.CSS("html")))
	for _, secret := range []string{"alice", "hook.", ">hook<", id} {
		if strings.Contains(page, secret) {
			t.Errorf("the shared page tells %q", secret)
		}
	}
}

func TestBrowserNarrow(t *testing.T) {
	r := newRig(t)
	r.online()
	r.answers(func([]byte, []byte) string {
		return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Long: " + strings.Repeat("x", 400) + "\r\nContent-Length: 402\r\n\r\n\"" + strings.Repeat("y", 400) + "\""
	})
	id := r.send(post("/"+strings.Repeat("long", 60), `{"a":"`+strings.Repeat("z", 500)+`"}`)).String()
	r.submit("/events/"+id+"/replay", nil, 200)
	b := newBrowser(t, r)
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 390, Height: 800, DeviceScaleFactor: 1, Mobile: true})
	for _, path := range []string{"/aliases/hook", "/events/" + id, "/events/" + id + "?diff=1,2", "/events/" + id + "?body=hex", "/aliases/hook/replay-queued"} {
		b.open(path)
		if wide := value[int](b, `document.documentElement.scrollWidth`); wide > 390 {
			t.Errorf("%s is %d px wide", path, wide)
		}
	}
}
