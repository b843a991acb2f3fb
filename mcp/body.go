package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"relay"
	"relay/record"
	"relay/record/body"
)

type bodyIn struct {
	hiding
	ID       string `json:"id"`
	Part     string `json:"part,omitempty" jsonschema:"request or response; default request"`
	Attempt  int    `json:"attempt,omitempty" jsonschema:"number of the attempt whose response is read; default the newest that got one"`
	Offset   int    `json:"offset,omitempty" jsonschema:"bytes to skip; nextOffset of the piece before"`
	Bytes    int    `json:"bytes,omitempty" jsonschema:"length of the piece, at most 65536; default 8192"`
	JSONPath string `json:"jsonPath,omitempty" jsonschema:"the value of a JSON body to read, such as data.object.id or items[0]"`
}

// piece is a result with a part of the text of a body.
type piece struct {
	Text       string `json:"text"`
	Encoding   string `json:"encoding"`   // utf8, or base64 of bytes that are no text
	Size       int64  `json:"size"`       // size of the body as it was sent, in bytes
	TextSize   int    `json:"textSize"`   // size of the text, in which Offset counts, in bytes
	NextOffset *int   `json:"nextOffset"` // null = the text ends here
	Note       string `json:"note"`       // reason why the text is not the whole body; "" = it is
}

func (t *tools) getBody(ctx context.Context, in bodyIn) (any, error) {
	length, err := within("bytes", in.Bytes, usualPiece, maxPiece)
	if err != nil {
		return nil, err
	}
	if in.Offset < 0 {
		return nil, invalid("offset", "expected 0 or more")
	}
	e, err := t.read(ctx, in.ID, true)
	if err != nil {
		return nil, err
	}
	if in.Attempt > 0 {
		if err := t.addAttempt(ctx, e, in.Attempt); err != nil {
			return nil, err
		}
	}
	if !in.Reveal {
		if err := record.Mask(ctx, e); err != nil {
			return nil, err
		}
	}
	b, headers, err := bodyOf(e, in.Part, in.Attempt)
	if err != nil {
		return nil, err
	}
	text, encoding, note := textOf(b, headers, !in.Reveal)
	if in.JSONPath != "" {
		if text, err = valueAt(text, in.JSONPath); err != nil {
			return nil, err
		}
	}
	return cutPiece(piece{Encoding: encoding, Size: b.Size, Note: note}, text, in.Offset, length), nil
}

// bodyOf returns a body in a record, and the header lines of its message.
func bodyOf(e *record.Event, part string, attempt int) (*record.Body, []record.Header, error) {
	switch part {
	case "", record.DiffRequest:
		return e.Request.Body, e.Request.Headers, nil
	case record.DiffResponse:
	default:
		return nil, nil, invalid("part", "expected request or response")
	}
	for i := len(e.Attempts) - 1; i >= 0; i-- {
		a := &e.Attempts[i]
		if a.Response != nil && a.Response.Body != nil && (attempt == 0 || a.Number == attempt) {
			return a.Response.Body, a.Response.Headers, nil
		}
	}
	return nil, nil, relay.Errorf(relay.CodeNotFound, "no such attempt of this event has a response")
}

// textOf returns the decoded text of a body, or its bytes in base64. The text of a masked body is decoded
// already.
func textOf(b *record.Body, headers []record.Header, masked bool) (text []byte, encoding, note string) {
	if b.Truncated {
		note = "this is not all of the body: it is longer than 1 MiB, or a part of it cannot be shown"
	}
	if masked {
		return []byte(b.Data), b.Encoding, note
	}
	r, err := b.Read(headers)
	switch {
	case err != nil:
		return []byte(b.Data), b.Encoding, "the body cannot be decoded"
	case r.Form == body.Binary:
		return []byte(base64.StdEncoding.EncodeToString(r.Text)), record.EncodingBase64, strings.Trim(note+"; "+r.FaultText(), "; ")
	}
	return r.Text, record.EncodingUTF8, strings.Trim(note+"; "+r.FaultText(), "; ")
}

// cutPiece fills p with the part of a text that begins at offset.
func cutPiece(p piece, text []byte, offset, length int) piece {
	p.TextSize = len(text)
	rest := text[min(offset, len(text)):]
	end := min(length, len(rest))
	for end > 0 && end < len(rest) && !utf8.RuneStart(rest[end]) {
		end--
	}
	if end == 0 && len(rest) > 0 { // the piece would be shorter than one character
		_, end = utf8.DecodeRune(rest)
	}
	p.Text = strings.ToValidUTF8(string(rest[:end]), "\ufffd")
	if next := offset + end; end < len(rest) {
		p.NextOffset = &next
	}
	return p
}

// Largest number of bytes and of steps of a path in a JSON text.
const maxPath, maxSteps = 1 << 10, 64

// valueAt returns the value in a JSON text at a path such as data.items[0].id. If several members have one
// name, the last one counts.
func valueAt(text []byte, path string) ([]byte, error) {
	if len(path) > maxPath || strings.Count(path, ".")+strings.Count(path, "[") > maxSteps {
		return nil, bound("jsonPath has at most %d bytes and %d steps", maxPath, maxSteps)
	}
	steps := strings.Split(strings.NewReplacer("[", ".", "]", "").Replace(strings.TrimPrefix(path, "$")), ".")
	steps = slices.DeleteFunc(steps, func(name string) bool { return name == "" })
	switch {
	case len(steps) == 0:
		return text, nil
	case !json.Valid(text):
		return nil, invalid("jsonPath", "this body is not JSON")
	}
	if value := record.ValueAt(text, steps); value != nil {
		return value, nil
	}
	return nil, relay.Errorf(relay.CodeNotFound, "this body has nothing at %s", path)
}
