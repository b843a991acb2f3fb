package server

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/flate"

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
// Each write is compressed alone, and completely before it is sent, so that a client that does not read
// occupies only the memory of its answer, and no compressor.
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
	gz      *zipped // nil = the answer is not compressed
}

// WriteHeader keeps the status until the form of the answer is decided; an interim status is sent at
// once.
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
	if c.gz != nil {
		return c.gz.Write(p)
	}
	return c.ResponseWriter.Write(p)
}

// suits reports whether the head of the answer allows compression.
func (c *compressor) suits() bool {
	h := c.Header()
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return (c.status == 0 || c.status >= http.StatusOK && c.status != http.StatusNoContent && c.status != http.StatusPartialContent && c.status != http.StatusNotModified) &&
		slices.Contains(compressed, kind) && h.Get("Content-Encoding") == "" && h.Get("Content-Disposition") == ""
}

// decide sends the head and the held bytes, compressed or not.
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
		c.gz = &zipped{to: c.ResponseWriter}
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

// FlushError implements the interface that http.ResponseController uses: an answer that is flushed
// early is a stream.
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

// Unwrap lets http.ResponseController find deadlines.
func (c *compressor) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// close ends the answer. After a panic it adds nothing, so that the answer is incomplete.
func (c *compressor) close() {
	if !c.decided {
		_ = c.decide(false)
	}
	if c.gz != nil {
		_ = c.gz.Close()
	}
}

// zipped writes a gzip file (RFC 1952) whose pieces do not refer to each other.
type zipped struct {
	to      http.ResponseWriter
	sum     uint32
	size    uint32
	started bool
}

// pieceMax is the largest number of bytes that are compressed at once; nearly every page is one piece.
const pieceMax = 256 << 10

// deflaters are the compressors, of about 1 MiB each. A piece uses one only while it is compressed, and
// deflating limits them to four at a time.
var (
	deflaters = sync.Pool{New: func() any {
		z, _ := flate.NewWriter(nil, flate.DefaultCompression)
		return z
	}}
	deflating = make(chan struct{}, 4)
)

func (z *zipped) Write(p []byte) (int, error) {
	for n := 0; n < len(p); {
		piece := p[n:min(n+pieceMax, len(p))]
		if _, err := z.to.Write(z.deflate(piece)); err != nil {
			return n, err
		}
		n += len(piece)
	}
	return len(p), nil
}

// deflate compresses a piece, and returns the next bytes of the file.
func (z *zipped) deflate(piece []byte) []byte {
	var out bytes.Buffer
	if !z.started {
		z.started = true
		out.Write([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255})
	}
	z.sum = crc32.Update(z.sum, crc32.IEEETable, piece)
	z.size += uint32(len(piece))
	deflating <- struct{}{}
	defer func() { <-deflating }()
	d := deflaters.Get().(*flate.Writer)
	defer deflaters.Put(d)
	d.Reset(&out)
	_, _ = d.Write(piece)
	// Flush fills the last byte, so that the next piece can follow.
	_ = d.Flush()
	return out.Bytes()
}

// Close ends the file: an empty last block, the checksum and the size.
func (z *zipped) Close() error {
	end := binary.LittleEndian.AppendUint32([]byte{3, 0}, z.sum)
	_, err := z.to.Write(binary.LittleEndian.AppendUint32(end, z.size))
	return err
}
