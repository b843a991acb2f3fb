package body

import (
	"strings"

	"relay/wire"
)

// Label holds the header values that describe the body of a message.
type Label struct {
	Kind     string   // media type in lower case, "" = none
	Charset  string   // charset as written, "" = none
	Boundary string   // boundary of a multipart body, "" = none
	Codings  []string // content codings in lower case, in the order in which they were applied
}

// LabelOf reads the label of a message from its head.
func LabelOf(head []byte) Label {
	var kind string
	var codings []string
	typed := false
	for _, f := range wire.Fields(head) {
		switch name := string(f.Name); {
		case !typed && strings.EqualFold(name, "content-type"):
			kind, typed = string(f.Value), true
		case strings.EqualFold(name, "content-encoding"):
			codings = append(codings, string(f.Value))
		}
	}
	return NewLabel(kind, codings...)
}

// NewLabel makes a label from the values of Content-Type and of the Content-Encoding lines.
func NewLabel(contentType string, contentEncoding ...string) Label {
	var l Label
	kind, rest, _ := strings.Cut(contentType, ";")
	l.Kind = strings.ToLower(strings.TrimSpace(kind))
	parameters(rest, func(name, value string) {
		switch {
		case name == "charset" && l.Charset == "":
			l.Charset = value
		case name == "boundary" && l.Boundary == "":
			l.Boundary = value
		}
	})
	for _, line := range contentEncoding {
		for coding := range strings.SplitSeq(line, ",") {
			if coding = strings.ToLower(strings.TrimSpace(coding)); coding != "" && coding != "identity" {
				l.Codings = append(l.Codings, coding)
			}
		}
	}
	return l
}

// parameters calls the function each for every parameter of a header value. It allows =, : and spaces in an
// unquoted value, and repeated names, because senders write them; mime.ParseMediaType returns no parameters for
// such values.
func parameters(list string, each func(name, value string)) {
	for list != "" {
		list = strings.TrimLeft(list, "; \t\r\n")
		end := strings.IndexAny(list, "=;")
		if end < 0 {
			return
		}
		name := strings.ToLower(strings.TrimSpace(list[:end]))
		if list[end] == ';' {
			list = list[end:]
			continue
		}
		value := strings.TrimLeft(list[end+1:], " \t\r\n")
		if strings.HasPrefix(value, `"`) {
			value, list = quoted(value[1:])
		} else {
			value, list, _ = strings.Cut(value, ";")
			value = strings.TrimRight(value, " \t\r\n")
		}
		each(name, value)
	}
}

// quoted reads a text up to its closing quote. A backslash escapes only a quote or a backslash,
// because some senders write file paths without escaping backslashes.
func quoted(s string) (text, rest string) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return b.String(), s[i+1:]
		case c == '\\' && i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\\'):
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), ""
}

// IsJSON reports whether the label names JSON.
func (l Label) IsJSON() bool {
	return l.Kind == "application/json" || l.Kind == "text/json" || strings.HasSuffix(l.Kind, "+json")
}

// isJSONLines reports whether the label names consecutive JSON values.
func (l Label) isJSONLines() bool {
	switch l.Kind {
	case "application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonl", "application/jsonlines",
		"application/x-jsonlines", "application/json-lines", "application/json-seq", "application/x-json-stream", "text/x-ndjson":
		return true
	}
	return strings.HasSuffix(l.Kind, "+json-seq")
}

// IsForm reports whether the label names a form whose fields are URL-encoded.
func (l Label) IsForm() bool { return l.Kind == "application/x-www-form-urlencoded" }

// IsMultipart reports whether the label names a multipart body.
func (l Label) IsMultipart() bool { return strings.HasPrefix(l.Kind, "multipart/") }

func (l Label) isXML() bool {
	return l.Kind == "application/xml" || l.Kind == "text/xml" || strings.HasSuffix(l.Kind, "+xml")
}

// isText reports whether the label names a kind of text.
func (l Label) isText() bool {
	return strings.HasPrefix(l.Kind, "text/") || l.IsJSON() || l.isJSONLines() || l.IsForm() || l.isXML() || l.Charset != ""
}

// IsVague reports whether the label does not determine the form of the body.
func (l Label) IsVague() bool {
	return l.Kind == "" || l.Kind == "text/plain" || l.Kind == "application/octet-stream" || l.Kind == "binary/octet-stream" || l.Kind == "*/*"
}

// IsPlain reports whether a body can be read without decoding: it has no content coding, no charset
// except UTF-8, and neither fields nor parts.
func (l Label) IsPlain(p []byte) bool {
	if len(l.Codings) > 0 || l.IsMultipart() || l.IsForm() {
		return false
	}
	start := p[:min(len(p), charsetStart)]
	charset, mark, _ := charsetOf(l, start)
	return charset == "" && mark == 0 && !(l.IsVague() && LooksLikeForm(start))
}
