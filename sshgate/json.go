package sshgate

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"

	"relay/record"
)

// jsonText encodes an object so that it can be shown on a terminal too: whatever
// would move the cursor, turn the text or not be seen is written as \u….
func jsonText(object any) (string, error) {
	p, err := json.Marshal(object)
	if err != nil {
		return "", err
	}
	return visibleJSON(p), nil
}

// visibleJSON does that to encoded JSON. Such characters stand within strings only,
// where an escape means the same.
func visibleJSON(p []byte) string {
	text := string(p)
	if record.SafeText(text) == text {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch s := string(r); {
		case r < 0x20 || record.SafeText(s) == s: // JSON has escaped what is below
			b.WriteString(s)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
