package dashboard_test

import (
	"fmt"
	"maps"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// show opens a page in a window of the given size. If RELAY_LOOK names a folder, it also stores a screenshot
// there, under the given name and the width.
func (b *browser) show(path string, width, height int64, name string) {
	b.t.Helper()
	b.look("light", width, height)
	b.open(path)
	b.until(fmt.Sprintf(`innerWidth === %d && document.readyState === "complete" && document.querySelector("#link")?.textContent !== ""`, width))
	b.picture(fmt.Sprintf("%s-%d", name, width))
}

func (b *browser) picture(name string) {
	b.t.Helper()
	if dir := os.Getenv("RELAY_LOOK"); dir != "" {
		must(b.t, os.WriteFile(filepath.Join(dir, name+".png"), do(b, chromedp.CaptureScreenshot()), 0o600))
	}
}

// TestStyleSheetKeepsItsGrid: lengths in rem are multiples of 2 px, and all rules use one of four font sizes
// and one of two weights.
func TestStyleSheetKeepsItsGrid(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("assets/style.css")
	must(t, err)
	for n, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "--t") {
			// This line defines one of the four font sizes.
			continue
		}
		rules := regexp.MustCompile(`@(media|container)[^{]*`).ReplaceAllString(line, "")
		for _, length := range regexp.MustCompile(`(\d*\.?\d+)rem\b`).FindAllStringSubmatch(rules, -1) {
			if rem, err := strconv.ParseFloat(length[1], 64); err != nil || rem*8 != math.Trunc(rem*8) {
				t.Errorf("style.css:%d: %s is not a multiple of 2 px", n+1, length[0])
			}
		}
		for _, size := range regexp.MustCompile(`font-size: ([^;]*)`).FindAllStringSubmatch(rules, -1) {
			if size[1] != "inherit" && !regexp.MustCompile(`^var\(--t(12|13|15|20)\)$`).MatchString(size[1]) {
				t.Errorf("style.css:%d: %s", n+1, size[0])
			}
		}
		for _, weight := range regexp.MustCompile(`font-weight: ([^;]*)`).FindAllStringSubmatch(rules, -1) {
			if weight[1] != "400" && weight[1] != "600" && weight[1] != "inherit" {
				t.Errorf("style.css:%d: %s", n+1, weight[0])
			}
		}
	}
}

// TestStyleSheetSuitsOtherBrowsers: beside a prefixed property there is the standard one. The marker of a
// fold is removed in the standard way and in that of Safari. A list of selectors does not mix :has() with
// others, and no rule uses properties that only some browsers know.
func TestStyleSheetSuitsOtherBrowsers(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("assets/style.css")
	must(t, err)
	for _, rule := range regexp.MustCompile(`([^{}]*)\{([^{}]*)\}`).FindAllStringSubmatch(string(text), -1) {
		selector, body := strings.TrimSpace(regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAllString(rule[1], "")), rule[2]
		for _, own := range regexp.MustCompile(`-(?:webkit|moz|ms)-([a-z-]+): ([^;]*);`).FindAllStringSubmatch(body, -1) {
			// All browsers support -webkit-box-orient and -webkit-line-clamp only with the prefix.
			known := own[1] == "box-orient" || own[1] == "line-clamp"
			if !known && !strings.Contains(body, " "+own[1]+": "+own[2]) {
				t.Errorf("%s has only -webkit-%s", selector, own[1])
			}
		}
		if strings.Contains(selector, "summary") && strings.Contains(body, "list-style: none") && !strings.Contains(string(text), selector+"::-webkit-details-marker { display: none; }") {
			t.Errorf("%s keeps its marker in Safari", selector)
		}
		// A browser that does not support one selector of a list ignores the whole rule.
		for _, part := range strings.Split(selector, ",\n") {
			if list := regexp.MustCompile(`\([^()]*\)`).ReplaceAllString(part, ""); strings.Contains(part, ":has(") && strings.Count(list, ",")+1 != strings.Count(list, ":has") {
				t.Errorf("%s is dropped by a browser without :has()", selector)
			}
		}
		if bad := regexp.MustCompile(`field-sizing|text-wrap|text-decoration: \w+ `).FindString(body); bad != "" {
			t.Errorf("%s depends on %q", selector, bad)
		}
	}
}

// offGrid is an expression for the vertical distances and line heights on a page that are not multiples of 4
// px, each with its element. A border counts together with the padding inside it.
const offGrid = `[...new Set([...document.querySelectorAll("body *")].filter(e => e.checkVisibility() && !e.closest("svg, .unseen, .skip") && e.localName !== "option" && e.getBoundingClientRect().height).flatMap(e => {
	const s = getComputedStyle(e), px = name => parseFloat(s[name]) || 0, isOff = n => Math.abs(n / 4 - Math.round(n / 4)) > .01, off = [];
	const edge = parseFloat(getComputedStyle(e.parentElement).borderTopWidth);
	if (isOff(px("lineHeight"))) off.push("lineHeight");
	if (s.display !== "inline") for (const side of ["Top", "Bottom"]) {
		if (isOff(px("margin" + side))) off.push("margin" + side);
		if (![0, px("border" + side + "Width"), edge].some(more => !isOff(px("padding" + side) + more))) off.push("padding" + side);
	}
	if (/flex|grid/.test(s.display) && isOff(px("rowGap"))) off.push("rowGap");
	return off.map(name => e.localName + "." + e.className + " in " + e.parentElement.localName + "." + e.parentElement.className + ": " + name + " " + s[name]);
}))]`

// typeStyles is an expression for the font sizes of all visible text, each with "mono" for a monospaced font.
const typeStyles = `[...new Set([...document.querySelectorAll("body *")].filter(e => e.checkVisibility() && !e.closest("svg, .unseen, .skip") && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())).map(e => getComputedStyle(e)).map(s => parseFloat(s.fontSize) + (s.fontFamily.includes("monospace") ? " mono" : "")))]`

// TestBrowserKeepsItsGrid: on every page of alice, on a laptop and on a phone, vertical distances and line
// heights are multiples of 4 px. All text has one of six styles.
func TestBrowserKeepsItsGrid(t *testing.T) {
	g := newAllPages(t)
	b := newBrowser(t, g.fixture)
	b.expect(401, 404, 422)
	own, _ := g.pages()
	styles := map[string]bool{}
	for _, width := range []int64{390, 1440} {
		b.look("light", width, 900)
		for _, path := range own {
			b.open(path)
			b.until(`document.readyState === "complete"`)
			value[any](b, `document.querySelectorAll("details").forEach(fold => fold.open = true)`)
			for _, bad := range value[[]string](b, offGrid) {
				t.Errorf("%s at %d: %s", path, width, bad)
			}
			for _, style := range value[[]string](b, typeStyles) {
				styles[style] = true
			}
		}
	}
	if got := slices.Sorted(maps.Keys(styles)); !slices.Equal(got, []string{"12", "12 mono", "13", "13 mono", "15", "20"}) {
		t.Errorf("the pages have text of the styles %q", got)
	}
}

// TestBrowserFitsALaptop: without scrolling, a laptop shows the beginning of the newest response and twenty
// rows. The times of the rows are in descending order after a replay, and a phone shows the response of a
// failed event first.
func TestBrowserFitsALaptop(t *testing.T) {
	r := newFixture(t)
	r.online()
	r.answers(func([]byte, []byte) string {
		const body = `{"error":"Cannot read properties of null (reading 'email')","at":"billing.js:41"}`
		return fmt.Sprintf("HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	})
	var ids []string
	for i := range 26 {
		kind := []string{"customer.subscription.updated", "invoice.paid", "checkout.session.completed"}[i%3]
		ids = append(ids, r.send(post("/webhooks/stripe", `{"id":"evt_`+fmt.Sprint(i)+`","type":"`+kind+`","data":{"object":{"id":"in_1","amount":1650,"customer_email":null,"lines":[{"id":"il_1","description":"Pro plan"}]}}}`, "Stripe-Signature: t=1,v1=x")).String())
	}
	r.replay(ids[20])
	b := newBrowser(t, r)
	top := func(sel string) float64 {
		return value[float64](b, `document.querySelector("`+sel+`").getBoundingClientRect().top`)
	}
	for _, size := range [][2]int64{{1440, 900}, {1280, 800}} {
		b.show("/events/"+ids[20], size[0], size[1], "event")
		if y := top("#attempt-2 .content"); y > 500 {
			t.Errorf("at %d x %d the newest answer begins at %.0f", size[0], size[1], y)
		}
		if value[bool](b, `document.documentElement.scrollHeight > innerHeight`) { // the list and the event scroll, each alone
			t.Errorf("at %d x %d the page scrolls as a whole", size[0], size[1])
		}
	}
	b.show("/events/"+ids[20], 390, 844, "event")
	if top("#attempt-2") > top("#request-part") {
		t.Error("on a phone the answer to a request that failed comes behind the request")
	}
	b.show("/aliases/hook", 1440, 900, "alias")
	if n := value[int](b, `[...document.querySelectorAll("#rows > li")].filter(row => row.getBoundingClientRect().bottom <= innerHeight).length`); n < 20 {
		t.Errorf("%d rows are on the screen, want 20", n)
	}
	if !value[bool](b, `[...document.querySelectorAll("#rows time")].every((time, i, all) => !i || all[i - 1].dateTime >= time.dateTime)`) {
		t.Error("the times of the list are not in its order")
	}
}

// TestBrowserRows: in a narrow list two letters stand for the sender, with the name as tooltip. The error
// message has its own line on a phone, and on every screen with comfortable rows.
func TestBrowserRows(t *testing.T) {
	r := newFixture(t)
	r.online()
	r.answers(failing(`{"error":"orders: no customer with this name, so that no invoice was sent"}`))
	failed := r.send(stripe("invoice.paid", 1)).String()
	r.answers(func([]byte, []byte) string { return ok })
	plain := r.send(forge("push", "main")).String()
	b := newBrowser(t, r)
	row := func(id, script string) string {
		return value[string](b, `(row => String(`+script+`))(document.getElementById("`+id+`"))`)
	}
	// under is an expression that tells whether a row has a second line: an element of the class cause or
	// under that is below the event type, left-aligned with it, and within the row.
	const under = `((what, e, all) => e && e.top >= what.bottom - 4 && Math.abs(e.left - what.left) < 4 && e.bottom <= all.bottom)(...[".what", ".cause, .under", "a"].map(s => row.querySelector(s)?.getBoundingClientRect()))`
	for width, want := range map[int64]string{390: "true", 1440: "false", 1920: "false"} {
		b.show("/aliases/hook", width, 900, "rows")
		if got := row(failed, under); got != want {
			t.Errorf("at %d the error message on a second line: %s", width, got)
		}
		mark := `(e => getComputedStyle(e, "::before").content + " " + e.title + " " + e.textContent + " " + e.getBoundingClientRect().width)(row.querySelector(".provider"))`
		if got := row(plain, mark); width < 1920 && got != `"Gi" / "" GitHub GitHub 20` {
			t.Errorf("at %d the sender is %s", width, got)
		}
	}
	b.show("/aliases/hook", 1440, 900, "rows")
	b.click("[popovertarget=me]")
	b.click(`#me button[value="comfortable"]`)
	b.until(`document.readyState === "complete" && document.documentElement.dataset.rows === "comfortable"`)
	for _, width := range []int64{390, 1440, 1920} {
		b.show("/aliases/hook", width, 900, "rows-comfortable")
		b.point()
		for _, id := range []string{failed, plain} {
			if got := row(id, under); got != "true" && (id == failed || width > 390) {
				t.Errorf("at %d, comfortable: %s on a second line: %s", width, id, got)
			}
		}
		if got := row(failed, `row.querySelector(".cause").scrollWidth <= row.querySelector(".cause").clientWidth`); width == 1440 && got != "true" {
			t.Error("the error message is cut short")
		}
	}
	if text := row(plain, `row.querySelector(".under").textContent`); text != "POST /webhooks/github" {
		t.Errorf("the second line is %q", text)
	}
	// A row that arrives live has a second line, too.
	later := r.send(forge("check_run", "created")).String()
	b.until(`document.getElementById("` + later + `")?.querySelector(".under")`)
	b.click("[popovertarget=me]")
	b.click(`#me button[value="compact"]`)
	b.until(`document.readyState === "complete" && !document.documentElement.dataset.rows && !document.querySelector("#rows .under")`)
}

// TestBrowserRowsHoldTheirLabels: a row with a long label shows its time completely, and at least 100 px of
// the event type. In a narrow list the label is on a second line, and in every list if the row has an error message, too.
func TestBrowserRowsHoldTheirLabels(t *testing.T) {
	r := newFixture(t)
	r.online()
	r.answers(failing(`{"error":"orders: no customer with this name, so that no invoice was sent"}`))
	failed := r.send(stripe("invoice.payment_failed", 1)).String()
	r.answers(func([]byte, []byte) string { return ok })
	paid := r.send(stripe("invoice.paid", 1)).String()
	for _, id := range []string{failed, paid} {
		r.submit("/events/"+id+"/mark", url.Values{"pinned": {"on"}, "label": {"regression-of-the-checkout"}}, 200)
	}
	b := newBrowser(t, r)
	for _, width := range []int64{390, 1024, 1440, 1920} {
		b.show("/aliases/hook", width, 900, "labels")
		for _, id := range []string{failed, paid} {
			got := value[[]float64](b, `(row => [".what", ".label", "time"].map(sel => row.querySelector(sel).getBoundingClientRect()).flatMap(box => [box.width, box.right, box.top]).concat(row.getBoundingClientRect().right))(document.getElementById("`+id+`"))`)
			what, labelWidth, timeRight, row := got[0], got[3], got[7], got[9]
			if timeRight > row || what < 100 || labelWidth < 32 {
				t.Errorf("at %d the type has %.0f px, the label %.0f, and the time ends at %.0f of %.0f", width, what, labelWidth, timeRight, row)
			}
			if isBelow := got[5] > got[2]+8; isBelow != (width < 1440 || id == failed) {
				t.Errorf("at %d the label of %s is on a second line: %t", width, id, isBelow)
			}
		}
	}
}

// crowdedRow is an expression for the faults of a row with every set of its optional elements: those that are cut
// off, that cover another one, and an event type of less than 40 px. %s is the id of the row, which has all elements
// except two labels, a note and a latency.
const crowdedRow = `(row => {
	const link = row.querySelector("a"), whole = link.innerHTML, faults = [];
	const optional = {
		cause: e => e.matches(".cause"), note: e => e.matches(".state:not(.pill)"), sent: e => e.matches(".sent"),
		label: e => e.matches(".label:not(.sent, .bad)"), pin: e => e.ariaLabel === "pinned", bad: e => e.matches(".bad"),
		replays: e => e.matches(".replays"), provider: e => e.matches(".provider"), ms: e => e.matches(".ms"),
	}, names = Object.keys(optional);
	for (let set = 0; set < 1 << names.length; set++) {
		const has = name => set >> names.indexOf(name) & 1;
		if (has("cause") && has("note")) continue;
		link.innerHTML = whole;
		const element = (before, classes, text) => before.insertAdjacentHTML("beforebegin", "<span class='" + classes + "'>" + text + "</span>");
		element(link.querySelector(".label"), "state queued", "queued");
		element(link.querySelector(".label"), "label sent", "sent by alice");
		element(link.querySelector(".replays"), "label bad", "expired signature");
		if (!link.querySelector(".ms")) element(link.querySelector("time"), "ms", "1,234 ms");
		for (const name of names) if (!has(name)) [...link.children].filter(optional[name]).forEach(e => e.remove());
		link.querySelector(".what").classList.toggle("said", has("cause"));
		const marks = ["cause", "note", "sent", "label", "bad"].filter(has).length;
		link.className = (has("cause") ? "second" : "") + (marks > 0 ? " marked" : "") + (marks > 1 ? " crowded" : "");
		const outer = link.getBoundingClientRect(), right = outer.right - parseFloat(getComputedStyle(link).paddingRight);
		const boxes = [...link.children].filter(e => e.checkVisibility()).map(e => [e.className || e.ariaLabel || e.localName, e.getBoundingClientRect()]);
		const fault = text => faults.push(names.filter(has).join(" ") + ": " + text);
		boxes.forEach(([name, box], i) => {
			if (box.top < outer.top - 1 || box.bottom > outer.bottom + 1 || box.right > right + 1) fault(name + " is cut off");
			if (/what/.test(name) && box.width < 40) fault("the event type has " + box.width + " px");
			for (const [other, b] of boxes.slice(i + 1)) {
				if (Math.min(box.right, b.right) - Math.max(box.left, b.left) > 1 && Math.min(box.bottom, b.bottom) - Math.max(box.top, b.top) > 4) fault(name + " covers " + other);
			}
		});
	}
	link.innerHTML = whole;
	return faults;
})(document.getElementById("%s"))`

// TestBrowserRowsCutNothingOff: whatever marks, labels and notes a row has, each of them is within the row and covers no
// other one, on every screen, with a mouse and on a touch screen.
func TestBrowserRowsCutNothingOff(t *testing.T) {
	r := newFixture(t)
	r.online()
	r.answers(failing(`{"error":"orders: no customer with this name, so that no invoice was sent"}`))
	id := r.send(stripe("customer.subscription.updated", 1)).String()
	r.replay(id)
	r.submit("/events/"+id+"/mark", url.Values{"pinned": {"on"}, "label": {"regression-of-the-checkout"}}, 200)
	b := newBrowser(t, r)
	for _, width := range []int64{360, 390, 768, 1024, 1280, 1440, 1920} {
		b.show("/aliases/hook", width, 900, "crowded")
		for _, screen := range []string{"touch", "mouse"} {
			if screen == "mouse" {
				b.point()
			}
			if faults := value[[]string](b, fmt.Sprintf(crowdedRow, id)); len(faults) > 0 {
				t.Errorf("at %d px, %s: %d faults, such as\n%s", width, screen, len(faults), strings.Join(faults[:min(len(faults), 8)], "\n"))
			}
		}
	}
}

// TestBrowserMenusAreNotCutOff: at five widths, each open menu is close to its button, within the window, and
// not covered.
func TestBrowserMenusAreNotCutOff(t *testing.T) {
	r := newFixture(t)
	r.online()
	for _, kind := range []string{"customer.subscription.updated", "customer.subscription.deleted", "invoice.paid"} {
		r.send(post("/webhooks/stripe", `{"id":"evt_`+kind+`","type":"`+kind+`"}`, "Stripe-Signature: t=1,v1=x"))
	}
	id := r.send(post("/a", "{}")).String()
	// This makes a share, so that the box of shares contains a list.
	r.submit("/events/"+id+"/shares", url.Values{"expires": {"7d"}, "view": {"on"}}, 200)
	unshared := r.send(post("/b", "{}")).String() // an event without a share, whose button is narrower and so has another place
	b := newBrowser(t, r)
	for _, width := range []int64{390, 1024, 1280, 1440, 1920} {
		for _, path := range []string{"/aliases/hook?status=2xx", "/events/" + id, "/events/" + unshared} {
			b.show(path, width, 900, "menus")
			for _, menu := range value[[]string](b, `[...document.querySelectorAll("[popovertarget]")].filter(e => e.checkVisibility()).map(e => e.getAttribute("popovertarget"))`) {
				b.click("[popovertarget=" + menu + "]")
				b.until(`document.getElementById("` + menu + `").matches(":popover-open")`)
				if menu == "filters" || menu == "more" {
					b.picture(fmt.Sprintf("menu-%s-%d", menu, width))
				}
				// All four corners are visible and within the window.
				if bad := value[string](b, `(menu => { const r = menu.getBoundingClientRect();
					return [[r.left + 12, r.top + 12], [r.right - 20, r.top + 12], [r.left + 12, r.bottom - 12], [r.right - 20, r.bottom - 12]].filter(([x, y]) => !menu.contains(document.elementFromPoint(x, y))).join(" ") +
						(menu.scrollWidth > menu.clientWidth ? " wider than its box" : ""); })(document.getElementById("`+menu+`"))`); bad != "" {
					t.Errorf("%s at %d: menu %s is cut off at %s", path, width, menu, bad)
				}
				if far := value[float64](b, `((a, b) => Math.max(a.left - b.right, b.left - a.right, a.top - b.bottom, b.top - a.bottom))(document.getElementById("`+menu+`").getBoundingClientRect(), document.querySelector("[popovertarget=`+menu+`]").getBoundingClientRect())`); far > 20 && width > 390 {
					t.Errorf("%s at %d: menu %s is %.0f away from its button", path, width, menu, far)
				}
				b.key("\x1b")
				b.until(`!document.querySelector(":popover-open")`)
			}
		}
	}
}
