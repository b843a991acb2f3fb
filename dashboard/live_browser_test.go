package dashboard_test

import (
	"fmt"
	"strings"
	"testing"

	browserdomain "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"relay"
	"relay/api"
	"relay/dashboard"
)

// TestBrowserSaysWhyLiveUpdatesAreRefused: a page whose live updates are refused with 429 shows the reason, and
// is live again once a slot is free.
func TestBrowserSaysWhyLiveUpdatesAreRefused(t *testing.T) {
	limits := api.NewLimits(api.Rate{}, api.Rate{})
	r := newFixture(t, func(o *dashboard.Options) { o.Limits = limits })
	who := relay.Actor{Account: r.alias.Owner}
	var releases []func()
	for {
		release, err := limits.Stream(who)
		if err != nil {
			break
		}
		releases = append(releases, release)
	}
	b := newBrowser(t, r)
	b.expected = []int{429}
	b.open("/aliases/hook")
	b.until(`document.querySelector("#link").textContent === "too many live pages at once, trying again…"`)
	for _, release := range releases {
		release()
	}
	b.until(`document.querySelector("#link").textContent === "live"`)
}

// TestBrowserNotifies: with the permission of the user, a page in the background shows a notification with a
// link for a new event. The title of the page counts new events, also without notifications.
func TestBrowserNotifies(t *testing.T) {
	r := newFixture(t)
	r.online()
	b := newBrowserOf(&whole, t, r)
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `
		window.notices = [];
		window.Notification = class extends Notification { constructor(title, options) { super(title, options); notices.push({ notice: this, text: title + " | " + options.body }); } };
		let isAway = false;
		Object.defineProperty(document, "hidden", { get: () => isAway });
		window.setAway = away => { isAway = away; document.dispatchEvent(new Event("visibilitychange")); };`})
	// permit sets the user's answer to the permission request of this site.
	permit := func(setting browserdomain.PermissionSetting) {
		t.Helper()
		_, err := chromedp.CallBrowser(b.ctx, browserdomain.SetPermission, browserdomain.SetPermissionParams{
			Permission: &browserdomain.PermissionDescriptor{Name: "notifications"}, Setting: setting,
			Origin: r.base, BrowserContextID: chromedp.FromContext(b.ctx).BrowserContextID,
		})
		must(t, err)
	}
	permit(browserdomain.PermissionSettingDenied)
	b.open("/aliases/hook")
	b.until(`document.querySelector("#link").textContent === "live"`)
	b.click("#notify")
	b.waitForAnnouncement("does not allow notifications")
	permit(browserdomain.PermissionSettingGranted)
	b.click("#notify")
	b.until(`document.querySelector("#notify").getAttribute("aria-pressed") === "true"`)
	r.send(post("/seen", "{}"))
	b.until(`document.querySelector("#rows").textContent.includes("/seen")`)
	value[any](b, `setAway(true)`)
	r.send(post("/unseen", "{}"))
	b.until(`notices.length === 1 && document.title.startsWith("(1) ")`)
	if text := value[string](b, `notices[0].text`); !strings.Contains(text, "/unseen | ") || !strings.Contains(text, "hook") {
		t.Errorf("notification %q", text)
	}
	value[any](b, `setAway(false); notices[0].notice.onclick()`)
	b.until(`document.querySelector("#event h1")?.textContent.includes("/unseen") && !document.title.startsWith("(")`)
	b.click("#notify")
	b.until(`document.querySelector("#notify").getAttribute("aria-pressed") === "false"`)
	value[any](b, `setAway(true)`)
	r.send(post("/counted", "{}"))
	b.until(`document.title.startsWith("(1) ")`) // the oldest page stays connected
	if n := value[int](b, `notices.length`); n != 1 {
		t.Errorf("%d notifications though they are off", n)
	}
}

// TestBrowserLateRereadKeepsTheChosenAttempt: if the user opens another attempt while the page is being read
// again, that attempt stays open.
func TestBrowserLateRereadKeepsTheChosenAttempt(t *testing.T) {
	r := newFixture(t)
	r.online()
	id := r.send(post("/hook", `{"a":1}`)).String()
	r.replay(id)
	r.replay(id)
	b := newBrowser(t, r)
	b.open("/events/" + id)
	b.until(`document.querySelector("#link").textContent === "live"`)
	b.until(`document.querySelector("#attempt-3")`)
	do(b, chromedp.Evaluate[bool](`(() => {
		const send = window.fetch;
		window.held = 0;
		window.applied = 0;
		window.release = [];
		window.fetch = async (url, init) => {
			const response = await send(url, init);
			if (String(url) !== "/events/`+id+`") return response;
			held++;
			await new Promise(done => release.push(done));
			setTimeout(() => applied++, 50); // the page has processed the answer by then
			return response;
		};
		return true;
	})()`))
	b.click("#replay")
	b.until(`held > 0`)
	b.click(`.strip [data-attempt="2"] a`)
	b.until(`location.search.includes("attempt=2") && document.querySelector("#attempt-2")`)
	b.until(`release.splice(0).map(done => done()), applied === held`)
	if !value[bool](b, `!!document.querySelector("#attempt-2")`) {
		t.Error("a page read before attempt 2 was opened has replaced it")
	}
}

// TestBrowserChangeWhileAnEventOpens: an event that is replayed after its page was read, and before it is
// shown, is shown with the new attempt.
func TestBrowserChangeWhileAnEventOpens(t *testing.T) {
	r := newFixture(t)
	r.online()
	first := r.send(post("/first", `{"a":1}`)).String()
	second := r.send(post("/second", `{"a":2}`)).String()
	b := newBrowser(t, r)
	b.open("/events/" + first)
	b.until(`document.querySelector("#link").textContent === "live"`)
	do(b, chromedp.Evaluate[bool](`(() => {
		const send = window.fetch;
		window.held = 0;
		const released = new Promise(done => window.release = done);
		window.fetch = async (url, init) => {
			const response = await send(url, init);
			if (new URL(url, location.href).pathname !== "/events/`+second+`") return response;
			held++;
			await released;
			return response;
		};
		window.updates = 0;
		new MutationObserver(() => updates++).observe(document.getElementById("`+second+`"), { subtree: true, childList: true, attributes: true, characterData: true });
		return true;
	})()`))
	b.click(`[id="` + second + `"] a`)
	b.until(`held === 1`)
	before := value[int](b, `updates`)
	r.replay(second)
	b.until(fmt.Sprintf(`updates > %d`, before)) // the row in the list was updated
	do(b, chromedp.Evaluate[bool](`release(), true`))
	b.until(`document.querySelector("#event")?.dataset.eventId === "` + second + `" && document.querySelector("#attempt-2")`)
}

// TestBrowserRepeatsAFailedReread: a failed read of a page is repeated until it succeeds, and the failure is
// announced once.
func TestBrowserRepeatsAFailedReread(t *testing.T) {
	r := newFixture(t)
	r.online()
	b := newBrowser(t, r)
	for _, failure := range []string{
		`Promise.reject(new TypeError("no connection"))`,
		`Promise.resolve(new Response("The database cannot be reached.", { status: 503 }))`,
	} {
		id := r.send(post("/hook", `{"a":1}`)).String()
		b.open("/events/" + id)
		b.until(`document.querySelector("#link").textContent === "live"`)
		do(b, chromedp.Evaluate[bool](`(() => {
			const send = window.fetch;
			window.failures = 0;
			window.failedAt = 0;
			window.isDown = true;
			window.fetch = (url, init) => {
				if (!isDown || new URL(url, location.href).pathname !== "/events/`+id+`") return send(url, init);
				failures++;
				failedAt = performance.now();
				return `+failure+`;
			};
			return true;
		})()`))
		r.replay(id)
		b.until(fmt.Sprintf(`failures > 0 && document.getElementById(%q).querySelector(".replays")`, id))
		b.until(`performance.now() - failedAt > 1500`) // by now no change causes another read, so that the next read is a repetition
		do(b, chromedp.Evaluate[bool](`isDown = false, true`))
		b.until(`document.querySelector("#attempt-2")`)
		if n := value[int](b, `told.filter(text => text.includes("cannot be reached")).length`); n != 1 {
			t.Errorf("%s: the fault was announced %d times", failure, n)
		}
	}
}

// TestBrowserLiveSidebarKeepsTheCurrentPage: after a live update of the sidebar, its link to the list of all
// aliases is marked as current only on that page.
func TestBrowserLiveSidebarKeepsTheCurrentPage(t *testing.T) {
	r := newFixture(t)
	b := newBrowser(t, r)
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `
		window.sidebars = 0;
		window.EventSource = class extends EventSource { addEventListener(name, receive) {
			super.addEventListener(name, e => { receive(e); if (e.data.includes('id="sidebar"')) sidebars++; });
		} };`})
	for path, want := range map[string]string{"/": "page", "/account": "false"} {
		b.open(path)
		b.until(`sidebars > 0`)
		if got := value[string](b, `document.querySelector("#sidebar .all").getAttribute("aria-current")`); got != want {
			t.Errorf("%s: aria-current %q, want %q", path, got, want)
		}
	}
}
