package record_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"relay"
	"relay/record"
)

// goLiterals reads the request from the literals of an exported Go test.
func goLiterals(t *testing.T, text string) []byte {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", text, 0)
	if err != nil {
		t.Fatalf("%v in %.300s", err, text)
	}
	var b []byte
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR {
			continue
		}
		ast.Inspect(g.Specs[0].(*ast.ValueSpec).Values[0].(*ast.CallExpr).Args[0], func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok {
				s, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				b = append(b, s...)
			}
			return true
		})
	}
	return b
}

// FuzzExportedLiterals: the literals of an exported Go test have exactly the bytes of the request. An
// exported test in JavaScript or Python has only printable ASCII and line ends.
func FuzzExportedLiterals(f *testing.F) {
	f.Add([]byte("\"`\\\x00\xff\n\r\u2028*/\"\"\""))
	f.Fuzz(func(t *testing.T, body []byte) {
		e := withBody(body)
		want := string(e.Request.Head) + string(body)
		text, err := export(e, "go")
		if err != nil {
			t.Fatal(err)
		}
		if got := goLiterals(t, text); string(got) != want {
			t.Errorf("%q became %q", want, got)
		}
		for _, format := range []string{"js", "python"} {
			text, err := export(e, format)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(text) {
				for _, c := range []byte(strings.TrimSuffix(line, "\n")) {
					if c < 0x20 || c > 0x7e {
						t.Fatalf("a raw byte %#x in %q", c, line)
					}
				}
			}
		}
	})
}

func withBody(body []byte) *relay.Event {
	head := fmt.Sprintf("POST / HTTP/1.1\r\nHost: a.b\r\nContent-Length: %d\r\n\r\n", len(body))
	return &relay.Event{Request: relay.Message{
		Head: []byte(head), Framing: relay.FramingLength, Body: relay.Body{Data: body, Size: int64(len(body)), Stored: int64(len(body)), State: relay.BodyComplete},
	}}
}

// TestOtherLanguagesReadTheSameBytes gives many random requests to one interpreter of each
// language, which evaluates the literals and writes their bytes.
func TestOtherLanguagesReadTheSameBytes(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var want [][]byte
	var texts [2][]string
	for i := range 200 {
		body := make([]byte, random.IntN(400))
		for i := range body {
			body[i] = byte(random.IntN(256))
			if random.IntN(3) == 0 {
				body[i] = hostileBytes[random.IntN(len(hostileBytes))]
			}
		}
		e := withBody(body)
		want = append(want, rawOf(t, e))
		for j, format := range []string{"python", "js"} {
			text, err := export(e, format)
			if err != nil {
				t.Fatal(i, err)
			}
			texts[j] = append(texts[j], text)
		}
	}
	for j, run := range [][]string{
		{"python3", "-c", "import sys,json\nfor s in json.load(sys.stdin):\n  g={'__name__':'x'}\n  exec(s,g)\n  print(g['REQUEST'].hex())"},
		{"node", "-e", `for (const s of JSON.parse(require("fs").readFileSync(0))) console.log(eval(s.slice(s.indexOf("Buffer.from("), s.indexOf("async function"))).toString("hex"))`},
	} {
		in, err := json.Marshal(texts[j])
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(context.Background(), run[0], run[1:]...)
		cmd.Stdin = bytes.NewReader(in)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %.1000s", run[0], err, out)
		}
		lines := strings.Fields(string(out))
		for i, w := range want {
			if i >= len(lines) || lines[i] != fmt.Sprintf("%x", w) {
				t.Fatalf("%s: request %d of %d came out wrong: %q", run[0], i, len(lines), w)
			}
		}
	}
}

// TestLargestExport: an exported Go test has all bytes of the largest body in its literals. The source has at
// most five times as many bytes as the body.
func TestLargestExport(t *testing.T) {
	t.Parallel()
	body := make([]byte, record.MaxBody)
	for i := range body {
		body[i] = byte(i * 7)
	}
	text, err := export(withBody(body), "go")
	if err != nil {
		t.Fatal(err)
	}
	if got := goLiterals(t, text); !bytes.HasSuffix(got, body) {
		t.Error("it holds other bytes")
	}
	if len(text) > 5*record.MaxBody {
		t.Errorf("%d bytes of source", len(text))
	}
}

// hostileBytes are the bytes with a special meaning in one of the languages.
const hostileBytes = "\"'\\`\n\r\t\x00xu{}$#/*"
