package main

import (
	"strings"
	"testing"

	"relay/client"
)

// TestEchoedText: --echo prints only a short part of a body, and no terminal control characters.
func TestEchoedText(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", client.EchoedBody/2-1) + "x"
	for name, c := range map[string]struct {
		body  string
		size  int64 // 0 = length of the body
		want  string
		lines int // 0 = the text is equal to want; else the text has this many lines and ends with want
	}{
		"JSON":       {`{"a":[1,"é"]}`, 0, "POST /hook got 14 bytes:\n  {\n    \"a\": [\n      1,\n      \"é\"\n    ]\n  }\n", 0},
		"form":       {"a=1&b=2", 0, "POST /hook got 7 bytes:\n  a=1&b=2\n", 0},
		"escapes":    {"\x1b]0;owned\x07\u202e\r\nb\r\n", 0, "POST /hook got 18 bytes:\n  \\x1b]0;owned\\x07\\u202e\n  b\n", 0},
		"binary":     {"\x00\xff", 0, "POST /hook got 2 bytes:\n  (not text)\n", 0},
		"many lines": {strings.Repeat("a\n", 1000), 0, "  … the event has all of it\n", echoedLines + 2},
		"cut":        {long + "\xc3", 1 << 30, "  … the event has all of it\n", 3},
	} {
		t.Run(name, func(t *testing.T) {
			e := client.Echoed{Method: "POST", Target: "/hook", Body: []byte(c.body), Size: int64(len(c.body))}
			if c.size > 0 {
				e.Size = c.size
			}
			got := echoedText(e)
			if c.lines == 0 && got != c.want || !strings.HasSuffix(got, c.want) || c.lines > 0 && strings.Count(got, "\n") != c.lines || len(got) > 8000 {
				t.Errorf("%q", got)
			}
		})
	}
}
