package mask

import (
	"bytes"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// nested is JSON within a JSON string or form field. It has the decoded text and, for each byte of
// that text, the position of its encoding in the outer text.
type nested struct {
	plain []byte
	at    []int32 // position for each byte of plain, and one more for the end
	edits edits
}

// mask hides the secrets of the JSON in the outer text, in which the string or field begins at base.
// Other bytes keep their spelling; quote encodes a replacement.
func (n *nested) mask(m *Masker, out *edits, base int, quote func(string) string) {
	n.edits.list = n.edits.list[:0]
	m.json(&n.edits, n.plain, 0)
	for _, e := range n.edits.list {
		out.add(base+int(n.at[e.from]), base+int(n.at[e.to]), quote(e.with))
	}
}

// inJSON encodes a replacement for a JSON string. Replacements consist of printable characters, so only quotes
// and backslashes need escapes.
func inJSON(with string) string {
	switch with {
	case Masked, "":
		return with
	case maskedMember:
		return `: \"` + Masked + `\"`
	}
	return quoteInJSON.Replace(with)
}

var quoteInJSON = strings.NewReplacer(`"`, `\"`, `\`, `\\`)

// unquote decodes a JSON string without its quotes, and returns false if the string is malformed.
func (n *nested) unquote(inside []byte) bool {
	n.plain, n.at = n.plain[:0], n.at[:0]
	for i := 0; i < len(inside); {
		if inside[i] != '\\' {
			end := len(inside)
			if next := bytes.IndexByte(inside[i:], '\\'); next >= 0 {
				end = i + next
			}
			n.plain = append(n.plain, inside[i:end]...)
			for ; i < end; i++ {
				n.at = append(n.at, int32(i))
			}
			continue
		}
		if i+1 == len(inside) {
			return false
		}
		size := 2
		switch c := inside[i+1]; c {
		case '"', '\\', '/':
			n.plain = append(n.plain, c)
		case 'b', 'f', 'n', 'r', 't':
			n.plain = append(n.plain, "\b\f\n\r\t"[strings.IndexByte("bfnrt", c)])
		case 'u':
			r, ok := hex4(inside, i+2)
			if size = 6; !ok {
				return false
			}
			if second, ok := hex4(inside, i+8); ok && utf16.IsSurrogate(r) && inside[i+6] == '\\' && inside[i+7] == 'u' {
				if both := utf16.DecodeRune(r, second); both != utf8.RuneError {
					r, size = both, 12
				}
			}
			n.plain = utf8.AppendRune(n.plain, r) // an unpaired surrogate becomes U+FFFD
		default:
			return false
		}
		n.piece(i)
		i += size
	}
	n.at = append(n.at, int32(len(inside)))
	return true
}

// piece sets the position, i, of the encoding of all bytes of plain that have no position yet.
func (n *nested) piece(i int) {
	for len(n.at) < len(n.plain) {
		n.at = append(n.at, int32(i))
	}
}

// unescape decodes the value of a form field.
func (n *nested) unescape(value []byte) {
	n.plain, n.at = n.plain[:0], n.at[:0]
	for i := 0; i < len(value); {
		c, size := value[i], 1
		switch {
		case c == '+':
			c = ' '
		case c == '%' && i+2 < len(value) && hexDigit(value[i+1]) >= 0 && hexDigit(value[i+2]) >= 0:
			c, size = byte(hexDigit(value[i+1])<<4|hexDigit(value[i+2])), 3
		}
		n.plain, n.at = append(n.plain, c), append(n.at, int32(i))
		i += size
	}
	n.at = append(n.at, int32(len(value)))
}
