package body_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"relay/record/body"
)

func TestReadable(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`"1 \u00d7 Pro plan (at \u20ac16.50)"`: `"1 × Pro plan (at €16.50)"`,
		`"\ud83d\ude00 \u004A"`:                `"😀 J"`,
		`"https:\/\/a\/b"`:                     `"https://a/b"`,
		`"\\u00d7 \\\u00d7"`:                   `"\\u00d7 \\×"`,
		`"\u0022 \u005c \n \u0007 \u202e"`:     `"\u0022 \u005c \n \u0007 \u202e"`,
		`"\ud83d x \ude00 \u00zz"`:             `"\ud83d x \ude00 \u00zz"`,
		`"\u0301 \u200b \u00a0 \ufffd"`:        `"\u0301 \u200b \u00a0 \ufffd"`,
		`"cut \u00`:                            `"cut \u00`,
		`"\`:                                   `"\`,
		`plain`:                                `plain`,
	} {
		if got := string(body.Readable([]byte(in))); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// FuzzReadable: Readable keeps the value of JSON, and a second call changes nothing.
func FuzzReadable(f *testing.F) {
	f.Add([]byte(`{"a\u00d7":["\ud83d\ude00\/",1.0,"\\u0041"]}`))
	f.Fuzz(func(t *testing.T, p []byte) {
		out := body.Readable(p)
		if again := body.Readable(out); !bytes.Equal(again, out) && json.Valid(p) {
			t.Fatalf("%q becomes %q, and then %q", p, out, again)
		}
		var was, is any
		if json.Unmarshal(p, &was) == nil && (json.Unmarshal(out, &is) != nil || !reflect.DeepEqual(was, is)) {
			t.Fatalf("%q becomes %q", p, out)
		}
	})
}
