package shell

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/crypto/ssh"

	"relay/cli"
)

// Screen holds the known properties of the terminal of a session. It is safe for concurrent use; the zero value stands
// for a session without a terminal.
type Screen struct {
	pty     atomic.Bool // not under mu, because ReadKeys reads it for each byte of input
	mu      sync.Mutex
	dumb    bool
	noColor bool
	columns int // 0 = unknown
}

// maxColumns is the largest width of a window that is accepted from a client.
const maxColumns = 1000

// Request handles a request about the terminal: pty-req, window-change or env (RFC 4254, sections 6.2, 6.7 and 6.4). Of
// the environment variables, it uses only those that switch colors off. It returns false for a request that it refuses.
func (s *Screen) Request(kind string, payload []byte) bool {
	var pty struct {
		Term                         string
		Columns, Rows, Width, Height uint32
		Modes                        string
	}
	var window struct{ Columns, Rows, Width, Height uint32 }
	var variable struct{ Name, Value string }
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case kind == "pty-req" && ssh.Unmarshal(payload, &pty) == nil:
		s.pty.Store(true)
		s.dumb = pty.Term == "" || pty.Term == "dumb"
		s.columns = int(min(pty.Columns, maxColumns))
	case kind == "window-change" && ssh.Unmarshal(payload, &window) == nil:
		s.columns = int(min(window.Columns, maxColumns))
	case kind == "env" && ssh.Unmarshal(payload, &variable) == nil && (variable.Name == "NO_COLOR" || variable.Name == "TERM"):
		s.noColor = s.noColor || variable.Value == "dumb" || variable.Name == "NO_COLOR" && variable.Value != ""
	default:
		return false
	}
	return true
}

// HasPTY reports whether the client asked for a terminal.
func (s *Screen) HasPTY() bool { return s.pty.Load() }

// terminal returns the properties of the terminal as package cli needs them.
func (s *Screen) terminal() cli.Terminal {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.pty.Load() {
		return cli.Terminal{}
	}
	return cli.Terminal{Color: !s.dumb && !s.noColor, Columns: s.columns}
}

// Writer returns a writer with the line ends that the terminal needs.
func (s *Screen) Writer(w io.Writer) io.Writer {
	if s.HasPTY() {
		return crlf{w}
	}
	return w
}

// crlf writes line ends as CRLF, which a raw terminal needs.
type crlf struct{ w io.Writer }

func (t crlf) Write(p []byte) (int, error) {
	if _, err := t.w.Write(bytes.ReplaceAll(p, []byte("\n"), []byte("\r\n"))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// maxLine is the largest length of an input line that is read, and MaxKeys the largest number of keys
// and lines that wait for a command.
const maxLine, MaxKeys = 256, 64

// These are the bytes of Ctrl+C and Ctrl+D.
const ctrlC, ctrlD = 3, 4

// ReadKeys reads input until its end and sends it to keys: single keys if there is a terminal, else lines. If
// keys is full, input is dropped, because x/crypto would hold 2 MiB of it for a command that does not read.
// The end of the input does not end the session, because ssh without a terminal may have no input.
func (s *Screen) ReadKeys(in io.ByteReader, keys chan<- string) {
	var line []byte
	for b, err := in.ReadByte(); err == nil; b, err = in.ReadByte() {
		key := ""
		switch pty := s.HasPTY(); {
		case b == ctrlC, pty && b == ctrlD:
			key = "q"
		case pty && strings.IndexByte("qQrR", b) >= 0:
			key = strings.ToLower(string(b))
		case b == '\n' || b == '\r':
			key, line = string(line), line[:0]
		case len(line) < maxLine:
			line = append(line, b)
		}
		if key == "" {
			continue
		}
		select {
		case keys <- key:
		default:
		}
	}
}
