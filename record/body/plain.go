package body

import (
	"bytes"
	"fmt"
	"strings"
)

// Plain returns the whole body as text: JSON is indented, the fields of a form and the parts
// of a multipart body follow one another, and other text is unchanged. ok is false for binary
// bodies.
func (r *Reading) Plain() (text []byte, ok bool) {
	switch r.Form {
	case JSON:
		if !r.isJSON() {
			return r.Text, true
		}
		return Indent(r.Text), true
	case JSONLines:
		var b bytes.Buffer
		for i, d := range r.Documents {
			if i > 0 {
				b.WriteByte('\n')
			}
			if doc := r.Text[d.Start:d.End]; d.Fault {
				b.Write(doc)
			} else {
				b.Write(Indent(doc))
			}
		}
		if n := len(r.Documents); n == maxDocuments {
			b.Write(r.Text[r.Documents[n-1].End:])
		}
		return b.Bytes(), true
	case URLEncoded:
		var b bytes.Buffer
		for _, f := range r.Fields {
			b.WriteString(f.Name + ": ")
			if f.JSON {
				b.Write(Indent([]byte(f.Value)))
			} else {
				b.WriteString(f.Value)
			}
			b.WriteByte('\n')
		}
		return b.Bytes(), true
	case Multipart:
		var b bytes.Buffer
		for _, p := range r.Parts {
			b.WriteString(p.Title() + "\n")
			if text, ok := p.Plain(); ok {
				b.Write(bytes.TrimSuffix(text, []byte("\n")))
			} else {
				fmt.Fprintf(&b, "(%d bytes of binary data)", len(p.Text))
			}
			b.WriteString("\n\n")
		}
		return bytes.TrimSuffix(b.Bytes(), []byte("\n")), true
	case Binary:
		return nil, false
	}
	return r.Text, true
}

// Title names a part in one line: field, file and media type.
func (part *Part) Title() string {
	words := []string{"--"}
	for _, word := range []string{part.Name, part.File, part.Label.Kind} {
		if word != "" {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}
