package dashboard_test

import (
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
)

// TestBrowserShowsTimesInItsZone: times that the server sends in UTC are shown in the zone of the
// browser, in the page and in live rows, and typed times are read in that zone.
func TestBrowserShowsTimesInItsZone(t *testing.T) {
	r := newFixture(t)
	r.online()
	id := r.send(post("/first", "{}")).String()
	b := newBrowser(t, r)
	call(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kathmandu"}) // 5:45 ahead, all the year
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
	local("#alias time", time.DateTime)
	second := r.send(post("/second", "{}")).String()
	b.until(`document.querySelectorAll("#rows > li").length === 2`)
	local("#"+second+" time", time.TimeOnly)
	b.open("/events/" + id)
	value[any](b, `document.querySelector("#facts").open = true`)
	local(".facts time", "2006-01-02 15:04:05.000")

	b.open("/aliases/hook?path=/first")
	now := time.Now()
	b.write("#search", " since:"+now.Add(-time.Hour).In(ahead).Format("2006-01-02T15:04")+" until:"+now.Add(time.Hour).In(ahead).Format("2006-01-02T15:04")+" ")
	b.key("\r")
	b.until(`location.search.includes("until%3A") && document.querySelector("#list").dataset.src.includes("until")`)
	if rows := value[int](b, `document.querySelectorAll("#rows > li").length`); rows != 1 {
		t.Errorf("%d rows between an hour ago and in an hour: %s", rows, value[string](b, `location.search`))
	}

	// None of that moves what is on the page already.
	for _, path := range []string{"/account", "/aliases/hook", "/events/" + id} {
		b.open(path)
		const moved = `(() => { const o = new PerformanceObserver(() => {}); o.observe({ type: "layout-shift", buffered: true }); return o.takeRecords().reduce((n, e) => n + e.value, 0.0001); })()`
		if n := value[float64](b, moved); n > 0.01 {
			t.Errorf("%s jumps by %.3f", path, n)
		}
	}
}
