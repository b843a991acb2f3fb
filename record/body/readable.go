package body

import (
	"bytes"
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Readable replaces JSON escapes by their characters if these need no escape: \u00d7 becomes ×, and \/
// becomes /. Values stay the same. Invisible characters, such as control characters, and unpaired
// surrogates stay escaped.
func Readable(p []byte) []byte {
	at := bytes.IndexByte(p, '\\')
	if at < 0 {
		return p
	}
	out := make([]byte, 0, len(p))
	for at >= 0 && at+1 < len(p) {
		out = append(out, p[:at]...)
		r, size := plainEscape(p[at:])
		if size > 0 {
			out = utf8.AppendRune(out, r)
		} else {
			size = 2
			out = append(out, p[at:at+2]...)
		}
		p = p[at+size:]
		at = bytes.IndexByte(p, '\\')
	}
	return append(out, p...)
}

// plainEscape returns the character of the escape at the start of p, and the length of the escape; 0, 0 = the
// character needs an escape, or there is no valid one.
func plainEscape(p []byte) (r rune, size int) {
	if p[1] == '/' {
		return '/', 2
	}
	if r, size = unicodeEscape(p); size > 0 && utf16.IsSurrogate(r) {
		low, more := unicodeEscape(p[size:])
		if r = utf16.DecodeRune(r, low); more == 0 || r == utf8.RuneError {
			return 0, 0
		}
		size += more
	}
	if size == 0 || r == '"' || r == '\\' || r == utf8.RuneError || !unicode.IsPrint(r) || unicode.Is(unicode.M, r) {
		return 0, 0
	}
	return r, size
}

// unicodeEscape returns the UTF-16 code unit of an escape of \u and four digits, and the length of the escape;
// 0, 0 = p does not begin with such an escape.
func unicodeEscape(p []byte) (rune, int) {
	if len(p) < 6 || p[0] != '\\' || p[1] != 'u' {
		return 0, 0
	}
	n, err := strconv.ParseUint(string(p[2:6]), 16, 16)
	if err != nil {
		return 0, 0
	}
	return rune(n), 6
}
