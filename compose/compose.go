// Package compose makes new requests: from a captured one and changes, from nothing, or from the bytes of a
// complete request. Every byte that no change names stays unchanged. Both relayd and the client use the
// package; it does no I/O.
package compose

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"relay"
	"relay/wire"
)

// Request is one complete request in memory.
type Request struct {
	Head    []byte // start line to empty line, as in relay.Message
	Lines   []byte // chunk lines and trailers, as in relay.Message
	Framing relay.Framing
	Body    []byte // body without its transfer coding

	// Changes names the differences from the original request: method, path, header:NAME, body, or body: with
	// a JSON pointer.
	Changes []string

	// Hidden is the name of a header line whose value is the signing secret itself; "" = none.
	Hidden string
}

// Masked is shown in place of a secret.
const Masked = "[masked]"

// Shown returns the request as it is shown to users: without the value of the hidden line.
func (r *Request) Shown() *Request {
	if r.Hidden == "" {
		return r
	}
	shown := *r
	shown.Changes = nil
	shown.setHeader(r.Hidden, []string{Masked})
	return &shown
}

// Header is a header line to set.
type Header struct{ Name, Value string }

// From returns a copy of a captured request. The request must be complete, and body is its whole body.
func From(m *relay.Message, body []byte) *Request {
	return &Request{Head: bytes.Clone(m.Head), Lines: bytes.Clone(m.Lines), Framing: m.Framing, Body: body}
}

// New returns a request without a body, whose only header line is Host.
func New(method, path, host string) (*Request, error) {
	r := &Request{Head: []byte("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n")}
	if err := r.setMethod(method); err != nil {
		return nil, err
	}
	if err := r.setPath(path); err != nil {
		return nil, err
	}
	r.Changes = nil
	return r, nil
}

// Parse reads the exact bytes of one request. It returns an error if bytes follow the request.
func Parse(raw []byte) (*Request, error) {
	h, n, err := wire.Request(raw, wire.Limits{})
	if err == wire.ErrMore {
		return nil, invalid("body", "the request ends within its head: an empty line ends it")
	}
	if err != nil {
		return nil, invalid("body", relay.AsError(err).Detail)
	}
	r := &Request{Head: h.Raw, Framing: h.Framing}
	b := wire.NewBody(h)
	b.Tee = func(data, line []byte) {
		r.Body, r.Lines = append(r.Body, data...), append(r.Lines, line...)
	}
	used, end, err := b.Feed(raw[n:])
	switch {
	case err != nil:
		return nil, invalid("body", relay.AsError(err).Detail)
	case !end:
		return nil, invalid("body", "the request ends within its body")
	case n+used < len(raw):
		return nil, invalid("body", fmt.Sprintf("%d bytes follow the end of the request; send exactly one", len(raw)-n-used))
	}
	return r, nil
}

// Limits are the largest sizes, in bytes, that the listener for aliases accepts; 0 = no limit.
type Limits struct {
	Head, Target int
	Body         int64
}

// Check returns an error if the listener for aliases would refuse the request. New and Apply check each change
// by itself. Check finds what only the whole request shows, such as a second Host line.
func (r *Request) Check(l Limits) error {
	h, _, err := wire.Request(r.Head, wire.Limits{Head: l.Head, Target: l.Target})
	switch e := relay.AsError(err); {
	case err == wire.ErrMore:
		return invalid("body.headers", "the head does not end with an empty line")
	case err != nil && e.Code == relay.CodeTargetTooLong:
		return invalid("body.path", e.Detail)
	case err != nil:
		return invalid("body.headers", e.Detail)
	case h.Framing != r.Framing:
		return invalid("body.headers", "the lines that frame the body cannot be changed: Content-Length and Transfer-Encoding follow from the body")
	case r.Framing == relay.FramingLength && h.Length != int64(len(r.Body)):
		return invalid("body.headers", fmt.Sprintf("Content-Length says %d and the body has %d bytes", h.Length, len(r.Body)))
	case l.Body > 0 && int64(len(r.Body)) > l.Body:
		return relay.Errorf(relay.CodeBodyTooLarge, "the body has %d bytes; the limit is %d", len(r.Body), l.Body)
	}
	return nil
}

// Method returns the method.
func (r *Request) Method() string {
	method, _, _ := wire.StartLine(r.Head)
	return string(method)
}

// Path returns the target as it is shown: without scheme and authority.
func (r *Request) Path() string {
	_, target, _ := wire.StartLine(r.Head)
	return string(wire.ShownTarget(target))
}

// Line returns the value of the first header line with the given name, in any letter case.
func (r *Request) Line(name string) (value string, ok bool) {
	for _, f := range wire.Fields(r.Head) {
		if strings.EqualFold(string(f.Name), name) {
			return string(f.Value), true
		}
	}
	return "", false
}

// Message returns the request in its stored form.
func (r *Request) Message() relay.Message {
	n := int64(len(r.Body))
	return relay.Message{
		Head: r.Head, Lines: r.Lines, Framing: r.Framing,
		Body: relay.Body{Data: r.Body, Stored: n, Size: n, SHA256: sha256.Sum256(r.Body), State: relay.BodyComplete},
	}
}

// Wire returns the exact bytes of the request.
func (r *Request) Wire() []byte {
	m := r.Message()
	var out bytes.Buffer
	_ = wire.Rebuild(&out, &m, nil, nil) // a buffer and a body in memory return no errors
	return out.Bytes()
}

// changed adds a change to the list of changes, unless the list has it already.
func (r *Request) changed(what string) {
	if !slices.Contains(r.Changes, what) {
		r.Changes = append(r.Changes, what)
	}
}

// start returns the range of the start line, without its CRLF. One empty line may come before it.
func (r *Request) start() (from, to int) {
	if bytes.HasPrefix(r.Head, []byte("\r\n")) {
		from = 2
	}
	return from, from + bytes.IndexByte(r.Head[from:], '\r')
}

// replace replaces the bytes of the head between the positions from and to.
func (r *Request) replace(from, to int, with []byte) {
	r.Head = slices.Concat(r.Head[:from], with, r.Head[to:])
}

func (r *Request) setMethod(method string) error {
	from, _ := r.start()
	old := r.Method()
	switch {
	case method == old:
		return nil
	case !isToken(method) || len(method) > 64:
		return invalid("body.method", "expected a method such as POST")
	case method == "CONNECT":
		return invalid("body.method", "CONNECT is not supported")
	}
	r.replace(from, from+len(old), []byte(method))
	r.changed("method")
	return nil
}

func (r *Request) setPath(path string) error {
	from, to := r.start()
	old := r.Path()
	switch {
	case path == old:
		return nil
	case path == "*" && r.Method() == "OPTIONS":
	case !strings.HasPrefix(path, "/"):
		return invalid("body.path", "expected a path that begins with /")
	}
	for _, c := range []byte(path) {
		if c <= ' ' || c == 0x7f {
			return invalid("body.path", "a path has no spaces and no control bytes; write a space as %20")
		}
	}
	line := r.Head[from:to]
	end := from + bytes.LastIndexByte(line, ' ')
	begin := end - len(old)
	if _, target, _ := wire.StartLine(r.Head); !bytes.HasSuffix(target, []byte(old)) { // the target has only an authority, and its path is shown as /
		begin = end
	}
	r.replace(begin, end, []byte(path))
	r.changed("path")
	return nil
}

// headLine is one line of a head.
type headLine struct {
	name     string
	from, to int // range of the line including its CRLF
	value    int // start of the value, after any white space; valueEnd is its end, before any white space
	valueEnd int
}

// lines returns the header lines of a head.
func (r *Request) lines() []headLine {
	var list []headLine
	_, at := r.start()
	for at += 2; at < len(r.Head); {
		n := bytes.IndexByte(r.Head[at:], '\n') + 1
		text := bytes.TrimRight(r.Head[at:at+n], "\r\n")
		if n == 0 || len(text) == 0 {
			break
		}
		name, value, _ := bytes.Cut(text, []byte{':'})
		end := at + len(bytes.TrimRight(text, " \t"))
		begin := at + len(text) - len(bytes.TrimLeft(value, " \t"))
		list = append(list, headLine{string(name), at, at + n, begin, max(begin, end)})
		at += n
	}
	return list
}

// framing reports whether name is that of a header line which says where the body ends. Users cannot set such
// lines, because they follow from the body.
func framing(name string) bool {
	return strings.EqualFold(name, "Content-Length") || strings.EqualFold(name, "Transfer-Encoding")
}

// setHeader sets the values of the header lines with a name. Existing lines get the first values, further values
// become new lines at the end of the head, and existing lines for which no value is left are removed. It reads
// the head only once.
func (r *Request) setHeader(name string, values []string) {
	what := "header:" + strings.ToLower(name)
	var head []byte
	at := 0 // position up to which the old head has been copied
	for _, l := range r.lines() {
		if !strings.EqualFold(l.name, name) {
			continue
		}
		from, to, with := l.from, l.to, ""
		if len(values) > 0 {
			from, to, with, values = l.value, l.valueEnd, values[0], values[1:]
			if string(r.Head[from:to]) == with {
				continue
			}
		}
		head, at = append(append(head, r.Head[at:from]...), with...), to
	}
	if at > 0 {
		r.Head = append(head, r.Head[at:]...)
		r.changed(what)
	}
	for _, v := range values {
		r.Head = wire.AddLines(r.Head, []byte(name+": "+v+"\r\n"))
		r.changed(what)
	}
}

// setBody replaces the body, and adds the argument what to the list of changes. The framing stays of the same
// kind; a request without framing gets a Content-Length.
func (r *Request) setBody(body []byte, what string) {
	if bytes.Equal(body, r.Body) {
		return
	}
	r.Body = body
	r.changed(what)
	switch r.Framing {
	case relay.FramingChunked:
		var lines []byte
		if len(body) > 0 {
			lines = append(strconv.AppendInt(nil, int64(len(body)), 16), "\r\n"...)
		}
		r.Lines = append(lines, lastChunk(r.Lines)...)
	case relay.FramingLength:
		for _, l := range r.lines() {
			if strings.EqualFold(l.name, "Content-Length") {
				r.replace(l.value, l.valueEnd, strconv.AppendInt(nil, int64(len(body)), 10))
				break
			}
		}
	default:
		r.Framing = relay.FramingLength
		r.Head = wire.AddLines(r.Head, fmt.Appendf(nil, "Content-Length: %d\r\n", len(body)))
	}
}

// lastChunk returns the line of the last chunk, whose size is 0, and the trailers after it. If lines has no
// last chunk, it returns one without trailers.
func lastChunk(lines []byte) []byte {
	for rest := lines; len(rest) > 0; {
		digits := bytes.TrimLeft(rest, "0")
		if len(digits) < len(rest) && len(digits) > 0 && !isHex(digits[0]) {
			return rest
		}
		end := bytes.IndexByte(rest, '\n') + 1
		if end == 0 {
			break
		}
		rest = rest[end:]
	}
	return []byte("0\r\n\r\n")
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f' }

func isToken(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte("\"(),/:;<=>?@[\\]{}", c) >= 0 {
			return false
		}
	}
	return s != ""
}

func invalid(field, message string) *relay.Error {
	return &relay.Error{
		Code: relay.CodeValidationFailed, Detail: field + ": " + message,
		Fields: []relay.FieldError{{Location: field, Message: message}},
	}
}
