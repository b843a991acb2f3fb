package record

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"relay"
	"relay/record/body"
	"relay/record/mask"
)

const (
	// CauseStart is the number of bytes at the start of the body of a stored response that Cause reads.
	CauseStart = 4 << 10
	// CauseHead is the number of bytes at the start of the head of such a response that Cause reads.
	CauseHead = 8 << 10
	maxCause  = 200 // characters
)

// causeNames are names under which error responses describe an error; titleNames are names of less
// specific texts.
var (
	causeNames = []string{"error", "message", "detail", "error_description", "error_message", "exception", "msg", "faultstring"}
	titleNames = []string{"title", "reason", "errors"}
)

// Sentence returns one sentence about the last attempt of an event that ended: status, duration, and the
// error text of the response. It is safe to print. The result is "" if there was no response.
//
//	500 after 2.4 ms: Cannot read properties of null (reading 'email')
func Sentence(e *Summary) string {
	if e.Status == nil {
		return ""
	}
	s := strconv.Itoa(*e.Status)
	if e.LatencyMs != nil {
		s += " after " + MillisText(*e.LatencyMs)
	}
	if e.Cause != nil {
		s += ": " + *e.Cause
	}
	return s
}

// Cause returns the error text of a response, as one line that is safe to print. In JSON and forms this is the
// first text with a name of causeNames, or else of titleNames; in HTML it is the title, or else the first
// line; in plain text it is the first line. A text that only repeats the status is returned if there is no
// other. Cause reads at most CauseStart bytes. The result is "" if the response is no error, or has no such
// text.
func Cause(status int, head []byte, b *relay.Body) string {
	if status < http.StatusBadRequest || b.Size == 0 || len(b.Data) == 0 {
		return ""
	}
	start := b.Data[:min(len(b.Data), CauseStart)]
	return causeOf(status, body.Read(body.LabelOf(head[:min(len(head), CauseHead)]), start, int64(len(start)) < b.Size, CauseStart))
}

// Cause returns the error text of a response that may have been masked; "" if a part of that text is masked.
func (r *Response) Cause() string {
	if r == nil || r.Status < http.StatusBadRequest || r.Body == nil {
		return ""
	}
	read, err := r.Body.Read(r.Headers)
	if err != nil {
		return ""
	}
	if len(read.Text) > CauseStart {
		read.Text, read.Cut = read.Text[:CauseStart], true
	}
	if said := causeOf(r.Status, read); !strings.Contains(said, mask.Masked) {
		return said
	}
	return ""
}

func causeOf(status int, r *body.Reading) string {
	c := causes{status: http.StatusText(status)}
	switch r.Form {
	case body.JSON, body.JSONLines:
		c.json(r.Text)
	case body.URLEncoded:
		for _, f := range r.Fields {
			c.named(f.Name, f.Value)
		}
	case body.XML:
		c.markup(r.Text, nil)
	case body.Text:
		if r.Label.Kind == "text/html" || startsHTML(r.Text) {
			c.markup(r.Text, inline)
		} else {
			c.text(r.Text, r.Cut)
		}
	}
	for _, list := range [][]string{c.found, c.titles, c.generic} {
		if len(list) > 0 {
			return SafeTextMax(list[0], maxCause)
		}
	}
	return ""
}

// causes collects the texts of a response that may describe the error, in three ranks: texts that describe
// it, less specific texts, and texts that only repeat the status.
type causes struct {
	status                 string // usual phrase of the status
	found, titles, generic []string
}

// named adds a text if its name is one of causeNames or titleNames.
func (c *causes) named(name, value string) {
	switch name = strings.ToLower(name); {
	case slices.Contains(causeNames, name):
		c.add(&c.found, value)
	case slices.Contains(titleNames, name):
		c.add(&c.titles, value)
	}
}

func (c *causes) add(to *[]string, value string) {
	if len(value) > CauseStart {
		value = value[:CauseStart]
	}
	value = strings.Join(strings.Fields(value), " ")
	switch {
	case value == "":
	case c.repeats(value):
		c.generic = append(c.generic, value)
	default:
		*to = append(*to, value)
	}
}

// repeats reports whether a text only repeats the status of the response.
func (c *causes) repeats(value string) bool {
	bare := strings.ToLower(strings.TrimFunc(value, func(r rune) bool { return !unicode.IsLetter(r) }))
	switch bare {
	case "", strings.ToLower(c.status), "error", "exception", "error code", "error response", "http error", "server error":
		return true
	}
	return false
}

// maxCauseDepth bounds the depth in JSON at which texts are searched.
const maxCauseDepth = 8

// json adds the named texts of JSON, or of its beginning; texts with less nesting come first. Texts in an
// array have the name of the array.
func (c *causes) json(p []byte) {
	d := json.NewDecoder(bytes.NewReader(p))
	d.UseNumber() // without it, a number that is too large for a float64 would be an error
	levels := make([]causes, maxCauseDepth+1)
	for i := range levels {
		levels[i].status = c.status
	}
	walkJSON(d, "", 0, func(name, value string, depth int) {
		if depth == 0 { // the whole body is a text, or a list of texts, so it counts as an error message
			name = causeNames[0]
		}
		levels[depth].named(name, value)
	})
	for i := range levels {
		c.found, c.titles, c.generic = append(c.found, levels[i].found...), append(c.titles, levels[i].titles...), append(c.generic, levels[i].generic...)
	}
}

// walkJSON calls the function text for each string of a value, with the name and the depth of the string. It
// returns false if the value was incomplete or nested too deeply.
func walkJSON(d *json.Decoder, name string, depth int, text func(name, value string, depth int)) bool {
	token, err := d.Token()
	if err != nil {
		return false
	}
	if value, is := token.(string); is {
		text(name, value, depth)
	}
	open, is := token.(json.Delim)
	if !is {
		return true
	}
	for d.More() {
		if open == '{' {
			key, err := d.Token()
			if err != nil {
				return false
			}
			name, _ = key.(string)
		}
		below := depth
		if open == '{' { // the elements of a list have the depth of the list
			below++
		}
		if below > maxCauseDepth || !walkJSON(d, name, below, text) {
			return false
		}
	}
	_, err = d.Token()
	return err == nil
}

// text adds the first line of a text, or the last line of a Python traceback. If cut is set, p is only the
// beginning of the text, so the last line of a traceback is not known.
func (c *causes) text(p []byte, cut bool) {
	trace := bytes.HasPrefix(p, []byte("Traceback (most recent call last)")) && !cut
	for line := range bytes.Lines(p) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if trace {
			c.found = nil
		}
		if c.add(&c.found, string(line)); len(c.found) > 0 && !trace {
			return
		}
	}
}

// startsHTML reports whether a text begins like an HTML page, whatever its label.
func startsHTML(p []byte) bool {
	start := bytes.ToLower(bytes.TrimSpace(p[:min(len(p), 100)]))
	return bytes.HasPrefix(start, []byte("<!doctype html")) || bytes.HasPrefix(start, []byte("<html"))
}

// markup adds the title of HTML, or else the first line of its visible text, and the named texts of XML. The
// argument within holds the elements that do not end a line.
func (c *causes) markup(p []byte, within map[atom.Atom]bool) {
	z := html.NewTokenizer(io.LimitReader(bytes.NewReader(p), CauseStart))
	var tag string
	var line strings.Builder
	end := func() {
		if text := line.String(); tag == "title" || slices.Contains(causeNames, tag) {
			c.add(&c.found, text)
		} else {
			c.add(&c.titles, text)
		}
		line.Reset()
	}
	for len(c.found) == 0 {
		switch z.Next() {
		case html.ErrorToken:
			end()
			return
		case html.TextToken:
			if tag == "script" || tag == "style" {
				continue
			}
			text := string(z.Text())
			if before, _, more := strings.Cut(text, "\n"); more && tag == "pre" {
				line.WriteString(before)
				end()
				continue
			}
			line.WriteString(text)
		case html.StartTagToken, html.EndTagToken, html.SelfClosingTagToken:
			name, _ := z.TagName()
			if within[atom.Lookup(name)] {
				continue
			}
			end()
			tag = string(name)
		}
	}
}

// inline are elements of HTML that do not end a line.
var inline = map[atom.Atom]bool{
	atom.A: true, atom.B: true, atom.Strong: true, atom.I: true, atom.Em: true, atom.Span: true, atom.Code: true, atom.Small: true, atom.Font: true, atom.Tt: true, atom.U: true,
}
