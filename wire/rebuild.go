package wire

import (
	"bytes"
	"fmt"
	"io"

	"relay"
)

// Rebuild passes the exact wire form of a stored message to to, in pieces: head (used
// instead of m.Head), then the body with its framing. next returns the decoded body
// piece by piece and io.EOF at its end; it may be nil if m.Body.Data is the whole body.
// A piece is valid during the call of to only. It may be as small as a chunk-size line,
// so to should collect pieces.
//
// An incomplete message is rebuilt as far as it is stored. If it ends after the data of
// a chunk, the part of the CRLF that Body.Stop noted follows. Errors are those of next
// and to, and io.ErrUnexpectedEOF if a body whose state is complete has another size
// than m.Body.Size.
func Rebuild(m *relay.Message, head []byte, next func() ([]byte, error), to func([]byte) error) error {
	if head == nil {
		head = m.Head
	}
	if err := to(head); err != nil {
		return err
	}
	if m.Framing == relay.FramingNone {
		return nil
	}
	r := rebuilder{next: next, to: to}
	if next == nil {
		r.piece, r.ended = m.Body.Data, true
	}
	var err error
	if m.Framing == relay.FramingChunked {
		err = r.chunks(m.Lines)
	} else {
		err = r.data(-1)
	}
	if err != nil {
		return err
	}
	if b := &m.Body; b.State == relay.BodyComplete && b.Size != 0 && r.passed != b.Size {
		return fmt.Errorf("rebuild body: %d of %d bytes: %w", r.passed, b.Size, io.ErrUnexpectedEOF)
	}
	return nil
}

// rebuilder passes pieces of the decoded body to to.
type rebuilder struct {
	next   func() ([]byte, error)
	to     func([]byte) error
	piece  []byte
	ended  bool
	passed int64
}

// data passes n bytes of the body to to, or all if n is negative. It passes fewer if
// the body ends before.
func (r *rebuilder) data(n int64) error {
	for n != 0 {
		for len(r.piece) == 0 {
			if r.ended {
				return nil
			}
			piece, err := r.next()
			if err == io.EOF {
				r.ended, err = true, nil
			}
			if err != nil {
				return err
			}
			r.piece = piece
		}
		piece := r.piece
		if n >= 0 && int64(len(piece)) > n {
			piece = piece[:n]
		}
		if err := r.to(piece); err != nil {
			return err
		}
		r.piece = r.piece[len(piece):]
		r.passed += int64(len(piece))
		if n >= 0 {
			n -= int64(len(piece))
		}
	}
	return nil
}

// chunks passes the stored lines and the data in wire order.
func (r *rebuilder) chunks(lines []byte) error {
	for len(lines) > 0 {
		end := bytes.IndexByte(lines, '\n') + 1
		size, ok := chunkSize(lines)
		if end == 0 || !ok || size == 0 {
			return r.to(lines) // the last chunk and the trailers, or a line that broke off
		}
		if err := r.to(lines[:end]); err != nil {
			return err
		}
		lines = lines[end:]
		had := r.passed
		if err := r.data(size); err != nil {
			return err
		}
		switch {
		case r.passed-had < size || len(lines) == 0:
			return nil
		case lines[0] == '\r': // no line begins so: it broke off within the CRLF, or after it
			return r.to(lines)
		}
		if err := r.to([]byte("\r\n")); err != nil {
			return err
		}
	}
	return nil
}
