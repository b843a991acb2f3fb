package record_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/format"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/record"
	"relay/wire"
)

// language is a programming language in which tests are exported.
type language struct {
	name, file string
	format     string
	run        []string
}

var languages = []language{
	{"go", "export.go", "go", []string{"go", "run"}},
	{"go test", "export_test.go", "go", []string{"go", "test", "-count=1"}},
	{"python", "test_export.py", "python", []string{"python3"}},
	{"js", "export.js", "js", []string{"node"}},
	{"js module", "export.mjs", "js", []string{"node"}},
}

// export returns the program of an event.
func export(e *relay.Event, format string) (string, error) {
	x, err := record.Export(e, format, relay.Site{}, "", time.Time{}, record.MaxJSON)
	if err != nil {
		return "", err
	}
	return string(x.Body), nil
}

// write writes the program of an event into its own folder, outside every module.
func (l language) write(t *testing.T, e *relay.Event) (dir string) {
	t.Helper()
	text, err := export(e, l.format)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, l.file), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// start runs the program, which sends its request to addr, and returns the output of the program.
func (l language) start(t *testing.T, dir, addr string, env ...string) (string, error) {
	t.Helper()
	if _, err := exec.LookPath(l.run[0]); err != nil {
		t.Fatalf("this test needs %s", l.run[0])
	}
	cmd := exec.CommandContext(t.Context(), l.run[0], append(l.run[1:len(l.run):len(l.run)], l.file)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), append(env, "RELAY_TEST_ADDR="+addr, "GO111MODULE=off", "GOFLAGS=")...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// rawServer reads as many bytes of each connection as want says, writes the answer, reads the rest, and sends
// all received bytes to the channel got.
func rawServer(t *testing.T, want int, answer string) (addr string, got <-chan []byte) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	heard := make(chan []byte, 1)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			b := make([]byte, want)
			n, _ := io.ReadFull(c, b)
			_, _ = io.WriteString(c, answer)
			rest, _ := io.ReadAll(c)
			_ = c.Close()
			heard <- append(b[:n], rest...)
		}
	}()
	return ln.Addr().String(), heard
}

// hostile returns a request with every byte value in its body and, if HTTP allows the byte, in its
// head. It also contains sequences that end literals, comments and programs.
func hostile(t *testing.T) *relay.Event {
	t.Helper()
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	body := "\"\"\"'''`\\\"; import os; os._exit(3) #*/ -->\n{lines}{status}${id}\\x41\\u0041\\\r\n" + string(every) + "\u2028\u202e\xed\xa0\x80"
	head := "POST /\"`'{id}?$(x)=\\ HTTP/1.1\r\nhOsT: Hook.localhost:8080\r\nX-A:  two  \r\nx-a: \"\\\xe9\xff`'\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
	e := captured(t, head, body)
	half := len(body) / 2
	e.Request.Lines = []byte(fmt.Sprintf("%X;a=\"b\"\r\n%x\r\n000\r\nX-Sum: \"\\\xff\r\n\r\n", half, len(body)-half))
	e.Attempts = []relay.Attempt{{N: 1, HasResponse: true, Status: 418}, {N: 2, State: relay.StateFailed}}
	return e
}

func rawOf(t *testing.T, e *relay.Event) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := wire.Rebuild(&b, &e.Request, nil, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestExportedTestsSendTheExactBytes: each exported test sends the exact bytes of the request, passes if the
// response has the stored status, and fails otherwise.
func TestExportedTestsSendTheExactBytes(t *testing.T) {
	t.Parallel()
	e := hostile(t)
	want := rawOf(t, e)
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			dir := l.write(t, e)
			addr, got := rawServer(t, len(want), "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 418 Teapot\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			if out, err := l.start(t, dir, addr); err != nil {
				t.Fatalf("it fails: %v\n%s", err, out)
			}
			if b := <-got; !bytes.Equal(b, want) {
				t.Errorf("sent\n%q\nwant\n%q", b, want)
			}
			addr, got = rawServer(t, len(want), "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
			if out, err := l.start(t, dir, addr); err == nil || !strings.Contains(out, "500") {
				t.Fatalf("another status passes: %v\n%s", err, out)
			}
			<-got
		})
	}
}

func TestExportedTestsSpeakTLS(t *testing.T) {
	t.Parallel()
	e := captured(t, "GET /x HTTP/1.1\r\nHost: a.b\r\n\r\n", "") // without a stored response, every 2xx is accepted
	s := httptest.NewTLSServer(nil)                              // a nil handler answers 404 to everything
	defer s.Close()
	for _, l := range languages {
		if l.name == "go test" || l.name == "js module" {
			continue
		}
		t.Run(l.name, func(t *testing.T) {
			out, err := l.start(t, l.write(t, e), s.Listener.Addr().String(), "RELAY_TEST_TLS=1")
			if err == nil || !strings.Contains(out, "404") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// TestExportedGoIsTidy: gofmt changes nothing in an exported Go test, and go vet finds nothing.
func TestExportedGoIsTidy(t *testing.T) {
	t.Parallel()
	l := languages[1]
	dir := l.write(t, hostile(t))
	text, err := os.ReadFile(filepath.Join(dir, l.file))
	if err != nil {
		t.Fatal(err)
	}
	if tidy, err := format.Source(text); err != nil || !bytes.Equal(tidy, text) {
		t.Errorf("gofmt: %v\n%s", err, tidy)
	}
	l.run = []string{"go", "vet"}
	if out, err := l.start(t, dir, ""); err != nil {
		t.Errorf("vet: %v\n%s", err, out)
	}
}

func TestExportsThatCannotBe(t *testing.T) {
	t.Parallel()
	whole := func() *relay.Event { return withBody([]byte("hello")) }
	for name, c := range map[string]struct {
		change func(*relay.Event)
		code   string
	}{
		"whole":            {func(*relay.Event) {}, ""},
		"upgraded":         {func(e *relay.Event) { e.Blocker = relay.BlockedUpgraded }, ""},
		"rejected":         {func(e *relay.Event) { e.Blocker = relay.BlockedRejected }, relay.CodeEventNotReplayable},
		"still coming":     {func(e *relay.Event) { e.Request.Body.State = relay.BodyReceiving }, relay.CodeEventNotReplayable},
		"body over limit":  {func(e *relay.Event) { e.Request.Body.State = relay.BodyOverLimit }, relay.CodeEventNotReplayable},
		"body not at hand": {func(e *relay.Event) { e.Request.Body.Size++ }, relay.CodeInternal},
		"large":            {func(e *relay.Event) { *e = *withBody(make([]byte, record.MaxBody+1)) }, relay.CodeConflict},
		"many chunk lines": {func(e *relay.Event) {
			*e = *withBody(bytes.Repeat([]byte("x"), record.MaxBody))
			e.Request.Framing, e.Request.Lines = relay.FramingChunked, append(bytes.Repeat([]byte("1\r\n"), record.MaxBody), "0\r\n\r\n"...)
		}, relay.CodeConflict},
	} {
		e := whole()
		c.change(e)
		formats := []string{"go", "js", "python"}
		if len(e.Request.Body.Data) > 100 {
			formats = formats[:1] // the other formats do the same, but take long
		}
		for _, f := range formats {
			_, err := record.Export(e, f, relay.Site{}, "1", time.Now(), record.MaxJSON)
			var refused *relay.Error
			code := ""
			if errors.As(err, &refused) {
				code = refused.Code
			}
			if code != c.code || (err != nil) != (c.code != "") {
				t.Errorf("%s as %s: %v, want %q", name, f, err, c.code)
			}
		}
	}
	if _, err := record.Export(whole(), "ruby", relay.Site{}, "1", time.Now(), record.MaxJSON); relay.AsError(err).Code != relay.CodeValidationFailed {
		t.Errorf("an unknown format: %v", err)
	}
	for _, f := range record.ExportFormats {
		if out, err := record.Export(whole(), f, relay.Site{AliasDomain: "localhost"}, "1", time.Now(), record.MaxJSON); err != nil || len(out.Body) == 0 || out.Name == "" || !slices.Contains([]string{"text/plain; charset=utf-8", "application/json"}, out.Type) {
			t.Errorf("%s: %+v %v", f, out, err)
		}
	}
}
