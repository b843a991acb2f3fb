package record_test

import (
	"testing"

	"relay/record"
)

func TestDecodeText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "a": "a", "\ufeffa\r\n": "a\r\n", "\ufeff\ufeffa": "\ufeffa", "a\ufeff": "a\ufeff", "\xef\xbb": "\xef\xbb",
		"\xff\xfea\x00\n\x00": "a\n", "\xfe\xff\x00a\x00\n": "a\n", "\xff\xfe\x3d\xd8\x00\xdea": "\U0001F600", "\xff": "\xff", "\xff\xfe": "", "caf\xe9": "caf\xe9",
	} {
		if got := string(record.DecodeText([]byte(text))); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
