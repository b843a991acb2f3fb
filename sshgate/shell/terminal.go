package shell

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/crypto/ssh"

	"relay/record"
)

// Screen is what a session knows of the terminal at its other end. It is safe for
// concurrent use; the zero value is no terminal.
type Screen struct {
	mu      sync.Mutex
	pty     bool
	dumb    bool
	noColor bool
	columns int // 0 = not known
}

// maxColumns is the widest window that is taken from a client.
const maxColumns = 1000

// Request takes a pty-req (RFC 4254, section 6.2).
func (s *Screen) Request(payload []byte) bool {
	var pty struct {
		Term                         string
		Columns, Rows, Width, Height uint32
		Modes                        string
	}
	if ssh.Unmarshal(payload, &pty) != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pty = true
	s.dumb = pty.Term == "" || pty.Term == "dumb"
	s.columns = int(min(pty.Columns, maxColumns))
	return true
}

// Change takes a window-change (RFC 4254, section 6.7).
func (s *Screen) Change(payload []byte) bool {
	var window struct{ Columns, Rows, Width, Height uint32 }
	if ssh.Unmarshal(payload, &window) != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.columns = int(min(window.Columns, maxColumns))
	return true
}

// Env takes an environment variable; only those that switch colours off mean
// anything here.
func (s *Screen) Env(payload []byte) bool {
	var variable struct{ Name, Value string }
	if ssh.Unmarshal(payload, &variable) != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch variable.Name {
	case "NO_COLOR":
		s.noColor = s.noColor || variable.Value != ""
	case "TERM":
		s.noColor = s.noColor || variable.Value == "dumb"
	default:
		return false
	}
	return true
}

// HasPTY reports whether the client asked for a terminal.
func (s *Screen) HasPTY() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pty
}

// tones are the colours of outcomes by the class of their status (ECMA-48, SGR): green, cyan,
// yellow for the asker's fault, red.
var tones = [...]string{2: "32", 3: "36", 4: "33", 5: "31"}

// Bounds of a method and a path in a line, and of a path that is shortened to the window:
// with less of it a line says too little, so it wraps instead.
const maxMethod, maxPath, minPath = 32, 512, 12

// line returns a line with its path shortened to the window, and with its outcome in colour
// where the terminal can and its owner wants it.
func (s *Screen) line(l record.Line) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := l.Path
	l.Method, l.Path = record.SafeTextMax(l.Method, maxMethod), "/"
	most := maxPath
	if width := s.columns - 1; s.pty && width > 0 { // some terminals wrap when the last column is written
		most = min(most, max(minPath, width-utf8.RuneCountInString(l.String())+1))
	}
	l.Path = record.SafeTextMax(path, most)
	if l.Status < 200 || !s.pty || s.dumb || s.noColor {
		return l.String()
	}
	painted := "\x1b[" + tones[min(l.Status/100, 5)] + "m" + l.Outcome() + "\x1b[0m"
	return strings.Replace(l.String(), l.Outcome(), painted, 1)
}

// Writer gives what writes lines as the terminal needs them.
func (s *Screen) Writer(w io.Writer) io.Writer {
	if s.HasPTY() {
		return crlf{w}
	}
	return w
}

// crlf ends lines as a raw terminal needs it.
type crlf struct{ w io.Writer }

func (t crlf) Write(p []byte) (int, error) {
	if _, err := t.w.Write(bytes.ReplaceAll(p, []byte("\n"), []byte("\r\n"))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// maxLine is the longest line of input that is looked at, MaxKeys how many keys and
// lines may wait for a command.
const maxLine, MaxKeys = 256, 64

// The bytes that a terminal sends for Ctrl+C and Ctrl+D.
const ctrlC, ctrlD = 3, 4

// ReadKeys reads input until its end and sends it to keys: single keys with a terminal, else
// lines. What does not fit there is dropped: x/crypto would keep 2 MiB for a command that does
// not read. p and err are what a read before has returned. The end of the input means nothing:
// ssh without a terminal has none from the start.
func (s *Screen) ReadKeys(in io.Reader, p []byte, err error, keys chan<- string) {
	var line []byte
	buf := make([]byte, 4096)
	for {
		for _, b := range p {
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
		if err != nil {
			return
		}
		var n int
		n, err = in.Read(buf)
		p = buf[:n]
	}
}
