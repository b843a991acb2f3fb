package record_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"relay/record"
)

func TestSafeText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                       "",
		"plain /path?x=1":        "plain /path?x=1",
		"héllo 日本 €":             "héllo 日本 €",
		`C:\n is no line end`:    `C:\n is no line end`,
		"a\r\nb\tc":              `a\r\nb\tc`,
		"\x1b[2J\a\x00\x7f":      `\x1b[2J\x07\x00\x7f`,
		"\u009b31m":              `\u009b31m`,
		"\x9b31m":                `\x9b31m`,
		"abc\u202egnp.exe":       `abc\u202egnp.exe`,
		"\u2066x\u2069\u200e":    `\u2066x\u2069\u200e`,
		"a\u200bb\ufeffc\u00add": `a\u200bb\ufeffc\u00add`,
		"\u2028\u2029":           `\u2028\u2029`,
		"\U000e0041":             `\U000e0041`,
		"\xff\xc3":               `\xff\xc3`,
		"\ufffd":                 "\ufffd",
		"\ud7ff":                 "\ud7ff",
		"\u180f\u2065\ufff3":     `\u180f\u2065\ufff3`,
		"\ufdd0\uffff\U0001fffe": `\ufdd0\uffff\U0001fffe`,
		"\U000e0fff\U000e0080":   `\U000e0fff\U000e0080`,
		"\u0301x":                `\u0301x`,
		"a\n\u20e0":              `a\n\u20e0`,
		"\xff\u0301":             `\xff\u0301`,
		"नमस्ते שָׁלוֹם e\u0301":                       "नमस्ते שָׁלוֹם e\u0301",
		"Z" + strings.Repeat("\u0336", 12) + "b\u0301": "Z" + strings.Repeat("\u0336", 10) + `\u0336\u0336` + "b\u0301",
	} {
		if got := record.SafeText(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestSafeTextMax(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   string
		most int
		want string
	}{
		{"short", 5, "short"},
		{"longer", 5, "long…"},
		{"日本語日本語", 4, "日本語…"},
		{"\n\n\n", 4, `\n\…`},
		{"", 3, ""},
		{strings.Repeat("€", 1000), 3, "€€…"},
	} {
		if got := record.SafeTextMax(tt.in, tt.most); got != tt.want {
			t.Errorf("%q, %d: got %q, want %q", tt.in, tt.most, got, tt.want)
		}
	}
}

func FuzzSafeText(f *testing.F) {
	for _, s := range []string{"", "a\x1b[0m", "\u202e", "\xff\xfe", "\u009b", "日本", "\U000e0001", "a\\n"} {
		f.Add(s, 10)
	}
	f.Fuzz(func(t *testing.T, s string, most int) {
		got := record.SafeText(s)
		if !utf8.ValidString(got) {
			t.Fatalf("%q gives invalid UTF-8 %q", s, got)
		}
		for _, r := range got {
			if r < 0x20 || r >= 0x7f && r <= 0x9f || strings.ContainsRune("\u200b\u200e\u202e\u2066\u2028\ufeff", r) {
				t.Fatalf("%q keeps %U", s, r)
			}
		}
		if record.IsSafeText(s) != (got == s) {
			t.Fatalf("%q is safe or not", s)
		}
		if again := record.SafeText(got); again != got {
			t.Fatalf("%q is changed again: %q, %q", s, got, again)
		}
		if most >= 1 && most < 1000 {
			if short := record.SafeTextMax(s, most); utf8.RuneCountInString(short) > most {
				t.Fatalf("%q cut to %d is %q", s, most, short)
			}
		}
	})
}
