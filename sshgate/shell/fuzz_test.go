package shell

import (
	"slices"
	"strings"
	"testing"
	"unicode"

	"relay/record"
)

// FuzzCommand: splitting a command line never panics or adds characters; splitting a quoted word
// returns the word.
func FuzzCommand(f *testing.F) {
	for _, s := range []string{"events a -n 3", `show 'evt x'`, `a\ b "c d"`, "'", `\`, "a\x00b", "\x1b[2J"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		split, err := splitWords(line)
		words, raw := texts(split)
		if err != nil {
			if words != nil || strings.ContainsFunc(record.SafeText(err.Error()), unicode.IsControl) {
				t.Errorf("%q: %q, %v", line, words, err)
			}
			return
		}
		if total := len(strings.Join(words, "")); total > len(line) {
			t.Errorf("%q: %q", line, words)
		}
		var quoted []string
		for _, w := range words {
			quoted = append(quoted, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
		}
		if len(raw) != len(words) || len(strings.Join(raw, "")) > len(line) {
			t.Errorf("%q: %q", line, raw)
		}
		split, err = splitWords(strings.Join(quoted, " "))
		if again, _ := texts(split); err == nil && !slices.Equal(again, words) {
			t.Errorf("%q: %q, then %q", line, words, again)
		}
	})
}

func texts(words []word) (texts, raw []string) {
	for _, w := range words {
		texts, raw = append(texts, w.text), append(raw, w.raw)
	}
	return texts, raw
}
