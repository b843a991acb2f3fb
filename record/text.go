package record

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// SafeText makes text from a caller or a local server safe to print in one line of a terminal. It writes
// unsafe characters as escapes such as \n, \x1b, \u202e or \xff. Unsafe are control characters (C0, DEL, C1
// also in UTF-8), line ends, and bytes that are not UTF-8. Characters that change the writing direction or
// have no width are also unsafe, and so are accents without a letter, or more than a few on one letter. All
// other characters stay unchanged, including backslashes.
func SafeText(s string) string {
	var b strings.Builder
	marks, done := noLetter, 0 // s[:done] is written to b
	for i, r := range s {
		broken := r == utf8.RuneError && !strings.HasPrefix(s[i:], "\ufffd")
		if !broken && marks.shown(r) {
			continue
		}
		b.WriteString(s[done:i])
		_, size := utf8.DecodeRuneInString(s[i:])
		done = i + size
		switch {
		case broken:
			marks = noLetter
			writeHex(&b, 'x', rune(s[i]), 2)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x80: // \x is only used below 0x80, because \x80 to \xff stand for bytes that are not UTF-8
			writeHex(&b, 'x', r, 2)
		case r <= 0xffff:
			writeHex(&b, 'u', r, 4)
		default:
			writeHex(&b, 'U', r, 8)
		}
	}
	if done == 0 {
		return s
	}
	return b.String() + s[done:]
}

// writeHex writes a backslash, a letter and the digits of a character. It does not use fmt, which is too slow
// for a text that consists only of such characters.
func writeHex(b *strings.Builder, letter byte, r rune, digits int) {
	b.WriteByte('\\')
	b.WriteByte(letter)
	for digits--; digits >= 0; digits-- {
		b.WriteByte("0123456789abcdef"[r>>(4*digits)&15])
	}
}

// SafeTextMax is SafeText with a limit: the result has at most as many runes as most says, and the last rune
// of a cut text is "…".
func SafeTextMax(s string, most int) string {
	if len(s) > 8*most { // a rune has at most four bytes, so the rest would be cut anyway
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

// IsSafeText reports whether SafeText leaves a text unchanged.
func IsSafeText(s string) bool {
	marks := noLetter
	for i, r := range s {
		if r == utf8.RuneError && !strings.HasPrefix(s[i:], "\ufffd") || !marks.shown(r) {
			return false
		}
	}
	return true
}

// accents counts the marks on the last letter. Terminals stack any number of marks over the lines
// above, and put a mark without a letter onto the text before it.
type accents int

const (
	maxAccents accents = 10 // no script needs more
	noLetter           = maxAccents
)

// shown takes the next character and reports whether the character can be printed unchanged.
func (n *accents) shown(r rune) bool {
	switch {
	case r >= 0x20 && r < 0x7f:
		*n = 0
	case r < 0x20 || r >= 0x7f && r < 0xa0 || r >= 0xa0 && (r&0xfffe == 0xfffe || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, blankRunes)):
		// The character moves the cursor, changes the direction of the text, or cannot be seen.
		*n = noLetter
		return false
	case r < 0x300 || !unicode.In(r, unicode.Mn, unicode.Me):
		*n = 0
	case *n >= maxAccents:
		return false
	default:
		*n++
	}
	return true
}

// blankRunes are letters and marks that show nothing although Unicode does not class them as format
// characters, and code points that Unicode reserves for such characters.
var blankRunes = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x034f, Hi: 0x034f, Stride: 1}, // combining grapheme joiner
		{Lo: 0x115f, Hi: 0x1160, Stride: 1}, // Hangul fillers
		{Lo: 0x17b4, Hi: 0x17b5, Stride: 1}, // Khmer inherent vowels
		{Lo: 0x180b, Hi: 0x180f, Stride: 1}, // Mongolian selectors
		{Lo: 0x2065, Hi: 0x2065, Stride: 1}, // among invisible operators
		{Lo: 0x2800, Hi: 0x2800, Stride: 1}, // blank Braille
		{Lo: 0x3164, Hi: 0x3164, Stride: 1}, // Hangul filler
		{Lo: 0xfdd0, Hi: 0xfdef, Stride: 1}, // reserved as noncharacters
		{Lo: 0xfe00, Hi: 0xfe0f, Stride: 1}, // variation selectors
		{Lo: 0xffa0, Hi: 0xffa0, Stride: 1}, // half-width Hangul filler
		{Lo: 0xfff0, Hi: 0xfff8, Stride: 1}, // among interlinear marks
	},
	R32: []unicode.Range32{{Lo: 0xe0000, Hi: 0xe0fff, Stride: 1}}, // tags, variation selectors
}
