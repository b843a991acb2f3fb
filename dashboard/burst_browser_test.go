package dashboard_test

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/tracing"
	"github.com/chromedp/chromedp"

	"relay/relaytest"
)

// longestGap is the longest time for which arriving events may keep the browser from drawing, in ms.
const longestGap = 500

// TestBrowserBurst sends 1,001 events without pauses through a tunnel of ssh to the relayd program. In at least
// one of up to eight such bursts, the page must not keep the browser from drawing for longer than longestGap.
// The newest rows of the page must be those that a reload shows.
func TestBrowserBurst(t *testing.T) {
	relayd := relaytest.Program(t, "relayd")
	s := newDemoServer(t, relayd, false)
	b := newBrowser(t, &fixture{t: t, base: s.base})
	b.enter(s)
	idle := &browser{t: t, ctx: shell.tab(t)}
	// Without the emulated focus, Chromium draws a background tab about once a second, and the gaps between
	// the frames of the window idle would be too long.
	call(idle, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	stop := b.traceTasks()
	begun := time.Now()
	best := b.burst(idle, s, 0)
	task := stop()
	for n := 1; best > longestGap && n < 8 && !isBusy(t); n++ {
		best = min(best, b.burst(idle, s, n))
	}
	judgeStall(t, begun, best, task, longestGap)
	shown := value[[]string](b, `[...document.querySelectorAll("#rows > li")].slice(0, 100).map(r => r.id)`)
	b.open("/aliases/stripe-dev")
	fresh := value[[]string](b, `[...document.querySelectorAll("#rows > li")].map(r => r.id)`)
	if strings.Join(shown, " ") != strings.Join(fresh, " ") {
		t.Error("the rows differ after reload")
	}

	// If the list is scrolled down, new rows wait behind a button.
	value[any](b, `document.querySelector("#list").scrollTo(0, 1000)`)
	b.until(`document.querySelector("#link").textContent === "live"`)
	s.post("stripe-dev", "/pill", []byte("{}"))
	b.until(`document.querySelector("#new").textContent === "1 new" && !document.querySelector("#new").hidden`)
	value[any](b, `document.querySelector("#new").click()`)
	b.until(`document.querySelector("#rows > li").textContent.includes("/pill") && document.querySelector("#new").hidden`)
}

// longestStall is the longest time, in ms, for which an open event may keep the browser from drawing while
// other events arrive. It is also the longest processor time that a task of a page may take.
const longestStall = 100

// TestBrowserOpenEventStaysStill opens an event while up to 100 other events arrive in each second. The open
// event keeps its folds, scroll position, focus and selection, and the browser continues to draw. The test
// has several rounds; RELAY_STILL_SECONDS is the length of each, by default 5 s.
func TestBrowserOpenEventStaysStill(t *testing.T) {
	relayd := relaytest.Program(t, "relayd")
	s := newDemoServer(t, relayd, false)
	s.stripe("invoice.paid", 1, "Ada Byron")
	b := newBrowser(t, &fixture{t: t, base: s.base})
	b.enter(s)
	idle := &browser{t: t, ctx: shell.tab(t)}
	call(idle, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	seconds := 5
	if n, err := strconv.Atoi(os.Getenv("RELAY_STILL_SECONDS")); err == nil {
		seconds = n
	}
	b.open("/aliases/stripe-dev")
	b.click("#rows a")
	b.until(`document.querySelector("#event") && document.querySelector("#link").textContent === "live"`)
	value[any](b, `document.querySelector("#request-part .fields-fold").open = true; document.querySelector("#facts").open = true; document.querySelector("#request-part pre.json details details").open = false`)
	b.until(`document.querySelector("#facts").open`)
	value[any](b, `document.querySelector("#detail").scrollTo(0, 150); document.querySelector("#compare").focus({preventScroll: true}); getSelection().selectAllChildren(document.querySelector("#event h1"))`)
	const still = `[document.querySelector("#detail").scrollTop, document.querySelector("#request-part .fields-fold").open, document.querySelector("#facts").open,
		document.querySelector("#request-part pre.json details details").open, document.activeElement.id, String(getSelection()), document.querySelector("#event").dataset.eventId].join(" ")`
	before := value[string](b, still)
	begun, best, task := time.Now(), 1e9, 0.0
	for round := range 4 {
		stop := func() float64 { return task }
		if round == 0 {
			// Only one round is traced, because Chromium does not deliver a trace of several minutes.
			stop = b.traceTasks()
		}
		value[any](idle, ticking)
		value[any](b, ticking)
		began, n := time.Now(), 0
		for tick := time.NewTicker(10 * time.Millisecond); time.Since(began) < time.Duration(seconds)*time.Second; n++ {
			<-tick.C
			s.post("stripe-dev", fmt.Sprintf("/still/%d", n), []byte("{}"))
		}
		rate := float64(n) / time.Since(began).Seconds()
		gap, lost := value[float64](b, "gap"), value[float64](idle, "gap")
		t.Logf("%d events, %.0f a second: longest stall %.0f ms, of an idle window %.0f ms", n, rate, gap, lost)
		best, task = min(best, gap-lost), stop()
		if best <= longestStall {
			break
		}
	}
	judgeStall(t, begun, best, task, longestStall)
	if after := value[string](b, still); after != before {
		t.Errorf("the open event moved:\n%s\n%s", before, after)
	}
	b.until(`document.querySelector("#rows > li .path").textContent.includes("/still/")`)
}

// traceTasks starts a trace of Chromium. stop ends the trace, and returns the processor time of the longest
// task of a page, in ms.
func (b *browser) traceTasks() (stop func() float64) {
	type event struct {
		Name     string
		PID, TID int
		TDur     float64 // duration in µs
		Args     struct{ Name string }
	}
	var mu sync.Mutex
	var events []event
	complete := make(chan struct{})
	must(b.t, chromedp.Listen(b.ctx, func(ev any) {
		switch e := ev.(type) {
		case *tracing.EventDataCollected:
			mu.Lock()
			defer mu.Unlock()
			for _, v := range e.Value {
				var one event
				if json.Unmarshal(v, &one) == nil && (one.TDur > 1000 || one.Name == "thread_name") {
					events = append(events, one)
				}
			}
		case *tracing.EventTracingComplete:
			close(complete)
		}
	}))
	call(b, tracing.Start, tracing.StartParams{TraceConfig: &tracing.TraceConfig{IncludedCategories: []string{"toplevel", "__metadata"}}})
	return func() (longest float64) {
		b.t.Helper()
		call(b, tracing.End, cdp.Empty{})
		select {
		case <-complete:
		case <-time.After(patience):
			b.t.Fatal("Chromium does not end its trace")
		}
		mu.Lock()
		defer mu.Unlock()
		pages, seen := map[[2]int]bool{}, false
		for _, e := range events {
			if e.Name == "thread_name" && e.Args.Name == "CrRendererMain" {
				pages[[2]int{e.PID, e.TID}] = true
			}
		}
		for _, e := range events {
			if strings.HasSuffix(e.Name, "RunTask") && pages[[2]int{e.PID, e.TID}] {
				longest, seen = max(longest, e.TDur/1000), true
			}
		}
		if !seen {
			b.t.Fatal("the trace of Chromium has no task of a page")
		}
		return longest
	}
}

// judgeStall compares a processor time (task) and a time without a frame (gap), both in ms, with limits. The
// test fails if task exceeds longestStall, or if gap exceeds most and the machine is not busy. The longest time in which
// this process got no processor since the time begun counts as no part of gap, because it stops the browser, too.
func judgeStall(t *testing.T, begun time.Time, gap, task, most float64) {
	t.Helper()
	_, stopped := relaytest.Slowdown(begun)
	gap -= float64(stopped.Milliseconds())
	t.Logf("longest task of a page: %.0f ms of processor time", task)
	if task > longestStall {
		t.Errorf("a task of the page took %.0f ms of processor time", task)
	}
	if gap > most && isBusy(t) {
		t.Logf("not judged, because the machine is busy: the page stood still for %.0f ms", gap)
	} else if gap > most {
		t.Errorf("the page stood still for %.0f ms", gap)
	}
}

// isBusy reports whether the load average of the last minute is above the number of processors.
func isBusy(t *testing.T) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/loadavg")
	must(t, err)
	load, err := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	must(t, err)
	return load > float64(runtime.NumCPU())
}

// TestBrowserLargeJSON opens a JSON body of nearly 4 MiB. The page draws only a part of its lines, does not
// stall, and knows the JSON path and the value of a line. For printing and for a search with the browser, the
// page draws all lines of a smaller body.
func TestBrowserLargeJSON(t *testing.T) {
	r := newFixture(t)
	r.online()
	var body strings.Builder
	body.WriteString(`{"first":1.0,"list":[`)
	for i := 0; body.Len() < 4<<20-200; i++ {
		if i > 0 {
			body.WriteByte(',')
		}
		fmt.Fprintf(&body, `{"id":%d,"name":"item %d","tags":["a","b"]}`, i, i)
	}
	body.WriteString(`]}`)
	id := r.send(post("/large", body.String())).String()
	b := newBrowser(t, r)
	b.open("/events/" + id)
	b.until(`document.querySelector("[data-whole]:not([hidden])")`)
	stop, begun := b.traceTasks(), time.Now()
	value[any](b, ticking)
	b.click("[data-whole]")
	b.until(`/more lines/.test(document.querySelector("#request pre.json").textContent)`)
	b.until(`document.querySelectorAll("#request pre.json .ln").length > 500`)
	gap, task := value[float64](b, "gap"), stop()
	t.Logf("a body of %d bytes: longest stall %.0f ms, %d lines in the page", body.Len(), gap, value[int](b, `document.querySelectorAll("#request pre.json .ln").length`))
	judgeStall(t, begun, gap, task, 5*longestStall)
	if got := value[string](b, `(pre => { const line = [...pre.querySelectorAll(".ln")].find(l => l.textContent.includes('"item 3"')); return jsonPath(pre.json, Number(line.dataset.line)) + "=" + jsonValue(pre.json, Number(line.dataset.line)); })(document.querySelector("#request pre.json"))`); got != "list[3].name=item 3" {
		t.Errorf("path and value: %q", got)
	}
	if first := value[string](b, `document.querySelector("#request pre.json .literal").textContent`); first != "1.0" {
		t.Errorf("a number was changed to %q", first)
	}
	// Printing, and searching with the browser, include the whole body.
	b.open("/events/" + r.send(post("/list", "["+strings.Repeat("1,", 399)+"1]")).String())
	const lines = `document.querySelectorAll("#request pre.json .ln").length`
	b.until(lines + ` > 300`)
	for _, event := range []string{`new Event("beforeprint")`, `new KeyboardEvent("keydown", { key: "f", ctrlKey: true })`} {
		value[any](b, `showJSON(Object.assign(document.querySelector("#request pre.json"), { jsonSource: undefined }), document.querySelector("#request pre.json").json.lines.join("\n")); 0`)
		before := value[int](b, lines)
		value[any](b, `dispatchEvent(`+event+`); 0`)
		if after := value[int](b, lines); before >= 402 || after != 402 {
			t.Errorf("%s: %d lines, then %d of 402", event, before, after)
		}
	}
}

// enter logs in by a link, as a user does.
func (b *browser) enter(s *demoServer) {
	b.t.Helper()
	do(b, chromedp.Navigate(strings.TrimSpace(s.run(s.relayd, "login-link", "--user", s.account, "--data-dir", s.data))))
	b.click("main button")
	b.until(`location.pathname === "/" && document.querySelector(".cards")`)
}

// ticking is a script that measures the longest time between two frames, in ms, and stores it in window.gap.
const ticking = `window.gap = 0; { let last = performance.now(); const tick = now => { gap = Math.max(gap, now - last); last = now; requestAnimationFrame(tick); }; requestAnimationFrame(tick); }`

// burst sends 1,001 events, and returns the longest gap between two frames of the page, in ms, minus that of an
// idle window. The number n distinguishes the last event of one burst from those of other bursts.
func (b *browser) burst(idle *browser, s *demoServer, n int) float64 {
	b.t.Helper()
	b.open("/aliases/stripe-dev")
	b.until(`document.querySelector("#link").textContent === "live"`)
	value[any](idle, ticking)
	value[any](b, ticking)
	began := time.Now()
	var senders sync.WaitGroup
	for k := range 4 {
		senders.Go(func() {
			for i := range 250 {
				s.post("stripe-dev", fmt.Sprintf("/burst/%d/%d", k, i), []byte("{}"))
			}
		})
	}
	senders.Wait()
	took := time.Since(began)
	s.post("stripe-dev", fmt.Sprintf("/last/%d", n), []byte("{}"))
	b.until(fmt.Sprintf(`(row => row?.textContent.includes("/last/%d") && row.dataset.state === "delivered")(document.querySelector("#rows").firstElementChild)`, n))
	rows := value[int](b, `document.querySelector("#rows").children.length`)
	gap, lost := value[float64](b, "gap"), value[float64](idle, "gap")
	b.t.Logf("burst: 1,001 events sent in %v, %d rows in the page, longest gap %.0f ms, of an idle window %.0f ms", took, rows, gap, lost)
	if rows < 100 || rows > 500 {
		b.t.Errorf("%d rows in the page", rows)
	}
	if lost > longestGap {
		// The idle window had a long gap, too, so the machine was too slow. This large result makes the test
		// send another burst.
		return 1e9
	}
	return gap - lost
}
