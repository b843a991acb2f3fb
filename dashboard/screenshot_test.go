package dashboard_test

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// TestScreenshots takes the pictures of the README into the folder that
// RELAY_SCREENSHOTS names, each at most 150 KB; `make screenshots` runs it. With
// RELAY_SCREENSHOTS_ALL every page is taken, for whoever works on them.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("RELAY_SCREENSHOTS")
	if dir == "" {
		t.Skip("RELAY_SCREENSHOTS names no folder")
	}
	g := newGallery(t, 6*time.Millisecond)
	b := newBrowser(t, g.rig)
	take := func(name, path, scheme string, width, height int64) {
		call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
		b.open(path)
		b.until(`document.readyState === "complete"`)
		shot := do(b, chromedp.CaptureScreenshot())
		if os.Getenv("RELAY_SCREENSHOTS_ALL") != "" {
			shot = do(b, chromedp.FullScreenshot(100))
		} else if shot = small(t, shot); len(shot) > 150_000 {
			t.Errorf("%s is %d bytes", name, len(shot))
		}
		must(t, os.WriteFile(filepath.Join(dir, name+".png"), shot, 0o644))
	}
	paid := "/events/" + g.paid.String()
	if os.Getenv("RELAY_SCREENSHOTS_ALL") != "" {
		own, _ := g.pages()
		for i, path := range own {
			take("light-"+string(rune('a'+i)), path, "light", 1200, 800)
		}
		take("dark-home", "/", "dark", 1200, 800)
		take("narrow-stream", "/aliases/stripe-dev", "light", 390, 800)
		take("narrow-event", paid, "light", 390, 800)
		b.mu.Lock()
		b.errors = nil
		b.mu.Unlock()
		return
	}
	take("stream", "/aliases/stripe-dev", "light", 1200, 800)
	take("event", "/events/"+g.single.String(), "light", 1200, 900)
	take("side-by-side", paid+"?diff=1,3#attempts-title", "light", 1200, 1000)
	take("dark", paid, "dark", 1200, 800)
}

// small packs a picture with the 256 colours that it has most of; pages have few.
func small(t *testing.T, shot []byte) []byte {
	t.Helper()
	picture, err := png.Decode(bytes.NewReader(shot))
	must(t, err)
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
	var out bytes.Buffer
	must(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, packed))
	return out.Bytes()
}
