package wire_test

import (
	"bytes"
	"strings"
	"testing"

	"relay"
	"relay/wire"
)

func requestBody(framing relay.Framing, length int64) *wire.Body {
	return wire.NewBody(&wire.Head{Framing: framing, Length: length})
}

func responseBody(framing relay.Framing, length int64) *wire.Body {
	return wire.NewBody(&wire.Head{Status: 200, Framing: framing, Length: length})
}

func TestBodyEmptyByFraming(t *testing.T) {
	t.Parallel()
	for _, b := range []*wire.Body{requestBody(relay.FramingNone, 0), requestBody(relay.FramingLength, 0), responseBody(relay.FramingNone, 0)} {
		for range 2 {
			if n, end, err := b.Feed([]byte("next")); n != 0 || !end || err != nil {
				t.Errorf("got %d, %v, %v", n, end, err)
			}
		}
		if err := b.EOF(); err != nil {
			t.Error(err)
		}
	}
}

func TestBodyNotYet(t *testing.T) {
	t.Parallel()
	for _, b := range []*wire.Body{requestBody(relay.FramingLength, 3), requestBody(relay.FramingChunked, 0), responseBody(relay.FramingClose, 0)} {
		if n, end, err := b.Feed(nil); n != 0 || end || err != nil {
			t.Errorf("got %d, %v, %v", n, end, err)
		}
	}
}

func TestBodyEOF(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		body *wire.Body
		wire string
		want string
	}{
		{"request short", requestBody(relay.FramingLength, 3), "ab", relay.CodeCallerGone},
		{"request whole", requestBody(relay.FramingLength, 2), "ab", "ok"},
		{"request before last chunk", requestBody(relay.FramingChunked, 0), "1\r\na\r\n", relay.CodeCallerGone},
		{"request before empty line", requestBody(relay.FramingChunked, 0), "1\r\na\r\n0\r\n", relay.CodeCallerGone},
		{"request chunked whole", requestBody(relay.FramingChunked, 0), "1\r\na\r\n0\r\n\r\n", "ok"},
		{"response short", responseBody(relay.FramingLength, 3), "ab", relay.CodeLocalClosed},
		{"response chunked short", responseBody(relay.FramingChunked, 0), "3\r\nab", relay.CodeLocalClosed},
		{"response until close", responseBody(relay.FramingClose, 0), "ab", "ok"},
	} {
		if _, _, err := c.body.Feed([]byte(c.wire)); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := code(c.body.EOF()); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// TestBodyTee: framing lines and data are passed separately, in the order of transfer, and never both
// at once.
func TestBodyTee(t *testing.T) {
	t.Parallel()
	b := requestBody(relay.FramingChunked, 0)
	var calls []string
	b.Tee = func(decoded, line []byte) {
		if len(decoded) > 0 == (len(line) > 0) {
			t.Errorf("one call with %q and %q", decoded, line)
		}
		calls = append(calls, "d:"+string(decoded)+" l:"+string(line))
	}
	n, end, err := b.Feed([]byte("2;x\r\nab\r\n1\r\nc\r\n0\r\nT: 1\r\n\r\nGET"))
	if n != len("2;x\r\nab\r\n1\r\nc\r\n0\r\nT: 1\r\n\r\n") || !end || err != nil {
		t.Fatalf("got %d, %v, %v", n, end, err)
	}
	want := []string{"d: l:2;x\r\n", "d:ab l:", "d: l:1\r\n", "d:c l:", "d: l:0\r\nT: 1\r\n\r\n"}
	if strings.Join(calls, "|") != strings.Join(want, "|") {
		t.Errorf("got %q\nwant %q", calls, want)
	}
}

// TestBodyOverhead: the framing of a request is kept in memory, so it must not become much longer
// than the data. A response has no such limit, because it may be an endless stream of small chunks.
func TestBodyOverhead(t *testing.T) {
	t.Parallel()
	piece := []byte(strings.Repeat("1;"+strings.Repeat("x", 60)+"\r\na\r\n", 1000))
	feed := func(b *wire.Body, times int) (err error) {
		for range times {
			if _, _, err = b.Feed(piece); err != nil {
				return err
			}
		}
		return nil
	}
	if err := feed(requestBody(relay.FramingChunked, 0), 60); err != nil {
		t.Errorf("below the bound: %v", err)
	}
	if err := feed(requestBody(relay.FramingChunked, 0), 80); code(err) != relay.CodeRequestMalformed {
		t.Errorf("above the bound: %v", err)
	}
	if err := feed(responseBody(relay.FramingChunked, 0), 200); err != nil {
		t.Errorf("response: %v", err)
	}
	whole := bytes.Repeat([]byte("400\r\n"+strings.Repeat("d", 1024)+"\r\n"), 4<<10)
	b := requestBody(relay.FramingChunked, 0)
	for range 8 {
		if _, _, err := b.Feed(whole); err != nil {
			t.Fatalf("32 MiB in chunks of 1 KiB: %v", err)
		}
	}
}

func TestBodyFeedAllocs(t *testing.T) {
	h := &wire.Head{Framing: relay.FramingChunked}
	p := []byte("5;ext=1\r\nhello\r\n")
	b := wire.NewBody(h)
	seen := 0
	b.Tee = func(decoded, line []byte) { seen += len(decoded) + len(line) }
	if got := testing.AllocsPerRun(100, func() { _, _, _ = b.Feed(p) }); got != 0 {
		t.Errorf("Feed costs %v allocations, want none", got)
	}
	if seen == 0 {
		t.Error("Tee saw nothing")
	}
}
