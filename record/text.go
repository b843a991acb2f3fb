package record

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// SafeText makes text that came from a caller or a local server safe to print on a
// terminal and in a line of its own: control characters (C0, DEL, C1 also when UTF-8
// coded), line ends, characters that turn the direction of writing, characters
// without width and bytes that are no UTF-8 are written as \n, \x1b, \u202e or \xff.
// Everything else stays as it is, backslashes too.
func SafeText(s string) string {
	for i, r := range s {
		if r == utf8.RuneError || hidden(r) {
			return escape(s, i)
		}
	}
	return s
}

// SafeTextMax is SafeText cut to at most most runes; where something was cut the
// last one is "…".
func SafeTextMax(s string, most int) string {
	if len(s) > 8*most { // an escaped rune is at most ten times its size, so the rest would be cut anyway
		s = s[:8*most]
	}
	s = SafeText(s)
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	n := 0
	for i := range s {
		if n++; n == most {
			return s[:i] + "…"
		}
	}
	return ""
}

func escape(s string, clean int) string {
	var b strings.Builder
	b.Grow(len(s) + 16)
	b.WriteString(s[:clean])
	for i := clean; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			writeEscape(&b, 'x', uint32(s[i]), 2)
		case !hidden(r):
			b.WriteString(s[i : i+size])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x80: // above, \x is for bytes that are no UTF-8
			writeEscape(&b, 'x', uint32(r), 2)
		case r <= 0xffff:
			writeEscape(&b, 'u', uint32(r), 4)
		default:
			writeEscape(&b, 'U', uint32(r), 8)
		}
		i += size
	}
	return b.String()
}

func writeEscape(b *strings.Builder, kind byte, v uint32, digits int) {
	const hex = "0123456789abcdef"
	b.WriteByte('\\')
	b.WriteByte(kind)
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		b.WriteByte(hex[v>>shift&15])
	}
}

// hidden tells of characters that move the cursor, turn the text or cannot be seen.
func hidden(r rune) bool {
	if r < 0x20 || r >= 0x7f && r < 0xa0 {
		return true
	}
	if r < 0xa0 {
		return false
	}
	return unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, blank)
}

// blank are letters and marks that show nothing although Unicode does not count
// them as format characters.
var blank = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x034f, Hi: 0x034f, Stride: 1}, // combining grapheme joiner
		{Lo: 0x115f, Hi: 0x1160, Stride: 1}, // Hangul fillers
		{Lo: 0x17b4, Hi: 0x17b5, Stride: 1}, // Khmer inherent vowels
		{Lo: 0x180b, Hi: 0x180e, Stride: 1}, // Mongolian selectors
		{Lo: 0x2800, Hi: 0x2800, Stride: 1}, // blank Braille
		{Lo: 0x3164, Hi: 0x3164, Stride: 1}, // Hangul filler
		{Lo: 0xfe00, Hi: 0xfe0f, Stride: 1}, // variation selectors
		{Lo: 0xffa0, Hi: 0xffa0, Stride: 1}, // half-width Hangul filler
	},
	R32: []unicode.Range32{{Lo: 0xe0100, Hi: 0xe01ef, Stride: 1}}, // variation selectors
}
