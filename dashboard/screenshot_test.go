package dashboard_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// TestScreenshots takes the pictures of README and docs/dashboard.md, each at most 150 KB, into the folder
// RELAY_SCREENSHOTS, with the program RELAY_RELAYD. `make screenshots` runs it.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("RELAY_SCREENSHOTS")
	if dir == "" {
		t.Skip("RELAY_SCREENSHOTS names no folder")
	}
	s := newDemoServer(t, os.Getenv("RELAY_RELAYD"), true)
	s.day()
	b := newBrowser(t, &fixture{t: t, base: s.base})
	b.enter(s)
	take := func(name, scheme string, width, height int64) {
		t.Helper()
		b.look(scheme, width, height)
		b.until(`document.readyState === "complete"`)
		if width > 390 {
			b.point()
		}
		must(t, os.WriteFile(filepath.Join(dir, name+".png"), small(t, do(b, chromedp.CaptureScreenshot()), 150_000), 0o644))
	}
	b.open("/aliases/shopify-dev")
	take("queue", "light", 1200, 700)
	b.open("/aliases/stripe-dev?window=24h")
	b.until(`document.querySelector("#link").textContent === "live"`)
	take("stream", "light", 1200, 800)
	failed := value[string](b, `[...document.querySelectorAll("#rows > li")].find(r => r.querySelector(".s5")).dataset.eventId`)
	b.open("/events/" + failed)
	take("event", "light", 1200, 900)

	s.shop.repaired.Store(true)
	b.click("#replay")
	b.until(`document.querySelector('[data-attempt="2"] .s2')`)
	b.until(`document.querySelector("#diff")`)
	value[any](b, `document.activeElement.blur(); announce(); (detail => detail.scrollBy(0, document.querySelector("#attempts-title").getBoundingClientRect().top - detail.getBoundingClientRect().top - 12))(document.querySelector("#detail"))`)
	take("side-by-side", "light", 1200, 1000)
	b.open("/events/" + failed)
	take("dark", "dark", 1200, 800)
	value[any](b, `void fetch("/events/`+failed+`/shares", {method: "POST", body: new URLSearchParams({view: "on", replay: "on", expires: "7d"})}).
		then(r => r.text()).then(text => window.shared = text.match(/\/s\/[A-Za-z0-9_-]+/)[0])`)
	b.until("window.shared !== undefined")
	b.open(value[string](b, "shared"))
	take("share", "light", 1200, 800)
	b.open("/aliases/stripe-dev?window=24h")
	take("phone", "light", 390, 844)
}

// day simulates a day of three senders. It sends the webhooks of the day without pauses, and sets their times
// in the store while relayd is stopped. Then it sends four more webhooks of each sender: one triggers the bug
// of the shop, and those to an alias without a tunnel are queued.
func (s *demoServer) day() {
	s.t.Helper()
	end := time.Now()
	s.stop()
	s.aliases = append(s.aliases, "shopify-dev")
	s.serve()
	s.connect()
	s.shop.slow.Store(true)
	chance := rand.New(rand.NewPCG(1, 2))
	stripe := []string{"charge.succeeded", "invoice.paid", "customer.created", "payment_intent.succeeded", "checkout.session.completed", "invoice.created", "charge.refunded"}
	names := []string{"Ada Byron", "Grace Murray", "Emmy Noether", "Mary Somerville"}
	var times []time.Time
	for at := end.Add(-24*time.Hour + time.Minute); at.Before(end.Add(-2 * time.Minute)); {
		n := len(times)
		s.sentAt, times = at, append(times, at)
		switch name := names[n%len(names)]; n % 5 {
		case 3:
			s.github([]string{"push", "pull_request", "issues", "check_run"}[n/5%4], "opened", n)
		case 4:
			s.shopify([]string{"orders/create", "orders/paid", "products/update"}[n/5%3], n)
		default:
			if n%37 == 0 {
				// An invoice without a name triggers the bug of the shop.
				name = ""
			}
			s.stripe(stripe[chance.IntN(len(stripe))], n, name)
		}
		busy := 1 + 4*max(0, math.Sin(end.Sub(at).Hours()/12*math.Pi))
		at = at.Add(time.Duration((2 + 10*chance.Float64()) / busy * float64(time.Minute)))
	}
	s.sentAt = time.Time{}
	s.stop()
	s.setTimes(times)
	s.aliases = []string{"stripe-dev", "github-dev"}
	s.serve()
	s.connect()
	for n, now := range []struct {
		kind, customer string
		want           int
	}{
		{"customer.subscription.updated", names[0], http.StatusOK},
		{"invoice.paid", "", http.StatusInternalServerError},
		{"payout.paid", names[1], http.StatusOK},
		{"charge.succeeded", names[2], http.StatusOK},
	} {
		got := []int{s.stripe(now.kind, 90+n, now.customer), s.github("push", "opened", 90+n), s.shopify("orders/paid", 90+n)}
		if want := []int{now.want, http.StatusOK, http.StatusAccepted}; !slices.Equal(got, want) {
			s.t.Fatalf("%s, a push and an order are answered %v, want %v", now.kind, got, want)
		}
	}
}

// setTimes sets the times of the events in the store, in the order of their ids. An id begins with the time
// in milliseconds; the other times are in microseconds.
func (s *demoServer) setTimes(times []time.Time) {
	s.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(s.data, "relay.db"))
	must(s.t, err)
	defer db.Close()
	tx, err := db.Begin()
	must(s.t, err)
	exec := func(statement string, args ...any) {
		_, err := tx.Exec(statement, args...)
		must(s.t, err)
	}
	exec(`CREATE TEMP TABLE planned (i INTEGER PRIMARY KEY, us INTEGER)`)
	for i, at := range times {
		exec(`INSERT INTO planned VALUES (?, ?)`, i+1, at.UnixMicro())
	}
	exec(`CREATE TEMP TABLE moved AS SELECT e.id AS old, unhex(printf('%012x', p.us / 1000) || substr(hex(e.id), 13)) AS new, p.us - e.received_at AS later
		FROM (SELECT id, received_at, row_number() OVER (ORDER BY id) AS i FROM events) e JOIN planned p ON p.i = e.i`)
	exec(`UPDATE events SET id = m.new, received_at = received_at + m.later, asked_at = asked_at + m.later FROM moved m WHERE id = m.old`)
	exec(`UPDATE attempts SET event_id = m.new, received_at = received_at + m.later, started_at = started_at + m.later, ended_at = ended_at + m.later FROM moved m WHERE event_id = m.old`)
	exec(`UPDATE payloads SET event_id = m.new FROM moved m WHERE event_id = m.old`)
	must(s.t, tx.Commit())
}

// point makes the page use its rules for a mouse, which a headless browser does not have.
func (b *browser) point() {
	b.t.Helper()
	value[any](b, `for (const rule of document.styleSheets[0].cssRules) if (rule.media?.mediaText === "(hover: none)") rule.media.mediaText = "not all"`)
}

// look sets the color scheme and the window size of the browser.
func (b *browser) look(scheme string, width, height int64) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
}

// TestGallery takes a screenshot of every page at four widths, light and dark, into the folder RELAY_GALLERY,
// for developers of the pages.
func TestGallery(t *testing.T) {
	dir := os.Getenv("RELAY_GALLERY")
	if dir == "" {
		t.Skip("RELAY_GALLERY names no folder")
	}
	g := newAllPages(t)
	b := newBrowser(t, g.fixture)
	n := 0
	every := func(paths []string) {
		for _, path := range paths {
			n++
			name := strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(path[:min(len(path), 30)], "-"), "-")
			for _, width := range []int64{390, 1024, 1440, 1920} {
				b.look("light", width, 900)
				b.open(path)
				b.until(`document.readyState === "complete"`)
				for _, scheme := range []string{"light", "dark"} {
					b.look(scheme, width, 900)
					must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d-%s.%d.%s.png", n, name, width, scheme)), do(b, chromedp.CaptureScreenshot()), 0o644))
				}
			}
		}
	}
	own, admin := g.pages()
	every(own)
	g.login("root")
	b.signIn()
	every(admin)
	call(b, network.ClearBrowserCookies, cdp.Empty{})
	every([]string{"/", "/link/k3yl1nk"})
	b.expect(401, 404, 422)
}

// small compresses a screenshot to at most limit bytes, with as many colors as fit.
func small(t *testing.T, shot []byte, limit int) []byte {
	t.Helper()
	picture, err := png.Decode(bytes.NewReader(shot))
	must(t, err)
	size, often, alike := picture.Bounds(), map[color.Color]int{}, map[[3]uint32]color.Color{}
	for y := range size.Dy() {
		for x := range size.Dx() {
			often[picture.At(x, y)]++
		}
	}
	// edges has the most frequent colors. Of nearly equal colors, as at the edges of letters, it has only
	// one.
	var edges color.Palette
	palette := color.Palette(slices.SortedFunc(maps.Keys(often), func(a, b color.Color) int { return often[b] - often[a] }))
	for _, c := range palette {
		r, g, b, _ := c.RGBA()
		if key := [3]uint32{r >> 12, g >> 12, b >> 12}; alike[key] == nil {
			alike[key], edges = c, append(edges, c)
		}
	}
	for n := 256; n >= 16; n /= 2 {
		most := slices.Clone(palette[:min(len(palette), n/4)])
		packed := image.NewPaletted(size, append(most, edges[:min(len(edges), n-len(most))]...))
		index := map[color.Color]uint8{}
		for c := range often {
			index[c] = uint8(packed.Palette.Index(c))
		}
		for y := range size.Dy() {
			for x := range size.Dx() {
				packed.SetColorIndex(x, y, index[picture.At(x, y)])
			}
		}
		var out bytes.Buffer
		must(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, packed))
		if out.Len() <= limit {
			return out.Bytes()
		}
	}
	t.Fatalf("the picture takes more than %d bytes", limit)
	return nil
}
