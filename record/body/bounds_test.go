package body_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"relay/record/body"
)

// TestBoundsOfReading: for each limit of a reading, a value at the limit is read, and a larger one is
// not.
func TestBoundsOfReading(t *testing.T) {
	t.Parallel()
	for codings := 4; codings <= 5; codings++ {
		packed := "text"
		for range codings {
			packed = pack(t, "gzip", packed)
		}
		r := body.Read(body.NewLabel("text/plain", strings.Repeat("gzip,", codings)), []byte(packed), false, most)
		if read := string(r.Text) == "text"; read != (codings == 4) {
			t.Errorf("%d codings: %.20q, %s", codings, r.Text, r.FaultText())
		}
	}
	for depth := 3; depth <= 4; depth++ {
		kind, text := "text/plain", "inside"
		for i := range depth {
			text = fmt.Sprintf("--b%[1]d\r\nContent-Type: %[2]s\r\n\r\n%[3]s\r\n--b%[1]d--\r\n", i, kind, text)
			kind = fmt.Sprintf("multipart/mixed; boundary=b%d", i)
		}
		r, deep := read(kind, text), 0
		for r.Form == body.Multipart {
			deep, r = deep+1, r.Parts[0].Reading
		}
		if deep != 3 {
			t.Errorf("of %d bodies within each other %d are read", depth, deep)
		}
	}
	for parts := 1000; parts <= 1001; parts++ {
		r := read("multipart/mixed; boundary=b", strings.Repeat("--b\r\n\r\nx\r\n", parts)+"--b--")
		if len(r.Parts) != 1000 || (r.FaultText() == "") != (parts == 1000) {
			t.Errorf("of %d parts %d are read: %s", parts, len(r.Parts), r.FaultText())
		}
	}
	for window := 8 << 20; window <= 16<<20; window *= 2 { // RFC 9659 limits the memory of a decoder to 8 MiB
		var packed bytes.Buffer
		w, err := zstd.NewWriter(&packed, zstd.WithWindowSize(window), zstd.WithSingleSegment(false))
		if err == nil {
			_, _ = w.Write([]byte("text"))
			err = w.Flush() // Flush writes the frame header before the size of the content is known, so that the header names the window
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		r := body.Read(body.NewLabel("text/plain", "zstd"), packed.Bytes(), false, most)
		if read := string(r.Text) == "text"; read != (window == 8<<20) {
			t.Errorf("a window of %d MiB: %.20q, %s", window>>20, r.Text, r.FaultText())
		}
	}
}

// With two content codings, the inner data is read only up to a limit: text after 100 empty gzip members is
// found, and text after a million is not.
func TestBombOfTwoCodings(t *testing.T) {
	t.Parallel()
	var nothing bytes.Buffer
	if err := gzip.NewWriter(&nothing).Close(); err != nil {
		t.Fatal(err)
	}
	for members, whole := range map[int]bool{100: true, 1_000_000: false} {
		packed := pack(t, "gzip", strings.Repeat(nothing.String(), members)+pack(t, "gzip", "behind all"))
		r := body.Read(body.NewLabel("text/plain", "gzip, gzip"), []byte(packed), false, 1<<20)
		if got := string(r.Text) == "behind all"; got != whole {
			t.Errorf("%d empty members: %.20q, %s", members, r.Text, r.FaultText())
		}
	}
}
