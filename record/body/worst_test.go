package body_test

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"relay/record/body"
	"relay/relaytest"
)

// fuzzed are the labels with which the tests read hostile bodies.
var fuzzed = []body.Label{
	{},
	body.NewLabel("application/json"), body.NewLabel("application/x-ndjson"), body.NewLabel("application/x-www-form-urlencoded"),
	body.NewLabel("multipart/form-data; boundary=b"), body.NewLabel("multipart/form-data"), body.NewLabel("text/xml"), body.NewLabel("text/html"),
	body.NewLabel("text/plain; charset=shift_jis"), body.NewLabel("application/x-www-form-urlencoded; charset=gb18030"), body.NewLabel("text/plain; charset=utf-16"),
	body.NewLabel("text/plain; charset=iso-2022-jp"), body.NewLabel("text/plain; charset=utf-32"),
	body.NewLabel("application/json", "gzip"), body.NewLabel("", "deflate"), body.NewLabel("", "br"), body.NewLabel("", "zstd"), body.NewLabel("text/plain", "br, zstd, deflate, gzip"),
}

// TestWorstBytes: the time for reading a body is proportional to its size, for every hostile body.
func TestWorstBytes(t *testing.T) {
	t.Parallel()
	coded := map[string]string{}
	for _, coding := range []string{"gzip", "deflate", "br", "zstd"} {
		coded[coding] = pack(t, coding, "")
	}
	for _, l := range fuzzed {
		t.Run(strings.Join(append(l.Codings, l.Kind, l.Charset, l.Boundary), " "), func(t *testing.T) {
			t.Parallel()
			relaytest.WorstBytes(t, most, func(p []byte) { body.Read(l, p, false, most) })
		})
	}
	for coding, empty := range coded {
		t.Run("nothing, coded as "+coding, func(t *testing.T) {
			t.Parallel()
			relaytest.WorstShapes(t, most, []relaytest.Worst{{Unit: empty}, {Begin: empty[:min(len(empty), 10)], Unit: "\x00\x00\x00\xff\xff"}}, func(p []byte) {
				body.Read(body.NewLabel("", coding), p, false, most)
			})
		})
	}
	t.Run("indented", func(t *testing.T) {
		t.Parallel()
		relaytest.WorstBytes(t, most, func(p []byte) { body.Indent(p) })
	})
	t.Run("label", func(t *testing.T) {
		t.Parallel()
		relaytest.WorstBytes(t, 128<<10, func(p []byte) {
			body.NewLabel(string(p), string(p))
			body.NewLabel("a/b;"+string(p), string(p))
			body.LabelOf(append([]byte("A: b\r\nContent-Type: a; "), p...))
		})
	})
}

// FuzzRead: for any bytes and label, Read takes at most 100 ms for a MiB and holds a limited number of bytes.
// It does not change the bytes, and returns the same reading twice.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,2]}`, "{}\n{}", "a=b&payload=%7B%7D", "--b\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--b--", "<a>b</a>", "\xff\xfea\x00", "\x00",
		pack(f, "gzip", "text"), pack(f, "br", "text"), pack(f, "zstd", "text"), pack(f, "deflate", pack(f, "zstd", "text")),
	} {
		for i := range fuzzed {
			f.Add(i, []byte(seed), false)
		}
	}
	f.Fuzz(func(t *testing.T, label int, p []byte, cut bool) {
		const most = 64 << 10
		l := fuzzed[max(label, 0)%len(fuzzed)]
		given := slices.Clone(p)
		var first *body.Reading
		read := func() { first = body.Read(l, p, cut, most) }
		if relaytest.CPUTime(read) > 100*time.Millisecond*time.Duration(len(p)+most)/(1<<20) { // garbage collection may have taken that time, so it is measured again
			if took, limit := relaytest.Measure(len(p)+most, read); took > limit {
				t.Errorf("%d bytes took %v, more than %v", len(p), took, limit)
			}
		}
		if !bytes.Equal(p, given) {
			t.Error("the bytes were changed")
		}
		if n := held(first); n > 6*most {
			t.Errorf("it holds %d bytes", n)
		}
		if first.Charset == "" && len(first.Text) > most { // a text converted to UTF-8 may be longer
			t.Errorf("a text of %d bytes", len(first.Text))
		}
		if diff := cmp.Diff(first, body.Read(l, p, cut, most)); diff != "" {
			t.Errorf("read twice: %s", diff)
		}
		for _, fault := range first.Faults {
			if fault.At > len(first.Text) {
				t.Errorf("%q is at %d of %d", fault.Text, fault.At, len(first.Text))
			}
		}
		text, _ := body.Open(l, bytes.NewReader(p), most)
		if n, err := io.Copy(io.Discard, text); n > most {
			t.Errorf("a stream of %d bytes, %v", n, err)
		}
	})
}

// held returns the number of bytes of text that a reading holds.
func held(r *body.Reading) int {
	n := len(r.Text)
	for _, f := range r.Fields {
		n += len(f.Name) + len(f.Value)
	}
	for _, p := range r.Parts {
		n += held(p.Reading)
	}
	return n
}
