package dashboard_test

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
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

// TestScreenshots takes the pictures of the README into the folder that
// RELAY_SCREENSHOTS names, each at most 150 KB, from the relayd program that
// RELAY_RELAYD names; `make screenshots` runs it.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("RELAY_SCREENSHOTS")
	if dir == "" {
		t.Skip("RELAY_SCREENSHOTS names no folder")
	}
	s := newDemoServer(t, os.Getenv("RELAY_RELAYD"), true)
	s.traffic()
	b := newBrowser(t, &fixture{t: t, base: s.base})
	b.enter(s)
	const most = 150_000 // bytes
	take := func(name, scheme string, height int64) {
		t.Helper()
		b.look(scheme, 1200, height)
		shot := do(b, chromedp.CaptureScreenshot())
		if len(shot) > most {
			shot = small(t, shot, most)
		}
		if len(shot) > most {
			t.Errorf("%s is %d bytes", name, len(shot))
		}
		must(t, os.WriteFile(filepath.Join(dir, name+".png"), shot, 0o644))
	}
	b.open("/aliases/stripe-dev")
	b.until(`document.querySelector("#link").textContent === "live"`)
	take("stream", "light", 800)
	failed := value[string](b, `[...document.querySelectorAll("#rows > li")].find(r => r.querySelector(".s5")).dataset.eventId`)
	b.open("/events/" + failed)
	b.until(`document.readyState === "complete"`)
	take("event", "light", 900)

	s.shop.repaired.Store(true)
	b.click("#replay")
	b.until(`document.querySelector('[data-attempt="2"] .s2')`)
	b.until(`document.querySelector("#diff")`)
	value[any](b, `document.activeElement.blur(); announce(); document.querySelector("#attempts-title").scrollIntoView()`)
	take("side-by-side", "light", 1000)
	b.open("/events/" + failed)
	b.until(`document.readyState === "complete"`)
	take("dark", "dark", 800)
}

// traffic is a minute of what a payment provider and a forge send, one event of which
// meets the bug of the shop.
func (s *demoServer) traffic() {
	s.t.Helper()
	kinds := []string{
		"customer.created", "checkout.session.completed", "invoice.created", "invoice.paid", "charge.succeeded", "payment_intent.succeeded",
		"customer.subscription.updated", "invoice.payment_failed", "charge.refunded", "invoice.paid", "payout.paid", "customer.updated", "charge.succeeded", "invoice.created",
	}
	names := []string{"Ada Byron", "Grace Murray", "Emmy Noether", "Mary Somerville"}
	for i, kind := range kinds {
		if got := s.stripe(kind, i, names[i%len(names)]); got != 200 {
			s.t.Fatalf("the shop answers %s by %d", kind, got)
		}
		if i%5 == 0 {
			s.github([]string{"push", "pull_request", "issues"}[i/5], "opened", i)
			s.post("stripe-dev", "/health", nil, "User-Agent", "curl/8.5.0")
		}
		time.Sleep(time.Duration(1+i%4) * time.Second) // traffic over time; how long answers take is the shop's own
	}
	if got := s.stripe("invoice.paid", 41, ""); got != 500 {
		s.t.Fatalf("the shop has no bug: %d", got)
	}
	s.stripe("charge.succeeded", 42, names[0])
	s.stripe("checkout.session.completed", 43, names[1])
}

// look sets how a page is looked at.
func (b *browser) look(scheme string, width, height int64) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
}

// TestGallery takes every page at four widths, light and dark, into the folder that
// RELAY_GALLERY names, for whoever works on them.
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
			for _, width := range []int64{390, 768, 1280, 1920} {
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

// squeeze packs a picture as it is.
func squeeze(t *testing.T, picture image.Image) []byte {
	t.Helper()
	var out bytes.Buffer
	must(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, picture))
	return out.Bytes()
}

// small packs a picture into most bytes, if need be with the 256 colours that it has
// most of; pages have few.
func small(t *testing.T, shot []byte, most int) []byte {
	t.Helper()
	picture, err := png.Decode(bytes.NewReader(shot))
	must(t, err)
	if whole := squeeze(t, picture); len(whole) <= most {
		return whole
	}
	often, size := map[color.Color]int{}, picture.Bounds()
	for y := range size.Dy() {
		for x := range size.Dx() {
			often[picture.At(x, y)]++
		}
	}
	colours := color.Palette(slices.SortedFunc(maps.Keys(often), func(a, b color.Color) int { return often[b] - often[a] }))
	colours = colours[:min(len(colours), 256)]
	index := map[color.Color]uint8{}
	packed := image.NewPaletted(size, colours)
	for y := range size.Dy() {
		for x := range size.Dx() {
			c := picture.At(x, y)
			i, known := index[c]
			if !known {
				i = uint8(colours.Index(c))
				index[c] = i
			}
			packed.SetColorIndex(x, y, i)
		}
	}
	return squeeze(t, packed)
}
