// Package body reads bodies for views, search, filters, event types, comparisons, masks, copies and
// exports. It decodes content coding and charset, removes a byte order mark, and then finds the form.
// Bodies come from untrusted senders, so the output and the time of a reading are proportional to the
// limits that the calling function gives. Stored bytes are never changed.
package body

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Form is the form of a body.
type Form int

// The forms. JSONLines are JSON values one after the other, URLEncoded is a form as browsers send it.
// Text is all other human-readable text.
const (
	Empty Form = iota
	JSON
	JSONLines
	URLEncoded
	Multipart
	XML
	Text
	Binary
)

var formNames = [...]string{"empty", "JSON", "JSON lines", "form", "multipart", "XML", "text", "binary"}

// String returns the name of the form.
func (f Form) String() string { return formNames[f] }

// Reading is the result of reading a body.
type Reading struct {
	Label   Label
	Form    Form
	Text    []byte   // without its content codings and byte order mark, in UTF-8; for binary and multipart bodies, the bytes without content codings
	Codings []string // decoded content codings, in the order of decoding
	Charset string   // charset of the stored text, which was converted; "" = UTF-8
	Mark    bool     // the body began with a byte order mark
	Cut     bool     // Text is not complete
	Faults  []Fault  // errors; the other fields hold everything that could be read in spite of them

	Documents []Document // values of JSON lines
	Fields    []Field    // fields of a form
	Parts     []Part     // parts of a multipart body
}

func (r *Reading) fault(at int, text string) { r.Faults = append(r.Faults, Fault{at, text}) }

// Read reads a body or, with cut, the beginning of a body. The argument most limits the bytes of Text; the
// memory of the whole reading is proportional to it.
func Read(l Label, p []byte, cut bool, most int) *Reading {
	r := &reader{cut: cut}
	if len(l.Codings) == 0 {
		if len(p) > most {
			p, r.cut = p[:most], true
		}
		return r.read(l, p, r.cut, 0)
	}
	src, undone, fault := uncode(l.Codings, bytes.NewReader(p), int64(most)+1)
	plain, err := io.ReadAll(src)
	if len(plain) > most {
		plain, r.cut = plain[:most], true
	}
	out := r.read(l, plain, r.cut, 0)
	if out.Codings = undone; fault != "" {
		out.Faults = append([]Fault{{-1, fault}}, out.Faults...)
	}
	if err != nil && !(r.cut && endsEarly(err)) {
		out.Faults = append([]Fault{{-1, err.Error()}}, out.Faults...)
	}
	return out
}

// reader holds the state of one Read.
type reader struct {
	cut   bool
	parts int // number of parts read so far, of all nested multipart bodies
}

// read reads p, whose content codings are already decoded.
func (r *reader) read(l Label, p []byte, cut bool, depth int) *Reading {
	out := &Reading{Label: l, Text: p, Cut: cut}
	if len(p) == 0 {
		return out
	}
	if l.IsMultipart() && depth < maxNesting && r.multipart(out, p, depth) {
		out.Form = Multipart
		return out
	}
	charset, mark, fault := charsetOf(l, p[:min(len(p), charsetStart)])
	if fault != "" {
		out.fault(-1, fault)
	}
	text, broken, over := inUTF8(charset, p[mark:], max(2*len(p), 1<<10))
	if over {
		out.Cut = true
	}
	switch {
	case charset != "" && broken && !l.isText() && l.Kind != "":
		text, charset, mark = p, "", 0 // the bytes only looked like a mark or a charset by chance
	case broken:
		out.fault(-1, "some bytes are not "+quote(charset)+", and stand as \ufffd")
	}
	out.Charset, out.Mark = charset, mark > 0
	if !IsText(text, out.Cut) && !(l.isText() && isNearlyText(text)) {
		out.Form = Binary
		return out
	}
	if out.Text = text; out.Cut {
		out.Text = WholeRunes(text)
	}
	r.form(out, p[mark:])
	return out
}

// form finds the form of a text. raw holds the bytes of the text before they were converted to UTF-8.
func (r *reader) form(out *Reading, raw []byte) {
	l, text := out.Label, out.Text
	json := StartsJSON(text)
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		out.Form = Text
	case l.isJSONLines():
		out.lines()
	case l.IsJSON():
		if out.json(); len(out.Faults) > 0 && json {
			out.tryLines()
		}
	case json && (l.IsForm() || l.IsVague() || !l.isXML() && l.Kind != "text/html") && out.isJSON():
		out.Form = JSON
	case json && l.IsVague() && out.tryLines():
	case l.IsForm(), (l.Kind == "" || l.Kind == "application/octet-stream") && LooksLikeForm(text):
		if out.Charset != "" && strings.HasPrefix(out.Charset, "utf-") {
			raw = text // in UTF-16 and UTF-32, the search below would not find the field in raw
		}
		charset := out.Charset
		if at := bytes.Index(raw, []byte("_charset_=")); at == 0 || at > 0 && raw[at-1] == '&' { // the field in which browsers send the charset
			name, _, _ := bytes.Cut(raw[at+len("_charset_="):], []byte("&"))
			charset, _, _ = charsetOf(Label{Charset: string(name[:min(len(name), 40)])}, nil)
		}
		var faults []Fault
		out.Form = URLEncoded
		out.Fields, faults = readForm(raw, charset)
		out.Faults = append(out.Faults, faults...)
	case l.isXML() || l.Kind != "text/html" && bytes.HasPrefix(bytes.TrimLeft(text[:min(len(text), 1<<10)], " \t\r\n"), []byte("<?xml")):
		out.Form = XML
		if f := xmlFault(text, out.Cut); f != nil {
			out.Faults = append(out.Faults, *f)
		}
	default:
		out.Form = Text
		if at := notUTF8(text); at >= 0 && (!out.Cut || at < len(text)-utf8.UTFMax) {
			line, column := placeOf(text, at)
			out.fault(at, fmt.Sprintf("Line %d, column %d (byte %d) is not UTF-8", line, column, at))
		}
	}
}

// isJSON reports whether the text is one JSON value, or begins as one if it was cut.
func (r *Reading) isJSON() bool {
	f := jsonFault(r.Text)
	return f == nil || r.Cut && f.At >= len(r.Text)
}

// json reads a text that is labelled as JSON.
func (r *Reading) json() {
	r.Form = JSON
	if f := jsonFault(r.Text); f != nil && !(r.Cut && f.At >= len(r.Text)) {
		r.Faults = append(r.Faults, *f)
	}
}

// lines reads a text that is labelled as JSON lines.
func (r *Reading) lines() { r.listed(jsonLines(r.Text, r.Cut)) }

// listed makes the result of jsonLines the form, the documents and the faults of the reading.
func (r *Reading) listed(list []Document, faults int) {
	r.Form, r.Documents = JSONLines, list
	for _, d := range r.Documents {
		if d.Fault {
			if f := jsonFault(r.Text[d.Start:d.End]); f != nil {
				line, _ := placeOf(r.Text, d.Start)
				r.fault(d.Start, fmt.Sprintf("%s not JSON, the first of them line %d", counted(faults, "line is", "lines are"), line))
			}
			break
		}
	}
	if len(r.Documents) == maxDocuments {
		r.fault(-1, fmt.Sprintf("only the first %d values were read one by one", maxDocuments))
	}
}

// tryLines reads a text as JSON lines if it consists of nothing else: at least two lines, each an
// object or an array. It returns false for other texts.
func (r *Reading) tryLines() bool {
	list, faults := jsonLines(r.Text, r.Cut)
	if faults > 0 || len(list) < 2 {
		return false
	}
	for _, d := range list {
		if !StartsJSON(r.Text[d.Start:d.End]) {
			return false
		}
	}
	kept := r.Faults[:0]
	for _, f := range r.Faults {
		if f.At < 0 || !strings.HasPrefix(f.Text, "Not JSON") {
			kept = append(kept, f)
		}
	}
	r.Faults = kept
	r.listed(list, 0)
	return true
}

// FaultText returns all faults in one line; "" if there are none.
func (r *Reading) FaultText() string {
	list := make([]string, 0, len(r.Faults))
	for _, f := range r.Faults {
		list = append(list, f.Text)
	}
	return strings.Join(list, "; ")
}

// How returns a sentence, without its full stop, on how Text was decoded from the stored bytes; "" = Text
// equals the stored bytes.
func (r *Reading) How() string {
	var steps []string
	if len(r.Codings) > 0 {
		steps = append(steps, "unpacked from "+strings.Join(r.Codings, ", "))
	}
	if r.Charset != "" {
		steps = append(steps, "decoded from "+r.Charset)
	}
	if r.Mark && r.Charset == "" {
		steps = append(steps, "stripped of its byte order mark")
	}
	return strings.Join(steps, ", ")
}

// quote returns untrusted text in quotes, safe to use in a sentence.
func quote(s string) string {
	if len(s) > 60 {
		s = string(WholeRunes([]byte(s[:60]))) + "…"
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f || c == '"' {
			return strconv.Quote(s)
		}
	}
	return s
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
