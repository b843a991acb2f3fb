package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"relay/client"
	"relay/record"
)

// Bounds of a body that relay up --echo prints.
const (
	echoedLines = 24
	echoedDepth = 50  // largest depth of brackets that is indented; deeper brackets would make long lines
	echoedRunes = 160 // largest length of a line
)

// echoed shows the request that the local server of --echo got, above the log line of that request.
func (s *upScreen) echoed(e client.Echoed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mode != outputCompact || e.Size == 0 {
		return
	}
	_ = s.w.Text(echoedText(e), "")
}

// depthOf returns the deepest nesting of brackets in a text. Brackets in strings count, too.
func depthOf(text []byte) (deepest int) {
	depth := 0
	for _, c := range text {
		switch c {
		case '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ']', '}':
			depth--
		}
	}
	return deepest
}

// echoedText returns the beginning of a body, indented, and without terminal control characters.
func echoedText(e client.Echoed) string {
	body := e.Body
	title := fmt.Sprintf("%s %s got %s:\n", record.SafeTextMax(e.Method, 20), record.SafeTextMax(e.Target, 100), record.Count(int(e.Size), "byte", "bytes"))
	whole := e.Size == int64(len(body))
	for n := 0; !whole && n < utf8.UTFMax-1 && !utf8.Valid(body); n++ { // the last character may be incomplete
		body = body[:len(body)-1]
	}
	if !utf8.Valid(body) || bytes.IndexByte(body, 0) >= 0 {
		return title + "  (not text)\n"
	}
	var indented bytes.Buffer
	if whole && depthOf(body) <= echoedDepth && json.Indent(&indented, body, "", "  ") == nil {
		body = indented.Bytes()
	}
	lines := strings.Split(strings.TrimRight(string(body), "\r\n"), "\n")
	var out strings.Builder
	out.WriteString(title)
	for i, line := range lines {
		if i == echoedLines {
			break
		}
		out.WriteString("  " + record.SafeTextMax(strings.TrimSuffix(line, "\r"), echoedRunes) + "\n")
	}
	if len(lines) > echoedLines || !whole {
		out.WriteString("  … the event has all of it\n")
	}
	return out.String()
}
