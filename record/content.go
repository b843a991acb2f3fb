package record

import (
	"bytes"
	"context"
	"io"

	"relay"
	"relay/wire"
)

// BodySource reads the stored parts of bodies; package store implements it.
type BodySource interface {
	BodyPart(ctx context.Context, id relay.ID, n, i int) ([]byte, error)
}

// OpenBody returns a reader of a stored body that reads part by part. n is 0 for the body of the request, and
// else the number of the attempt that got the response. OpenBody reads the first part at once, so that an
// error of the store is noticed before a response has begun.
func OpenBody(ctx context.Context, from BodySource, id relay.ID, n int, b *relay.Body) (io.Reader, error) {
	i, parts := 0, b.Parts
	if b.Stored > 0 {
		parts = max(parts, 1) // a body that is stored inside its event has no parts; BodyPart returns it as part 0
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
	next func() ([]byte, error) // returns the next part, or io.EOF after the last one
	part []byte                 // unread rest of the present part
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

// headValue returns the value of the first header line whose name in lower case is name; "" = none.
func headValue(head []byte, name string) string {
	return string(bytes.TrimSpace(value(wire.Fields(head), name)))
}
