package record

import (
	_ "embed" // the programs
	"fmt"
	"strconv"
	"strings"

	"relay"
	"relay/wire"
)

// maxProgram bounds the wire bytes that an exported test carries.
const maxProgram = MaxBody + 1<<20

// The programs that exports are. What varies stands in braces; the lines of the request
// are the only part that a stranger has a say in.
var (
	//go:embed programs/go.txt
	goProgram string
	//go:embed programs/js.txt
	jsProgram string
	//go:embed programs/python.txt
	pythonProgram string
)

// literalBytes is how many bytes stand in one line of an exported test at most.
const literalBytes = 96

// ExportGo gives a Go test (Go 1.21 and newer, standard library only) that sends the
// request of an event to a server of the reader's choice, every byte of it: letter
// case and order of header lines, framing and trailers included. It expects the
// status that the event was answered with last, or any from 200 to 299. The same
// file under another name runs by "go run".
//
// e is read whole, its request body up to MaxBody. Errors: event-not-replayable when
// the request was not kept whole, body-too-large when its wire form is larger than a
// test should carry.
func ExportGo(e *relay.Event) (string, error) { return program(e, goProgram, "\t", "") }

// ExportJS is ExportGo for Node 18 and newer: a test of node:test, as CommonJS or ES
// module alike.
func ExportJS(e *relay.Event) (string, error) { return program(e, jsProgram, "  ", "") }

// ExportPython is ExportGo for Python 3.8 and newer: a test of unittest.
func ExportPython(e *relay.Event) (string, error) { return program(e, pythonProgram, "    ", "b") }

// program fills a source text: {id}, {status}, {lines}.
func program(e *relay.Event, source, indent, prefix string) (string, error) {
	raw, err := wireBytes(e)
	if err != nil {
		return "", err
	}
	status := 0
	for i := range e.Attempts {
		if a := &e.Attempts[i]; a.HasResponse {
			status = a.Status
		}
	}
	return strings.NewReplacer(
		"{id}", e.ID.String(), "{status}", strconv.Itoa(status), "{lines}", literals(raw, indent, prefix),
	).Replace(source), nil
}

// wireBytes gives the request as it was received.
func wireBytes(e *relay.Event) ([]byte, error) {
	body := &e.Request.Body
	if e.Blocker != "" && e.Blocker != relay.BlockedUpgraded || body.State != relay.BodyComplete {
		refused := relay.Errorf(relay.CodeEventNotReplayable, "this request was not kept whole, so there are no exact bytes to send")
		if refused.Reason = e.Blocker; refused.Reason == "" {
			refused.Reason = relay.BlockedIncomplete
		}
		return nil, refused
	}
	large := relay.Errorf(relay.CodeBodyTooLarge, "this request is too large to stand in a test; fetch request.raw and send that")
	if body.Size > MaxBody || int64(len(body.Data)) < body.Size {
		return nil, large
	}
	raw := make([]byte, 0, len(e.Request.Head)+len(e.Request.Lines)+len(body.Data))
	err := wire.Rebuild(&e.Request, nil, nil, func(p []byte) error {
		if len(raw)+len(p) > maxProgram {
			return large
		}
		raw = append(raw, p...)
		return nil
	})
	return raw, err
}

// literals are bytes as string literals, one a line, that mean the same in Go,
// JavaScript and Python. Only printable ASCII stands for itself, so nothing that a
// stranger sent can end a literal or be read as anything else.
func literals(raw []byte, indent, prefix string) string {
	var b strings.Builder
	for len(raw) > 0 {
		n := min(len(raw), literalBytes)
		for i, c := range raw[:n] {
			if c == '\n' {
				n = i + 1
				break
			}
		}
		b.WriteString(indent + prefix + `"`)
		for _, c := range raw[:n] {
			writeLiteral(&b, c)
		}
		b.WriteString("\",\n")
		raw = raw[n:]
	}
	return b.String()
}

func writeLiteral(b *strings.Builder, c byte) {
	switch {
	case c == '\r':
		b.WriteString(`\r`)
	case c == '\n':
		b.WriteString(`\n`)
	case c == '\t':
		b.WriteString(`\t`)
	case c == '"' || c == '\\':
		b.WriteByte('\\')
		b.WriteByte(c)
	case c < 0x20 || c >= 0x7f:
		fmt.Fprintf(b, `\x%02x`, c)
	default:
		b.WriteByte(c)
	}
}
