package compose

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"

	"relay"
)

// Text returns the request as text for an editor: the head with LF line ends, an empty line, and the body. It
// returns an error if the body is not text.
func (r *Request) Text() ([]byte, error) {
	if !utf8.Valid(r.Body) || bytes.IndexByte(r.Body, 0) >= 0 {
		return nil, invalid("body", "the body is binary, so it cannot be edited as text; replace it by a file")
	}
	return append(bytes.ReplaceAll(r.Head, []byte("\r\n"), []byte("\n")), r.Body...), nil
}

// Edited returns the request after a user has edited the result of Text. The argument text is the edited text.
// The length or the chunks are computed from the body. A line break that the editor has added at the end is
// ignored.
func (r *Request) Edited(text []byte) (*Request, error) {
	text = bytes.TrimLeft(text, "\r\n")
	head, body, ok := bytes.Cut(text, []byte("\n\n"))
	if crlf, rest, found := bytes.Cut(text, []byte("\r\n\r\n")); found && (!ok || len(crlf) < len(head)) {
		head, body, ok = crlf, rest, true
	}
	if !ok {
		head, body = bytes.TrimRight(text, "\r\n"), nil
	}
	if !bytes.HasSuffix(r.Body, []byte("\n")) {
		body = bytes.TrimSuffix(bytes.TrimSuffix(body, []byte("\n")), []byte("\r"))
	}
	var lines []string
	for line := range strings.SplitSeq(string(head), "\n") {
		lines = append(lines, strings.TrimSuffix(line, "\r"))
	}
	out := &Request{Head: []byte(strings.Join(lines, "\r\n") + "\r\n\r\n"), Lines: r.Lines, Framing: r.Framing, Body: r.Body}
	if r.Framing == relay.FramingNone && len(body) == 0 {
		body = r.Body
	}
	out.setBody(body, "body")
	if out.Framing == relay.FramingLength {
		for _, l := range out.lines() {
			if strings.EqualFold(l.name, "Content-Length") {
				out.replace(l.value, l.valueEnd, strconv.AppendInt(nil, int64(len(out.Body)), 10))
				break
			}
		}
	}
	if err := out.Check(Limits{}); err != nil {
		return nil, err
	}
	out.Changes = Compare(r, out)
	return out, nil
}
