package wire_test

import (
	"bytes"
	"errors"
	"io"
	"strconv"

	"relay"
	"relay/wire"
)

func itoa(n int) string { return strconv.Itoa(n) }

// code returns the code of a refusal, "ok" for nil and "more" for ErrMore.
func code(err error) string {
	var e *relay.Error
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, wire.ErrMore):
		return "more"
	case errors.As(err, &e):
		return e.Code
	}
	return err.Error()
}

// message is the result of reading one message.
type message struct {
	head        *wire.Head
	body, lines []byte
	n           int // number of bytes read
	end         bool
}

// stored returns the message in the form that the store keeps.
func (m *message) stored() *relay.Message {
	return &relay.Message{
		Head: m.head.Raw, Lines: m.lines, Framing: m.head.Framing,
		Body: relay.Body{Data: m.body, Size: int64(len(m.body)), State: relay.BodyComplete},
	}
}

// rebuilt returns the bytes of the stored message as transferred. The body is passed in pieces.
func (m *message) rebuilt(piece int) ([]byte, error) {
	var wireForm bytes.Buffer
	stored := m.stored()
	err := wire.Rebuild(&wireForm, stored, stored.Head, pieces(stored.Body.Data, piece))
	return wireForm.Bytes(), err
}

func readRequest(p []byte, step int, l wire.Limits) (message, error) {
	return readMessage(p, step, func(p []byte, seen int) (*wire.Head, int, error) {
		l.Seen = seen
		return wire.Request(p, l)
	})
}

func readResponse(p []byte, step int, req *wire.Head) (message, error) {
	return readMessage(p, step, func(p []byte, seen int) (*wire.Head, int, error) {
		return wire.Response(p, wire.Limits{Seen: seen}, req)
	})
}

// readMessage reads p in steps of the given size. It clears pieces of the body after use, so that
// the test fails if a piece is kept.
func readMessage(p []byte, step int, head func(p []byte, seen int) (*wire.Head, int, error)) (m message, err error) {
	have := 0
	for m.head == nil {
		seen := have
		have = min(have+step, len(p))
		m.head, m.n, err = head(p[:have], seen)
		if err == nil {
			break
		}
		if !errors.Is(err, wire.ErrMore) || have == len(p) {
			return m, err
		}
	}
	b := wire.NewBody(m.head)
	b.Tee = func(decoded, line []byte) {
		m.body = append(m.body, decoded...)
		m.lines = append(m.lines, line...)
	}
	_, m.end, err = b.Feed(nil)
	for err == nil && !m.end && m.n < len(p) {
		piece := bytes.Clone(p[m.n:have])
		var n int
		n, m.end, err = b.Feed(piece)
		m.n += n
		clear(piece)
		have = min(max(have, m.n)+step, len(p))
	}
	b.Stop()
	b.Stop() // a second call, as when an exchange is recorded twice
	return m, err
}

// pieces returns a reader of data that reads n bytes at a time.
func pieces(data []byte, n int) io.Reader { return &pieceReader{data, n} }

type pieceReader struct {
	data []byte
	n    int
}

func (r *pieceReader) Read(p []byte) (int, error) {
	if len(r.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.data[:min(r.n, len(r.data))])
	r.data = r.data[n:]
	return n, nil
}
