package body

import (
	"bufio"
	"context"
	"io"

	"golang.org/x/text/transform"
)

// Large is the size in bytes from which readings of bodies take turns: two run at a time, others wait.
const Large = 256 << 10

// turns holds an entry for each large reading in progress. At most two run at the same time, because each may use
// some hundred MiB.
var turns = make(chan struct{}, 2)

// Turn waits until a reading of n bytes may begin. A reading of at most Large bytes never waits. The calling
// function must call done after the reading. If ctx ends during the wait, Turn returns the error of ctx.
func Turn(ctx context.Context, n int) (done func(), err error) {
	if n <= Large {
		return func() {}, nil
	}
	select {
	case turns <- struct{}{}:
		return func() { <-turns }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Open returns the text of a body, decoded and in UTF-8, as a stream that ends after the number of bytes in most.
// start is a copy of the beginning of the text, from which the form of the body can be found. If a content coding
// cannot be decoded, the text keeps that coding. An error that does not come from src means that coded data is
// damaged or incomplete.
func Open(l Label, src io.Reader, most int64) (text io.Reader, start []byte) {
	r := src
	if len(l.Codings) > 0 {
		r, _, _ = uncode(l.Codings, src, most)
	}
	in := bufio.NewReaderSize(r, 4*charsetStart)
	start, _ = in.Peek(charsetStart)
	if l.IsMultipart() {
		return io.LimitReader(in, most), start
	}
	charset, mark, _ := charsetOf(l, start)
	e := encodingOf(charset)
	if e == nil {
		_, _ = in.Discard(mark)
		start, _ = in.Peek(charsetStart)
		return io.LimitReader(in, most), start
	}
	if text, broken, _ := inUTF8(charset, start[mark:], 4*charsetStart); broken && !l.isText() && !IsText(text, true) {
		return io.LimitReader(in, most), start
	}
	_, _ = in.Discard(mark)
	out := bufio.NewReaderSize(transform.NewReader(in, e.NewDecoder()), 4*charsetStart)
	start, _ = out.Peek(charsetStart)
	return io.LimitReader(out, most), start
}
