package record

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"io"
	"mime"
	"strings"

	"relay"
	"relay/wire"
)

// BodySource reads the stored parts of bodies; the store satisfies it.
type BodySource interface {
	BodyPart(ctx context.Context, id relay.ID, n, i int) ([]byte, error)
}

// OpenBody returns what reads a stored body part by part: n is 0 for that of the request,
// else the number of an attempt. The first part is read at once, so that a store that is
// gone is found before anything is answered.
func OpenBody(ctx context.Context, from BodySource, id relay.ID, n int, b *relay.Body) (io.Reader, error) {
	i, parts := 0, b.Parts
	if b.Stored > 0 {
		parts = max(parts, 1) // a body that is stored with its row is part 0
	}
	r := &bodyReader{next: func() ([]byte, error) {
		if i >= parts {
			return nil, io.EOF
		}
		i++
		return from.BodyPart(ctx, id, n, i-1)
	}}
	err := r.fill()
	if err == io.EOF {
		err = nil
	}
	return r, err
}

// bodyReader reads parts as one stream.
type bodyReader struct {
	next func() ([]byte, error) // the next part, io.EOF behind the last one
	part []byte                 // what is left of the last one
}

func (r *bodyReader) fill() (err error) {
	for len(r.part) == 0 && err == nil {
		r.part, err = r.next()
	}
	return err
}

func (r *bodyReader) Read(p []byte) (int, error) {
	if err := r.fill(); err != nil {
		return 0, err
	}
	n := copy(p, r.part)
	r.part = r.part[n:]
	return n, nil
}

// ContentType returns the media type that a head names, in lower case, with its
// parameters; "" when it names none.
func ContentType(head []byte) (kind string, params map[string]string) {
	kind, params, _ = mime.ParseMediaType(headValue(head, "content-type"))
	return kind, params
}

// ContentCoding returns the content coding that a head names, in lower case; "" when it
// names none, or identity.
func ContentCoding(head []byte) string {
	coding := strings.ToLower(headValue(head, "content-encoding"))
	if coding == "identity" {
		return ""
	}
	return coding
}

// headValue returns the first value of a header line by its lower-case name; "" when there
// is none, or no head.
func headValue(head []byte, name string) string {
	return string(bytes.TrimSpace(value(wire.Fields(head), name)))
}

// DecodeContent returns body without the content coding that its head names: gzip or
// deflate, with or without the zlib header, which many senders leave out (RFC 9110,
// 8.4.1.2). Bodies of another coding, and those that do not begin as the coding does, come
// as they are, with decoded = false. The result has no bound: a few bytes may become very
// many.
func DecodeContent(head []byte, body io.Reader) (r io.Reader, decoded bool) {
	coding := ContentCoding(head)
	if coding != "gzip" && coding != "x-gzip" && coding != "deflate" {
		return body, false
	}
	in := bufio.NewReader(body)
	start, _ := in.Peek(2)
	if len(start) < 2 {
		return in, false
	}
	isZlib := start[0]&15 == 8 && (int(start[0])<<8+int(start[1]))%31 == 0
	switch {
	case coding == "deflate" && isZlib:
		if z, err := zlib.NewReader(in); err == nil {
			return z, true
		}
	case coding == "deflate":
		return flate.NewReader(in), true
	case start[0] == 0x1f && start[1] == 0x8b:
		if z, err := gzip.NewReader(in); err == nil {
			return z, true
		}
	}
	return in, false
}
