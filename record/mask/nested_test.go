package mask

import (
	"encoding/json"
	"net/url"
	"testing"

	"relay/record/body"
)

// FuzzNested: JSON in a string is decoded as by encoding/json, and the value of a form field as by net/url.
// Each decoded byte has a position; the positions never decrease, and the last one is the end of the text.
func FuzzNested(f *testing.F) {
	for _, s := range []string{`{\"a\":\"\u00e9\ud83d\ude00\"}`, `\ud83dx`, `\ud83d\u0041`, `\`, `\x`, `\u12`, `\n\t\/\b`, "%7B%22a%22+%zz%", "a+b%"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, inside []byte) {
		var n nested
		var want string
		quoted := append(append([]byte{'"'}, inside...), '"')
		if ok := n.unquote(inside); json.Unmarshal(quoted, &want) == nil && (!ok || want != string([]rune(string(n.plain)))) {
			t.Errorf("%q is read as %q (%v), want %q", inside, n.plain, ok, want)
		} else if ok {
			places(t, &n, inside)
		}
		n.unescape(inside)
		places(t, &n, inside)
		if plain := body.Unescape(inside); string(n.plain) != string(plain) {
			t.Errorf("%q is unescaped as %q, want %q", inside, n.plain, plain)
		}
		if plain, err := url.QueryUnescape(string(inside)); err == nil && plain != string(n.plain) {
			t.Errorf("%q is unescaped as %q, net/url says %q", inside, n.plain, plain)
		}
	})
}

func places(t *testing.T, n *nested, inside []byte) {
	t.Helper()
	if len(n.at) != len(n.plain)+1 || int(n.at[len(n.plain)]) != len(inside) {
		t.Fatalf("%q: %d places of %d bytes", inside, len(n.at), len(n.plain))
	}
	for i := 1; i < len(n.at); i++ {
		if n.at[i] < n.at[i-1] {
			t.Fatalf("%q: place %d is %d, behind %d", inside, i, n.at[i], n.at[i-1])
		}
	}
}

// TestNestedKeepsTheSpelling: masking JSON that is nested in strings or form fields replaces only the
// secrets; escapes, spaces and numbers around them stay as they were.
func TestNestedKeepsTheSpelling(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"m":"{\"token\":\"s\",\"a\":\"<\\u00e9\/\",\"b\":1.0}"}`:           `{"m":"{\"token\": \"[masked]\",\"a\":\"<\\u00e9\/\",\"b\":1.0}"}`,
		`{"m":"{\"n\":\"{\\\"token\\\":\\\"s\\\",\\\"a\\\":1}\"}"}`:          `{"m":"{\"n\":\"{\\\"token\\\": \\\"[masked]\\\",\\\"a\\\":1}\"}"}`,
		`{"m":"[[\"X-Api-Key\",\"s\"],{\"name\":\"pwd\",\"value\":\"s\"}]"}`: `{"m":"[[\"X-Api-Key\",\"[masked]\"],{\"name\":\"pwd\",\"value\":\"[masked]\"}]"}`,
	} {
		m := New("")
		m.Learned()
		if shown, _, _ := m.Body(&body.Reading{Form: body.JSON, Text: []byte(text)}); shown != want {
			t.Errorf("%s\nis shown as\n%s\nwant\n%s", text, shown, want)
		}
	}
	const form, want = "a=%7b%22token%22:%22s%22,%22b%22:%22x+%c3%a9%22%7d&c=1", "a=%7b%22token%22%3A+%22%5Bmasked%5D%22,%22b%22:%22x+%c3%a9%22%7d&c=1"
	m := New("")
	m.Learned()
	if shown, _, _ := m.Body(&body.Reading{Form: body.URLEncoded, Text: []byte(form)}); shown != want {
		t.Errorf("%s is shown as %s", form, shown)
	}
}
