package body

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/url"
	"testing"

	"relay"
	"relay/relaytest"
)

// TestWorstBytes: the time for a view of a body grows at most in proportion to the size of the body.
func TestWorstBytes(t *testing.T) {
	t.Parallel()
	view := func(kind, name string) func(p []byte) {
		head := []byte("POST / HTTP/1.1\r\nContent-Type: " + kind + "\r\n\r\n")
		return func(p []byte) {
			Show(Source{
				ID: "b", Body: &relay.Body{Data: p, Size: int64(len(p)), State: relay.BodyComplete}, Head: head,
				Page: "/", Param: "body", Query: url.Values{"body": {name}},
			})
		}
	}
	for _, c := range []struct {
		name string
		most int
		f    func(p []byte)
	}{
		{"JSON", Shown, view("application/json", viewPretty)},
		{"raw", Shown, view("text/plain", viewRaw)},
		{"hex", Shown, view("a/b", viewHex)},
		{"form", Shown, view("application/x-www-form-urlencoded", viewPretty)},
		{"multipart", Shown, view("multipart/form-data; boundary=b", viewParts)},
		{"query", 16 << 10, func(p []byte) { QueryPairs(append([]byte("/?"), p...)) }},
		{"text", 1 << 20, func(p []byte) { Visible(p) }},
		{"packed", 1 << 20, func(p []byte) {
			var packed bytes.Buffer
			z, _ := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
			_, _ = z.Write(p[:min(len(p), 64<<10)])
			_ = z.Close()
			contentOf([]byte("A: b\r\nContent-Encoding: gzip\r\n\r\n"), &relay.Body{Data: packed.Bytes(), Size: int64(packed.Len())})
			contentOf([]byte("A: b\r\nContent-Encoding: deflate\r\n\r\n"), &relay.Body{Data: p, Size: int64(len(p))})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			relaytest.WorstBytes(t, c.most, c.f)
		})
	}
}

// TestWorstCompression: of a body that would decompress to 64 MiB, only the first Shown bytes are
// decompressed.
func TestWorstCompression(t *testing.T) {
	t.Parallel()
	var bomb bytes.Buffer
	z, _ := gzip.NewWriterLevel(&bomb, gzip.BestCompression)
	_, _ = io.CopyN(z, zeros{}, 64<<20)
	_ = z.Close()
	c := contentOf([]byte("A: b\r\nContent-Encoding: gzip\r\n\r\n"), &relay.Body{Data: bomb.Bytes(), Size: int64(bomb.Len())})
	if len(c.Text) > Shown || !c.Cut {
		t.Errorf("%d bytes of %d were unpacked to %d", bomb.Len(), 64<<20, len(c.Text))
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
