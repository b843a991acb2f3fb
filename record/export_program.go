package record

import (
	"bytes"
	_ "embed" // needed for the source texts of the programs
	"strconv"
	"strings"

	"relay"
	"relay/wire"
)

// maxProgram bounds the size of the request in an exported test, in bytes.
const maxProgram = MaxBody + 1<<20

// program is an exported test: a source text with the placeholders {id}, {status} and {lines}. Only
// the lines of the request contain bytes of an untrusted sender.
//
// The test sends the request of an event, byte by byte, to a server of the reader's choice: with the
// letter case and order of header lines, framing and trailers. It expects the status of the event's
// last response, or any from 200 to 299.
type program struct {
	source         string
	before, after  string // parts of the file name before and after the id
	indent, prefix string // indentation and prefix of each literal
}

var (
	//go:embed programs/go.txt
	goProgram string
	//go:embed programs/js.txt
	jsProgram string
	//go:embed programs/python.txt
	pythonProgram string

	programs = map[string]program{
		"go":     {goProgram, "", "_test.go", "\t", ""},        // needs Go 1.21; under a name that does not end in _test.go, "go run" runs it
		"js":     {jsProgram, "", ".test.js", "  ", ""},        // needs Node 18 with node:test; runs both as CommonJS and as ES module
		"python": {pythonProgram, "test_", ".py", "    ", "b"}, // needs Python 3.8 with unittest
	}
)

// literalBytes is the largest number of bytes in one line of an exported test.
const literalBytes = 96

// fill returns the program for an event that ExportRefusal accepts, with its body in memory.
func (p *program) fill(e *relay.Event) ([]byte, error) {
	if int64(len(e.Request.Body.Data)) < e.Request.Body.Size {
		return nil, relay.Errorf(relay.CodeInternal, "the body of %s is not at hand", e.ID)
	}
	var raw bytes.Buffer
	if err := wire.Rebuild(&raw, &e.Request, nil, nil); err != nil {
		return nil, err
	}
	status := 0
	for i := range e.Attempts {
		if a := &e.Attempts[i]; a.HasResponse {
			status = a.Status
		}
	}
	return []byte(strings.NewReplacer(
		"{id}", e.ID.String(), "{status}", strconv.Itoa(status), "{lines}", literals(raw.Bytes(), p.indent, p.prefix),
	).Replace(p.source)), nil
}

// literals returns bytes as string literals, one on each line, that mean the same in Go, JavaScript
// and Python. It escapes everything except printable ASCII, so received bytes cannot end a literal.
func literals(raw []byte, indent, prefix string) string {
	var b strings.Builder
	for len(raw) > 0 {
		n := min(len(raw), literalBytes)
		if end := bytes.IndexByte(raw[:n], '\n'); end >= 0 {
			n = end + 1
		}
		b.WriteString(indent + prefix + `"`)
		for _, c := range raw[:n] {
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
				writeHex(&b, 'x', rune(c), 2)
			default:
				b.WriteByte(c)
			}
		}
		b.WriteString("\",\n")
		raw = raw[n:]
	}
	return b.String()
}
