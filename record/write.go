package record

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"unicode/utf8"
)

// MaxJSON is the largest number of bytes that the bodies of one record may have as JSON. A body of
// control characters becomes six times as long as JSON. Bodies that exceed MaxJSON are left out.
const MaxJSON = 16 << 20

// writtenPiece is the number of bytes of a body that are encoded at a time.
const writtenPiece = 32 << 10

// Fit leaves out bodies so that the remaining ones have, as JSON, at most as many bytes as most says. The
// request has priority, then the last response, then the responses of the first attempt and of the newest
// attempts.
func (e *Event) Fit(most int64) {
	left := most
	if e.Request != nil {
		e.Request.Body = fitBody(e.Request.Body, &left)
	}
	e.Response = fitResponse(e.Response, &left)
	fitAttempts(e.Attempts[:min(1, len(e.Attempts))], &left)
	for i := len(e.Attempts) - 1; i > 0; i-- {
		fitAttempts(e.Attempts[i:i+1], &left)
	}
}

// FitAttempts is like Fit, for a page of attempts. The attempts at the start of the page have priority.
func FitAttempts(list List[Attempt], most int64) { fitAttempts(list.Data, &most) }

func fitAttempts(list []Attempt, left *int64) {
	for i := range list {
		list[i].Response = fitResponse(list[i].Response, left)
	}
}

// fitResponse returns the response, or a copy without its body if the body is left out. It returns a
// copy because a record refers to its last response twice.
func fitResponse(r *Response, left *int64) *Response {
	if r == nil {
		return nil
	}
	fit := fitBody(r.Body, left)
	if fit == r.Body {
		return r
	}
	out := *r
	out.Body = fit
	return &out
}

func fitBody(b *Body, left *int64) *Body {
	if b == nil {
		return nil
	}
	if size := jsonSize(b.Data); size <= *left {
		*left -= size
		return b
	}
	out := *b
	out.Data, out.Encoding, out.Truncated = "", EncodingUTF8, true
	return &out
}

// jsonSize returns an upper bound of the length of a text as JSON, in bytes.
func jsonSize(s string) (n int64) {
	for i := range len(s) {
		switch c := s[i]; {
		case c < 0x20:
			n += 6
		case c == '"' || c == '\\':
			n += 2
		case c == 0xe2: // may begin U+2028 or U+2029, which are escaped
			n += 4
		default:
			n++
		}
	}
	return n
}

// Weight returns roughly the number of bytes of an event as JSON.
func (e *Event) Weight() int64 {
	n := int64(4<<10) + jsonSize(e.Path) + jsonSize(e.URL)
	if e.Sent != nil {
		for _, change := range e.Changes {
			n += jsonSize(change)
		}
	}
	if e.Request != nil {
		n += weightOf(e.Request.Headers, e.Request.Trailers, e.Request.Body)
	}
	return n + e.Response.weight() + AttemptsWeight(e.Attempts)
}

// AttemptsWeight returns roughly the number of bytes of attempts as JSON.
func AttemptsWeight(list []Attempt) (n int64) {
	for i := range list {
		n += 1<<10 + list[i].Response.weight()
	}
	return n
}

func (r *Response) weight() (n int64) {
	if r == nil {
		return 0
	}
	for i := range r.Interim {
		n += weightOf(r.Interim[i].Headers, nil, nil)
	}
	return n + weightOf(r.Headers, r.Trailers, r.Body)
}

func weightOf(headers, trailers []Header, b *Body) (n int64) {
	for _, list := range [][]Header{headers, trailers} {
		for _, h := range list {
			for _, text := range h {
				n += jsonSize(text) + 3
			}
		}
	}
	if b != nil {
		n += jsonSize(b.Data) + 200
	}
	return n
}

// WriteEvent writes the JSON of a record in pieces, so that memory holds no second copy of the record.
// The output is that of encoding/json without the escapes for HTML.
func WriteEvent(w io.Writer, e *Event) error {
	out := &pieceWriter{w: w}
	out.begin(e.Summary)
	out.text(`,"request":`)
	out.message(e.Request)
	out.text(`,"response":`)
	out.response(e.Response)
	out.text(`,"timing":`)
	out.value(e.Timing)
	out.text(`,"attempts":`)
	out.attempts(e.Attempts)
	out.text("}\n")
	return out.err
}

// WriteAttempts writes the JSON of a page of attempts as WriteEvent does.
func WriteAttempts(w io.Writer, list List[Attempt]) error {
	out := &pieceWriter{w: w}
	out.text(`{"data":`)
	out.attempts(list.Data)
	out.text("}\n")
	return out.err
}

// pieceWriter writes pieces of JSON until a write fails.
type pieceWriter struct {
	w       io.Writer
	err     error
	encoded bytes.Buffer
}

func (w *pieceWriter) text(s string) { w.write([]byte(s)) }

func (w *pieceWriter) write(p []byte) {
	for len(p) > 0 && w.err == nil {
		n := min(writtenPiece, len(p))
		_, w.err = w.w.Write(p[:n])
		p = p[n:]
	}
}

// encode returns a small value as JSON. The result is valid until the next call.
func (w *pieceWriter) encode(v any) []byte {
	w.encoded.Reset()
	to := json.NewEncoder(&w.encoded)
	to.SetEscapeHTML(false)
	if err := to.Encode(v); err != nil && w.err == nil {
		w.err = err
	}
	return bytes.TrimSuffix(w.encoded.Bytes(), []byte("\n"))
}

func (w *pieceWriter) value(v any) { w.write(w.encode(v)) }

// begin writes an object without its closing bracket.
func (w *pieceWriter) begin(v any) { w.write(bytes.TrimSuffix(w.encode(v), []byte("}"))) }

// beginNull writes an object whose last member is null, without that null and the closing bracket.
func (w *pieceWriter) beginNull(v any) { w.write(bytes.TrimSuffix(w.encode(v), []byte("null}"))) }

func (w *pieceWriter) message(m *Message) {
	if m == nil {
		w.text("null")
		return
	}
	head := *m
	head.Body = nil
	w.beginNull(head)
	w.body(m.Body)
	w.text("}")
}

func (w *pieceWriter) response(r *Response) {
	if r == nil {
		w.text("null")
		return
	}
	head := *r
	head.Body = nil
	w.begin(head)
	if r.Body != nil {
		w.text(`,"body":`)
		w.body(r.Body)
	}
	w.text("}")
}

func (w *pieceWriter) attempts(list []Attempt) {
	if list == nil {
		w.text("null")
		return
	}
	w.text("[")
	for i := range list {
		if i > 0 {
			w.text(",")
		}
		a := list[i]
		a.Response = nil
		w.beginNull(a)
		w.response(list[i].Response)
		w.text("}")
	}
	w.text("]")
}

func (w *pieceWriter) body(b *Body) {
	if b == nil {
		w.text("null")
		return
	}
	const data = `"data":"`
	head := *b
	head.Data = ""
	before, after, _ := strings.Cut(string(w.encode(head)), data)
	w.text(before + data)
	for rest := b.Data; rest != "" && w.err == nil; {
		n := min(writtenPiece, len(rest))
		for n < len(rest) && !utf8.RuneStart(rest[n]) && n > 1 {
			n--
		}
		piece := w.encode(rest[:n])
		w.write(piece[1 : len(piece)-1])
		rest = rest[n:]
	}
	w.text(after)
}
