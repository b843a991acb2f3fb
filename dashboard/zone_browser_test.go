package dashboard_test

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"

	"relay/record"
)

// TestShownTimesAreAccepted: the times that pages show without a script can be typed in the filters since and
// until, and mean the same time there.
func TestShownTimesAreAccepted(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	id := r.send(post("/hook", `{}`, "Stripe-Signature: t=1795860230,v1=x")).String() // queued: no tunnel was ever there
	share := r.submit("/events/"+id+"/shares", url.Values{"expires": {"1d"}}, 200)
	shared := regexp.MustCompile(`/s/[\w-]+`).FindString(share)
	for path, least := range map[string]int{"/events/" + id: 3, "/aliases/hook/replay-queued": 1, shared: 1} {
		page, exact := r.get(path, 200), 0
		for _, m := range regexp.MustCompile(`<time datetime="([^"]+)"[^>]*>(\d{4}-[^<]+)</time>`).FindAllStringSubmatch(page, -1) {
			exact++
			at, err := time.Parse(time.RFC3339Nano, m[1])
			must(t, err)
			unit := time.Second
			if strings.Contains(m[2], ".") {
				unit = time.Millisecond
			}
			for _, name := range []string{"since", "until"} {
				f, err := record.ParseFilterWords(name + `:"` + m[2] + `"`)
				if got := map[string]time.Time{"since": f.Since, "until": f.Until}[name]; err != nil || !got.Equal(at.Truncate(unit)) {
					t.Errorf("%s: %s:%q is %v, want %v: %v", path, name, m[2], got, at, err)
				}
			}
		}
		if exact < least {
			t.Errorf("%s shows %d exact times, want %d", path, exact, least)
		}
		contains(t, path, page, "<noscript", "Times without a zone are in UTC.")
	}
}

// TestBrowserShowsTimesInItsZone: times are shown in the zone of the browser, in the page and in live rows,
// and typed times are read in that zone.
func TestBrowserShowsTimesInItsZone(t *testing.T) {
	r := newFixture(t)
	r.online()
	id := r.send(post("/first", "{}")).String()
	b := newBrowser(t, r)
	// This zone is 5:45 h ahead of UTC all year.
	call(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kathmandu"})
	ahead := time.FixedZone("", int((5*time.Hour + 45*time.Minute).Seconds()))
	local := func(sel, layout string) {
		t.Helper()
		b.see(sel)
		iso, shown := value[string](b, `document.querySelector("`+sel+`").dateTime`), value[string](b, `document.querySelector("`+sel+`").textContent`)
		title := value[string](b, `document.querySelector("`+sel+`").title`)
		at, err := time.Parse(time.RFC3339Nano, iso)
		must(t, err)
		if _, offset := at.Zone(); offset != 0 {
			t.Errorf("%s is not in UTC", iso)
		}
		if want := at.In(ahead).Format(time.DateTime) + " (" + iso + ")"; title != want {
			t.Errorf("%s of %s has the title %q, want %q", sel, iso, title, want)
		}
		if want := at.In(ahead).Format(layout); shown != want {
			t.Errorf("%s of %s shows %q, want %q", sel, iso, shown, want)
		}
	}
	b.open("/aliases/hook")
	b.until(`document.querySelector("#link").textContent === "live"`)
	local("#rows time", time.TimeOnly)
	local("#alias time", time.DateTime+" -07:00")
	second := r.send(post("/second", "{}")).String()
	b.until(`document.querySelectorAll("#rows > li").length === 2`)
	local("#"+second+" time", time.TimeOnly)
	b.open("/events/" + id)
	value[any](b, `document.querySelector("#facts").open = true`)
	local(".facts time", "2006-01-02 15:04:05.000 -07:00")

	// The filter accepts a shown time with its zone. A time without a zone is read in the zone of the
	// browser.
	shown := value[string](b, `document.querySelector(".facts time").textContent`)
	at, err := time.Parse(time.RFC3339Nano, value[string](b, `document.querySelector(".facts time").dateTime`))
	must(t, err)
	for _, typed := range []string{shown, strings.TrimSuffix(shown, " +05:45"), at.In(ahead).Format("2006-01-02T15:04:05.000"), at.Format("2006-01-02T15:04:05.000Z"), at.In(ahead).Format("2006-01-02T15:04:05.000Z07:00")} {
		words := value[string](b, fmt.Sprintf("wordsInUTC(%q)", `x since:"`+typed+`" y`))
		if f, err := record.ParseFilterWords(words); err != nil || !f.Since.Equal(at) {
			t.Errorf("since:%q is %v, want %v: %v", typed, f.Since, at, err)
		}
	}
	for _, typed := range []string{`since:2026-99-99`, `since:24h`, `until:""`, `since:2026-11-29T14:30:00Z`} {
		if words := value[string](b, fmt.Sprintf("wordsInUTC(%q)", typed)); words != typed {
			t.Errorf("%s becomes %s", typed, words)
		}
	}

	b.open("/aliases/hook?path=/first")
	now := time.Now()
	b.write("#search", " since:"+now.Add(-time.Hour).In(ahead).Format("2006-01-02T15:04")+" until:"+now.Add(time.Hour).In(ahead).Format("2006-01-02T15:04")+" ")
	b.key("\r")
	b.until(`location.search.includes("until%3A") && document.querySelector("#list").dataset.src.includes("until")`)
	if rows := value[int](b, `document.querySelectorAll("#rows > li").length`); rows != 1 {
		t.Errorf("%d rows between an hour ago and in an hour: %s", rows, value[string](b, `location.search`))
	}

	// The script that formats the times does not move the content of the page.
	for _, path := range []string{"/account", "/aliases/hook", "/events/" + id} {
		b.open(path)
		const moved = `(() => { const o = new PerformanceObserver(() => {}); o.observe({ type: "layout-shift", buffered: true }); return o.takeRecords().reduce((n, e) => n + e.value, 0.0001); })()`
		if n := value[float64](b, moved); n > 0.01 {
			t.Errorf("%s jumps by %.3f", path, n)
		}
	}
}
