package wire_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"relay"
	"relay/wire"
)

// collect rebuilds a message into a string.
func collect(m *relay.Message, head []byte, body io.Reader) (string, error) {
	var out strings.Builder
	err := wire.Rebuild(&out, m, head, body)
	return out.String(), err
}

// refuser is a writer that accepts a number of writes and then refuses every
// write.
type refuser struct {
	takes, calls int
	err          error
}

func (r *refuser) Write(p []byte) (int, error) {
	if r.calls++; r.calls > r.takes {
		return 0, r.err
	}
	return len(p), nil
}

func TestRebuildHead(t *testing.T) {
	t.Parallel()
	m := &relay.Message{Head: []byte("A"), Framing: relay.FramingLength, Body: relay.Body{Data: []byte("body")}}
	for head, want := range map[string]string{"": "Abody", "B": "Bbody"} {
		var other []byte
		if head != "" {
			other = []byte(head)
		}
		if got, err := collect(m, other, nil); got != want || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}

// TestRebuildPart: an incomplete message is rebuilt as far as it is stored.
func TestRebuildPart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, lines, data, want string }{
		{"within data", "5\r\n", "ab", "5\r\nab"},
		{"behind data", "2\r\n", "ab", "2\r\nab"},
		{"within the CRLF behind data", "2\r\n\r", "ab", "2\r\nab\r"},
		{"behind the CRLF behind data", "2\r\n1\r\n\r\n", "abc", "2\r\nab\r\n1\r\nc\r\n"},
		{"within a size", "2\r\n1", "ab", "2\r\nab\r\n1"},
		{"before the LF of a size", "2\r\n1\r", "ab", "2\r\nab\r\n1\r"},
		{"within trailers", "2\r\n0\r\nX: ", "ab", "2\r\nab\r\n0\r\nX: "},
		{"data cut at the capture limit", "2\r\n3\r\n0\r\n\r\n", "abc", "2\r\nab\r\n3\r\nc"},
		{"lines lost", "", "ab", ""},
		{"size that would wrap to 1", "10000000000000001\r\n0\r\n\r\n", "ab", "10000000000000001\r\n0\r\n\r\n"},
	} {
		m := &relay.Message{Framing: relay.FramingChunked, Lines: []byte(c.lines), Body: relay.Body{State: relay.BodyAborted}}
		for piece := 1; piece <= 3; piece++ {
			if got, err := collect(m, nil, pieces([]byte(c.data), piece)); got != c.want || err != nil {
				t.Errorf("%s: got %q, %v, want %q", c.name, got, err, c.want)
			}
		}
	}
}

func TestRebuildErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, framing := range []relay.Framing{relay.FramingLength, relay.FramingChunked, relay.FramingClose} {
		m := &relay.Message{
			Head: []byte("H"), Lines: []byte("4\r\n0\r\n\r\n"), Framing: framing,
			Body: relay.Body{Data: []byte("ab"), Size: 4, State: relay.BodyComplete},
		}
		if _, err := collect(m, nil, nil); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%v: a body that is short of its size gave %v", framing, err)
		}
		if _, err := collect(m, nil, iotest.ErrReader(broken)); !errors.Is(err, broken) {
			t.Errorf("%v: an error of the body was lost: %v", framing, err)
		}
		for refuse := range 2 {
			for _, broken := range []error{broken, io.EOF} { // closed SSH channels return io.EOF
				to := &refuser{takes: refuse, err: broken}
				err := wire.Rebuild(to, m, nil, nil)
				if !errors.Is(err, broken) || to.calls != refuse+1 {
					t.Errorf("%v: an error of the writer was lost: %v after %d calls", framing, err, to.calls)
				}
			}
		}
	}
}
