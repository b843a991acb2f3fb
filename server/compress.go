package server

import (
	"bytes"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"

	"relay/wire"
)

// compressFrom is the smallest size in bytes of answers that are compressed.
const compressFrom = 1 << 10

// compressed are the media types of answers that are compressed. The type of live streams is not in the
// list.
var compressed = []string{
	"text/html", "text/css", "text/javascript", "application/javascript", "application/json", "application/problem+json", "application/yaml", "image/svg+xml",
}

// Compress compresses the answers of the base site for clients that accept gzip. Pages and JSON become five
// times smaller.
//
// It does not compress answers to forms and other changes, because some of them contain a new secret. Other
// answers leak nothing by their size (BREACH): cookies are SameSite, so a page of another site cannot request
// an answer that contains both a secret and text of its choice.
//
// Each write is compressed without the state of earlier ones (gzip.StatelessCompression), and completely
// before it is sent. So a client that does not read occupies no memory for the state of a compressor. A page
// becomes a tenth larger than by compression with state.
func Compress(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.Header.Get("Range") != "" || !wire.AcceptsCoding(r.Header.Values("Accept-Encoding"), "gzip") {
			next.ServeHTTP(w, r)
			return
		}
		c := &compressor{ResponseWriter: w}
		next.ServeHTTP(c, r)
		c.close()
	})
}

// compressor holds back the first KiB of an answer, and compresses longer answers.
type compressor struct {
	http.ResponseWriter
	status  int
	start   []byte
	decided bool
	gz      *gzip.Writer // nil = the answer is not compressed
	packed  bytes.Buffer // what gz has written and is not sent yet
}

// WriteHeader keeps the status until it is decided whether the answer is compressed. An interim status (1xx)
// is sent at once.
func (c *compressor) WriteHeader(status int) {
	switch {
	case status < http.StatusOK:
		c.ResponseWriter.WriteHeader(status)
	case c.status == 0:
		c.status = status
	}
}

func (c *compressor) Write(p []byte) (int, error) {
	if !c.decided {
		if len(c.start)+len(p) < compressFrom && c.suits() {
			c.start = append(c.start, p...)
			return len(p), nil
		}
		if err := c.decide(c.suits()); err != nil {
			return 0, err
		}
	}
	if c.gz == nil {
		return c.ResponseWriter.Write(p)
	}
	for n := 0; n < len(p); {
		piece := p[n:min(n+pieceMax, len(p))]
		_, _ = c.gz.Write(piece)
		if err := c.send(); err != nil {
			return n, err
		}
		n += len(piece)
	}
	return len(p), nil
}

// pieceMax is the largest number of bytes that are compressed in one step; nearly every page is one piece.
const pieceMax = 256 << 10

// send sends what gz has written.
func (c *compressor) send() error {
	_, err := c.packed.WriteTo(c.ResponseWriter)
	return err
}

// suits reports whether the head of the answer allows compression.
func (c *compressor) suits() bool {
	h := c.Header()
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return (c.status == 0 || c.status >= http.StatusOK && c.status != http.StatusNoContent && c.status != http.StatusPartialContent && c.status != http.StatusNotModified) &&
		slices.Contains(compressed, kind) && h.Get("Content-Encoding") == "" && h.Get("Content-Disposition") == ""
}

// decide sends the head and the bytes that were held back. The argument gz says whether to compress the answer.
func (c *compressor) decide(gz bool) error {
	c.decided = true
	h := c.Header()
	if c.suits() {
		h.Add("Vary", "Accept-Encoding")
	}
	if gz {
		h.Set("Content-Encoding", "gzip")
		h.Del("Content-Length")
		if tag := h.Get("ETag"); strings.HasPrefix(tag, `"`) {
			h.Set("ETag", "W/"+tag)
		}
		c.gz, _ = gzip.NewWriterLevel(&c.packed, gzip.StatelessCompression)
	}
	if c.status != 0 {
		c.ResponseWriter.WriteHeader(c.status)
	}
	start := c.start
	c.start = nil
	if len(start) == 0 {
		return nil
	}
	_, err := c.Write(start)
	return err
}

// FlushError implements the interface that http.ResponseController uses. An answer that is flushed before
// compressor has decided about it is a stream, which is not compressed.
func (c *compressor) FlushError() error {
	if !c.decided {
		if err := c.decide(false); err != nil {
			return err
		}
	}
	return http.NewResponseController(c.ResponseWriter).Flush()
}

// Flush implements http.Flusher.
func (c *compressor) Flush() { _ = c.FlushError() }

// Unwrap lets http.ResponseController find the methods that set deadlines.
func (c *compressor) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// close ends the answer. After a panic of the handler it is not called, so that the answer stays incomplete.
func (c *compressor) close() {
	if !c.decided {
		_ = c.decide(false)
	}
	if c.gz != nil {
		_ = c.gz.Close()
		_ = c.send()
	}
}
