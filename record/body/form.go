package body

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// maxFields is the largest number of fields of a form that are read; further fields are only counted.
const maxFields = 10_000

// Field is one field of a URL-encoded form or query.
type Field struct {
	Name, Value string // decoded
	JSON        bool   // Value contains a JSON object or array
}

// LooksLikeForm reports whether a text looks like a URL-encoded form, whatever its label: it begins
// with a name and =, and contains no space, quote or bracket of XML.
func LooksLikeForm(p []byte) bool {
	p = bytes.TrimRight(p, " \t\r\n")
	name := bytes.IndexByte(p, '=')
	if name < 1 {
		return false
	}
	for i, c := range p {
		if i < name && !isFormName(c) || c <= ' ' || c == '"' || c == '<' || c == '>' {
			return false
		}
	}
	return true
}

func isFormName(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || bytes.IndexByte([]byte("_.%+[]-"), c) >= 0
}

// Query reads the fields of the query of a request-target; nil if the target has none.
func Query(target []byte) []Field {
	_, query, ok := bytes.Cut(target, []byte("?"))
	if !ok {
		return nil
	}
	query, _, _ = bytes.Cut(query, []byte("#"))
	fields, _ := readForm(query, "")
	return fields
}

// FormValue returns the value of the first field of a form with the given name; nil = no such field. It
// decodes no other field.
func FormValue(p []byte, name string) []byte {
	for len(p) > 0 {
		var part []byte
		part, p, _ = bytes.Cut(p, []byte("&"))
		if value, ok := bytes.CutPrefix(part, []byte(name)); ok && len(value) > 0 && value[0] == '=' {
			plain, _ := unescapeForm(value[1:])
			return plain
		}
	}
	return nil
}

// Start returns the text of a body after a byte order mark of UTF-8 and white space.
func Start(p []byte) []byte {
	return bytes.TrimLeft(bytes.TrimPrefix(p, []byte(marks[0].bytes)), " \t\r\n")
}

// readForm reads the fields of a form in their order. charset is the charset of the bytes that result from the
// escapes, "" = UTF-8.
func readForm(p []byte, charset string) (list []Field, faults []Fault) {
	malformed, foreign, left := 0, 0, 0
	text := func(raw []byte) string {
		plain, whole := unescapeForm(raw)
		if !whole {
			malformed++
		}
		if out, broken, _ := inUTF8(charset, plain, 4*len(plain)); !broken {
			plain = out
		}
		if !utf8.Valid(plain) {
			foreign++
		}
		return string(plain)
	}
	for len(p) > 0 {
		var part []byte
		part, p, _ = bytes.Cut(p, []byte("&"))
		if len(part) == 0 {
			continue
		}
		if len(list) == maxFields {
			left = 1 + bytes.Count(p, []byte("&"))
			break
		}
		name, value, _ := bytes.Cut(part, []byte("="))
		f := Field{Name: text(name), Value: text(value)}
		f.JSON = isDocument([]byte(f.Value))
		list = append(list, f)
	}
	add := func(n int, format string) {
		if n > 0 {
			faults = append(faults, Fault{-1, fmt.Sprintf(format, n)})
		}
	}
	add(malformed, "%d names or values have a %% that begins no escape, and stand as they are")
	add(foreign, "%d names or values are not UTF-8")
	add(left, "%d more fields are not listed")
	return list, faults
}

// Unescape resolves + and the escapes of a form or query. Malformed escapes stay unchanged.
func Unescape(p []byte) []byte {
	plain, _ := unescapeForm(p)
	return plain
}

// unescapeForm resolves + and the escapes of a form. A malformed escape stays unchanged, and whole is
// then false.
func unescapeForm(p []byte) (plain []byte, whole bool) {
	if bytes.IndexByte(p, '%') < 0 && bytes.IndexByte(p, '+') < 0 {
		return p, true
	}
	out, whole := make([]byte, 0, len(p)), true
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case c == '+':
			out = append(out, ' ')
		case c == '%' && i+2 < len(p) && unhex(p[i+1]) >= 0 && unhex(p[i+2]) >= 0:
			out = append(out, byte(unhex(p[i+1])<<4|unhex(p[i+2])))
			i += 2
		default:
			whole = whole && c != '%'
			out = append(out, c)
		}
	}
	return out, whole
}

// unhex returns the value of a hexadecimal digit; -1 = no such digit.
func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}
