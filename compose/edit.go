package compose

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"relay"
	"relay/record"
	"relay/record/body"
)

// Edit holds the changes of a request.
type Edit struct {
	Method string   // "" = unchanged
	Path   string   // "" = unchanged
	Header []Header // they replace all lines with the same names
	Remove []string // names of the header lines to remove
	Body   []byte   // nil = unchanged
	// Set holds the new values of members of the JSON body. The keys are paths such as data.object.status, or
	// JSON pointers, which begin with /.
	Set map[string]json.RawMessage
}

// Limits of an edit.
const (
	maxHeaders = 200
	maxName    = 256 // bytes of the name of a header line or of the path of a member; the record of the event contains both
	maxSet     = 50
	maxJSON    = 4 << 20 // largest number of bytes of a body in which members are set
)

// Apply makes the changes. Errors are *relay.Error with code validation-failed and the wrong field.
func (r *Request) Apply(e *Edit) error {
	if err := e.check(); err != nil {
		return err
	}
	if e.Method != "" {
		if err := r.setMethod(e.Method); err != nil {
			return err
		}
	}
	if e.Path != "" {
		if err := r.setPath(e.Path); err != nil {
			return err
		}
	}
	if e.Body != nil {
		if _, typed := r.Line("Content-Type"); !typed && r.Framing == relay.FramingNone && len(e.Body) > 0 && !e.sets("Content-Type") {
			r.setHeader("Content-Type", []string{mediaType(e.Body)})
		}
		r.setBody(e.Body, "body")
	}
	if err := r.set(e.Set); err != nil {
		return err
	}
	for _, name := range e.Remove {
		r.setHeader(name, nil)
	}
	for i, h := range e.Header {
		if slices.ContainsFunc(e.Header[:i], func(o Header) bool { return strings.EqualFold(o.Name, h.Name) }) {
			continue
		}
		var values []string
		for _, o := range e.Header[i:] {
			if strings.EqualFold(o.Name, h.Name) {
				values = append(values, o.Value)
			}
		}
		r.setHeader(h.Name, values)
	}
	return nil
}

func (e *Edit) sets(name string) bool {
	return slices.ContainsFunc(e.Header, func(h Header) bool { return strings.EqualFold(h.Name, name) })
}

// check returns the first mistake in the names and values of an edit.
func (e *Edit) check() error {
	if len(e.Header)+len(e.Remove) > maxHeaders {
		return invalid("body.headers", fmt.Sprintf("there are more than %d header lines", maxHeaders))
	}
	if len(e.Set) > maxSet {
		return invalid("body.set", fmt.Sprintf("there are more than %d members", maxSet))
	}
	const framed = "this line follows from the body and cannot be changed"
	for i, h := range e.Header {
		at := fmt.Sprintf("body.headers[%d]", i)
		switch {
		case !isToken(h.Name) || len(h.Name) > maxName:
			return invalid(at, "expected the name of a header line")
		case framing(h.Name):
			return invalid(at, framed)
		case strings.Trim(h.Value, " \t") != h.Value:
			return invalid(at, "the value begins or ends with white space")
		}
		for _, c := range []byte(h.Value) {
			if c < ' ' && c != '\t' || c == 0x7f {
				return invalid(at, "the value holds a control byte")
			}
		}
	}
	for i, name := range e.Remove {
		switch at := fmt.Sprintf("body.removeHeaders[%d]", i); {
		case !isToken(name) || len(name) > maxName:
			return invalid(at, "expected the name of a header line")
		case framing(name):
			return invalid(at, framed)
		}
	}
	return nil
}

// mediaType returns the media type of a body, guessed from its bytes.
func mediaType(p []byte) string {
	switch {
	case json.Valid(p):
		return "application/json"
	case utf8.Valid(p) && bytes.IndexByte(p, 0) < 0:
		return "text/plain; charset=utf-8"
	}
	return "application/octet-stream"
}

// set replaces members of the JSON body. A content coding is decoded first, and its line removed.
func (r *Request) set(members map[string]json.RawMessage) error {
	if len(members) == 0 {
		return nil
	}
	label, text := body.LabelOf(r.Head), r.Body
	if len(label.Codings) > 0 {
		plain, err := body.Uncoded(label, text, maxJSON)
		if err != nil {
			return invalid("body.set", err.Error()+"; replace the body as a whole")
		}
		text = plain
	}
	mark := []byte("\ufeff")
	doc, marked := bytes.CutPrefix(text, mark)
	if len(doc) > maxJSON || !utf8.Valid(doc) || !json.Valid(doc) {
		return invalid("body.set", fmt.Sprintf("the body is not JSON in UTF-8 of at most %d MiB; replace it as a whole", maxJSON>>20))
	}
	var all change
	changes := []string{}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		path, err := parsePath(name)
		switch {
		case err != nil:
		case len(name) > maxName:
			err = fmt.Errorf("the path is longer than %d bytes", maxName)
		case !json.Valid(members[name]):
			err = errors.New("the value is not JSON")
		}
		if err != nil {
			return invalid("body.set", fmt.Sprintf("%s: %v", name, err))
		}
		all.add(path, members[name])
		changes = append(changes, "body:"+pointerOf(path))
	}
	doc, err := all.apply(doc)
	if err != nil {
		return invalid("body.set", err.Error())
	}
	if c := strings.ToLower(label.Charset); c != "" && c != "utf-8" && c != "utf8" && !isASCII(doc) {
		return invalid("body.set", fmt.Sprintf("the body says that its charset is %.40q, and it or a new value has other characters than ASCII; replace it as a whole", label.Charset))
	}
	if marked {
		doc = slices.Concat(mark, doc)
	}
	if bytes.Equal(doc, text) {
		return nil
	}
	r.setBody(doc, changes[0])
	for _, c := range changes[1:] {
		r.changed(c)
	}
	if len(label.Codings) > 0 {
		r.setHeader("Content-Encoding", nil)
	}
	return nil
}

func isASCII(p []byte) bool {
	return !slices.ContainsFunc(p, func(c byte) bool { return c >= utf8.RuneSelf })
}

// Memory returns roughly the number of bytes that an edit needs in addition to the request and the
// edit itself.
func (e *Edit) Memory(r *Request) int64 {
	if len(e.Set) == 0 {
		return 0
	}
	size := int64(len(r.Body))
	if len(body.LabelOf(r.Head).Codings) > 0 {
		size = 2 * maxJSON // the decoded body, while its buffer grows
	}
	for _, value := range e.Set {
		size += int64(len(value))
	}
	return 2 * size // the body before and after the changes
}

// parsePath splits the path of a member, such as data.object.status or /data/object/status, into names.
func parsePath(name string) ([]string, error) {
	if rest, ok := strings.CutPrefix(name, "/"); ok {
		steps := strings.Split(rest, "/")
		for i, s := range steps {
			steps[i] = strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
		}
		return steps, nil
	}
	steps, ok := record.SplitPath(name)
	if !ok {
		return nil, errors.New("expected a path such as data.object.status, or a JSON pointer")
	}
	return steps, nil
}

// pointerOf writes a path as a JSON pointer (RFC 6901).
func pointerOf(path []string) string {
	var b strings.Builder
	for _, s := range path {
		b.WriteString("/" + strings.ReplaceAll(strings.ReplaceAll(s, "~", "~0"), "/", "~1"))
	}
	return b.String()
}
