package mask

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// normal is a text whose percent codes, JSON escapes and XML entities are resolved, so that a secret is
// found in each of these codings. It is never longer than the text.
type normal struct {
	s  []byte // the text
	p  []byte
	at []int32 // where the piece of each byte begins; one more for the end
}

// normalise reads a text of less than 2 GiB into n, whose space it uses again.
func normalise(s []byte, n *normal) *normal {
	p, at, k := slices.Grow(n.p[:0], len(s))[:len(s)], slices.Grow(n.at[:0], len(s)+1)[:len(s)+1], 0
	for i := 0; i < len(s); k++ {
		at[k], p[k] = int32(i), s[i]
		switch s[i] {
		case '%':
			if v, end, ok := percent(s, i); ok {
				p[k], i = v, end
				if v == '\\' { // of an escape of JSON
					k--
				}
				continue
			}
		case '\\':
			r, end := escape(s, i)
			if i = end; r < 0 {
				k--
				continue
			}
			from := at[k]
			var b [utf8.UTFMax]byte
			for j, c := range b[:utf8.EncodeRune(b[:], r)] {
				if j > 0 {
					k++
				}
				at[k], p[k] = from, c
			}
			continue
		case '&':
			if v, end, ok := entity(s, i); ok {
				p[k], i = v, end
				continue
			}
		}
		i++
	}
	at[k] = int32(len(s))
	n.s, n.p, n.at = s, p[:k], at[:k+1]
	return n
}

// escaped reports whether a byte was written as a percent code.
func (n *normal) escaped(i int) bool { return n.s[n.at[i]] == '%' && n.at[i+1] > n.at[i]+1 }

// percent reads %41 and, as an address within an address has it, %2541.
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

// escape reads an escape of JSON, also in JSON inside a JSON string, where each backslash is doubled. r
// is -1 where only backslashes were read.
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

// entities of XML and HTML that stand for a character of one byte.
var entities = []struct {
	name string
	c    byte
}{{"amp;", '&'}, {"lt;", '<'}, {"gt;", '>'}, {"quot;", '"'}, {"apos;", '\''}, {"#39;", '\''}, {"#x27;", '\''}, {"#38;", '&'}, {"#34;", '"'}, {"#x2F;", '/'}, {"#x3D;", '='}}

func entity(s []byte, i int) (v byte, end int, ok bool) {
	rest := s[i+1:]
	for {
		found := false
		for _, e := range entities {
			if bytes.HasPrefix(rest, []byte(e.name)) {
				v, end, ok = e.c, len(s)-len(rest)+len(e.name), true
				rest, found = rest[len(e.name):], v == '&' // &amp;quot; is a quote that was escaped twice
				break
			}
		}
		if !found {
			return v, end, ok
		}
	}
}

// piece returns the range of the text for a range of its normal form.
func (n *normal) piece(from, to int) (start, end int) { return int(n.at[from]), int(n.at[to]) }
