package relay

import "bytes"

// byteOrderMark is the character that editors on Windows put in front of a text in UTF-8.
const byteOrderMark = "\ufeff"

// WithoutByteOrderMark returns a text without the byte order mark in front of it. The mark is no
// part of a key, a token or a setting, and the parsers of those do not know it.
func WithoutByteOrderMark(text []byte) []byte { return bytes.TrimPrefix(text, []byte(byteOrderMark)) }
