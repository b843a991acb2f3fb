package mask

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// normal is a text in which percent codes, JSON escapes and XML entities are decoded, so that a secret
// is found in each of these codings. The decoded text is never longer than the original.
type normal struct {
	s  []byte  // the text
	p  []byte  // the decoded text; s itself, if no byte of it is coded
	at []int32 // for each byte of p, the start of its encoding in s, and one more for the end; nil if p is s

	bytes  []byte // memory of p
	places []int32
}

// maxNested is the number of nested codings that are decoded, such as JSON in a form in JSON.
const maxNested = 4

// normalise decodes a text of less than 2 GiB into n, and reuses the memory of n.
func normalise(s []byte, n *normal) *normal {
	n.s, n.p, n.at = s, s, nil
	if bytes.IndexByte(s, '%') < 0 && bytes.IndexByte(s, '&') < 0 && bytes.IndexByte(s, '\\') < 0 {
		return n
	}
	n.bytes, n.places = append(n.bytes[:0], s...), slices.Grow(n.places[:0], len(s)+1)[:len(s)+1]
	for i := range n.places {
		n.places[i] = int32(i)
	}
	n.p, n.at = n.bytes, n.places
	for range maxNested {
		if !n.resolve() {
			break
		}
	}
	return n
}

// resolve decodes one level of coded characters, and reports whether there was one.
func (n *normal) resolve() (changed bool) {
	p, at, k := n.p, n.at, 0 // k <= i, so no byte is overwritten before it is read
	for i := 0; i < len(p); {
		from, r, end := at[i], rune(-1), i
		switch p[i] {
		case '%':
			if v, after, ok := percent(p, i); ok {
				at[k], p[k] = from, v // possibly one byte of a longer character
				k, i, changed = k+1, after, true
				continue
			}
		case '&':
			r, end = entity(p, i)
		case '\\':
			r, end = escape(p, i)
		}
		switch {
		case r >= 0:
			var b [utf8.UTFMax]byte
			for _, c := range b[:utf8.EncodeRune(b[:], r)] {
				at[k], p[k] = from, c
				k++
			}
		case end == i:
			at[k], p[k] = from, p[i]
			k, i = k+1, i+1
			continue
		}
		i, changed = end, true
	}
	at[k] = int32(len(n.s))
	n.p, n.at = p[:k], at[:k+1]
	return changed
}

// escaped reports whether byte i of the decoded text was written as a percent code.
func (n *normal) escaped(i int) bool {
	return n.at != nil && n.s[n.at[i]] == '%' && n.at[i+1] > n.at[i]+1
}

// percent reads a percent code such as %41, or %2541 in a URL within a URL.
func percent(s []byte, i int) (v byte, end int, ok bool) {
	i++
	for bytes.HasPrefix(s[i:], []byte("25")) {
		i += 2
	}
	if i+2 <= len(s) {
		if hi, lo := hexDigit(s[i]), hexDigit(s[i+1]); hi >= 0 && lo >= 0 {
			return byte(hi<<4 | lo), i + 2, true
		}
	}
	return 0, 0, false
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// escape reads a JSON escape, also in JSON within a JSON string, where each backslash is doubled. r is
// -1 if it read only backslashes.
func escape(s []byte, i int) (r rune, end int) {
	for i < len(s) && s[i] == '\\' {
		i++
	}
	if i == len(s) {
		return -1, i
	}
	switch s[i] {
	case 'n':
		return '\n', i + 1
	case 'r':
		return '\r', i + 1
	case 't':
		return '\t', i + 1
	case '"', '\'', '/':
		return rune(s[i]), i + 1
	case 'u':
		if r, ok := hex4(s, i+1); ok {
			return r, i + 5
		}
	}
	return -1, i
}

func hex4(s []byte, i int) (r rune, ok bool) {
	if i+4 > len(s) {
		return 0, false
	}
	for _, c := range s[i : i+4] {
		d := hexDigit(c)
		if d < 0 {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	return r, true
}

// entities are the named entities of XML and HTML for one-byte characters.
var entities = map[string]rune{"amp": '&', "lt": '<', "gt": '>', "quot": '"', "apos": '\''}

const maxEntity = len("&#x10ffff;")

// entity reads an entity of XML or HTML. If there is none, r is -1 and end is i.
func entity(s []byte, i int) (r rune, end int) {
	name, _, ok := bytes.Cut(s[i+1:min(len(s), i+maxEntity)], []byte(";"))
	if !ok {
		return -1, i
	}
	end = i + 1 + len(name) + 1
	if r, ok := entities[string(name)]; ok {
		return r, end
	}
	digits, numeric := strings.CutPrefix(string(name), "#")
	base := 10
	if hex, ok := strings.CutPrefix(strings.ToLower(digits), "x"); ok {
		digits, base = hex, 16
	}
	code, err := strconv.ParseUint(digits, base, 21)
	if !numeric || err != nil || !utf8.ValidRune(rune(code)) {
		return -1, i
	}
	return rune(code), end
}

// piece returns the range in the text that corresponds to a range of its normal form.
func (n *normal) piece(from, to int) (start, end int) {
	if n.at == nil {
		return from, to
	}
	return int(n.at[from]), int(n.at[to])
}
