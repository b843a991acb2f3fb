package record

import (
	"bytes"
	"encoding/binary"
	"unicode/utf16"
)

// Byte order marks at the start of a text, which identify its encoding.
var (
	markUTF8     = []byte("\xef\xbb\xbf")
	markUTF16Low = []byte("\xff\xfe") // the low byte of each 16-bit unit comes first, as usual on Windows
	markUTF16Big = []byte("\xfe\xff")
)

// DecodeText returns the text of a file or input that a user made. The result is in UTF-8, without the
// byte order mark that editors and PowerShell on Windows add, because parsers of keys, tokens and
// settings do not accept that mark.
func DecodeText(text []byte) []byte {
	switch {
	case bytes.HasPrefix(text, markUTF16Low):
		return decodeUTF16(text[2:], binary.LittleEndian)
	case bytes.HasPrefix(text, markUTF16Big):
		return decodeUTF16(text[2:], binary.BigEndian)
	}
	return bytes.TrimPrefix(text, markUTF8)
}

func decodeUTF16(text []byte, order binary.ByteOrder) []byte {
	units := make([]uint16, len(text)/2)
	for i := range units {
		units[i] = order.Uint16(text[2*i:])
	}
	return []byte(string(utf16.Decode(units)))
}
