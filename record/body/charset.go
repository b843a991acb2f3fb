package body

import (
	"bytes"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/unicode/utf32"
)

// marks are the byte order marks. A mark that starts with the bytes of another mark comes before that
// mark.
var marks = []struct{ bytes, charset string }{
	{"\xef\xbb\xbf", "utf-8"},
	{"\xff\xfe\x00\x00", "utf-32le"},
	{"\x00\x00\xfe\xff", "utf-32be"},
	{"\xff\xfe", "utf-16le"},
	{"\xfe\xff", "utf-16be"},
}

// charsetStart is the number of bytes of a body that are searched for its charset.
const charsetStart = 1 << 10

// charsetOf finds the charset of a body. A byte order mark has priority; then come the label, the declaration in
// XML and HTML, and for JSON the places of zero bytes; the default is UTF-8. mark is the length of the byte order
// mark. name is "" for UTF-8; fault is set if the named charset cannot be read.
func charsetOf(l Label, start []byte) (name string, mark int, fault string) {
	isMedia := strings.HasPrefix(l.Kind, "image/") || strings.HasPrefix(l.Kind, "audio/") || strings.HasPrefix(l.Kind, "video/")
	for _, m := range marks {
		if bytes.HasPrefix(start, []byte(m.bytes)) && !isMedia {
			return utf8Is(m.charset), len(m.bytes), ""
		}
	}
	named := l.Charset
	if named == "" && !l.IsJSON() && !l.IsForm() && bytes.HasPrefix(Start(start), []byte("<?xml")) {
		if m := xmlEncoding.FindSubmatch(start); m != nil {
			named = string(m[1])
		}
	}
	switch {
	case named == "" && len(start) >= 4 && start[1] == 0 && start[3] == 0 && strings.IndexByte("{[\"<", start[0]) >= 0:
		return "utf-16le", 0, "" // RFC 4627, section 3: the places of zero bytes show the encoding of JSON
	case named == "" && len(start) >= 4 && start[0] == 0 && start[2] == 0 && strings.IndexByte("{[\"<", start[1]) >= 0:
		return "utf-16be", 0, ""
	case named == "" && l.Kind == "text/html" && !utf8.Valid(WholeRunes(start)):
		_, name, _ = charset.DetermineEncoding(start, "")
		return utf8Is(name), 0, ""
	case named == "":
		return "", 0, ""
	}
	named = strings.ToLower(strings.TrimSpace(named))
	if encodingOf(named) != nil {
		return named, 0, ""
	}
	_, name = charset.Lookup(named)
	if name == "" || name == "replacement" || name == "x-user-defined" {
		return "", 0, "the charset " + quote(named) + " cannot be read here"
	}
	return utf8Is(name), 0, ""
}

func utf8Is(name string) string {
	if name == "utf-8" {
		return ""
	}
	return name
}

var xmlEncoding = regexp.MustCompile(`^\s*<\?xml[^>]{0,200}?\sencoding\s*=\s*["']([A-Za-z0-9._:-]{1,40})["']`)

// encodingOf returns the encoding for a name from charsetOf; nil = UTF-8 or unknown.
func encodingOf(name string) encoding.Encoding {
	switch name {
	case "utf-32", "utf-32be":
		return utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM)
	case "utf-32le":
		return utf32.UTF32(utf32.LittleEndian, utf32.IgnoreBOM)
	case "", "utf-8":
		return nil
	}
	e, found := charset.Lookup(name)
	if found == "utf-8" || found == "replacement" || found == "x-user-defined" {
		return nil
	}
	return e
}

// inUTF8 converts bytes of a charset to UTF-8; the argument most limits the bytes of the result. broken
// reports that some bytes are invalid in the charset; they become U+FFFD.
func inUTF8(name string, p []byte, most int) (text []byte, broken, cut bool) {
	e := encodingOf(name)
	if e == nil {
		return p, false, false
	}
	out, err := e.NewDecoder().Bytes(p)
	if len(out) > most {
		out, cut = WholeRunes(out[:most]), true
	}
	return out, err != nil || bytes.Contains(out, []byte("\ufffd")), cut
}

// WholeRunes removes an incomplete rune from the end of p.
func WholeRunes(p []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(p); i++ {
		tail := p[len(p)-i:]
		if utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return p[:len(p)-i]
			}
			break
		}
	}
	return p
}

// IsText reports whether bytes are text: UTF-8 without NUL. If the body was cut, its last character
// may be incomplete.
func IsText(p []byte, cut bool) bool {
	if cut {
		p = WholeRunes(p)
	}
	return utf8.Valid(p) && bytes.IndexByte(p, 0) < 0
}

// isNearlyText reports whether bytes that are labelled as text are text except for a few bytes, none
// of which is NUL.
func isNearlyText(p []byte) bool {
	strange := 0
	for i := 0; i < len(p); {
		c := p[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRune(p[i:])
			if i += size; r == utf8.RuneError && size == 1 {
				strange++
			}
			continue
		}
		if i++; c == 0 {
			return false
		} else if c < ' ' && strings.IndexByte("\t\n\v\f\r\x1b", c) < 0 {
			strange++
		}
	}
	return strange <= 2+len(p)/8
}
