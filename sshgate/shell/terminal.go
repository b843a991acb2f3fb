package shell

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/crypto/ssh"
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

// Bounds of what a client may say about its window.
const minColumns, maxColumns = 25, 1000

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
	s.resize(pty.Columns)
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
	s.resize(window.Columns)
	return true
}

// resize is called with mu held.
func (s *Screen) resize(columns uint32) {
	if s.columns = 0; columns > 0 {
		s.columns = int(min(max(columns, minColumns), maxColumns))
	}
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

// width returns how many columns a line may take; 0 = any number.
func (s *Screen) width() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.pty || s.columns == 0 {
		return 0
	}
	return s.columns - 1 // some terminals wrap when the last one is written
}

// tone is a colour of a terminal (ECMA-48, SGR).
type tone string

// The tones of outcomes.
const (
	toneNone tone = ""
	toneGood tone = "32" // green
	toneElse tone = "36" // cyan
	toneHere tone = "33" // yellow: the asker's fault
	toneBad  tone = "31" // red
)

// paint colours text where the terminal can and its owner wants it.
func (s *Screen) paint(t tone, text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t == toneNone || !s.pty || s.dumb || s.noColor {
		return text
	}
	return "\x1b[" + string(t) + "m" + text + "\x1b[0m"
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

// wide are the blocks whose characters take two columns: Hangul, CJK, kana, full
// width forms, pictures.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x1100, Hi: 0x115f, Stride: 1},
		{Lo: 0x2e80, Hi: 0x303e, Stride: 1},
		{Lo: 0x3041, Hi: 0xa4cf, Stride: 1},
		{Lo: 0xa960, Hi: 0xa97f, Stride: 1},
		{Lo: 0xac00, Hi: 0xd7a3, Stride: 1},
		{Lo: 0xf900, Hi: 0xfaff, Stride: 1},
		{Lo: 0xfe30, Hi: 0xfe6f, Stride: 1},
		{Lo: 0xff00, Hi: 0xff60, Stride: 1},
		{Lo: 0xffe0, Hi: 0xffe6, Stride: 1},
	},
	R32: []unicode.Range32{{Lo: 0x1f000, Hi: 0x1faff, Stride: 1}, {Lo: 0x20000, Hi: 0x3fffd, Stride: 1}},
}

// columnsOf is how many columns text takes at most: marks that stand above others
// are counted as if they stood alone.
func columnsOf(text string) int {
	n := 0
	for _, r := range text {
		n++
		if unicode.Is(wide, r) {
			n++
		}
	}
	return n
}

// shorten cuts text to at most so many columns; where something was cut the last
// one is "…".
func shorten(text string, columns int) string {
	if columnsOf(text) <= columns {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if columns -= columnsOf(string(r)); columns < 1 {
			break
		}
		b.WriteRune(r)
	}
	return b.String() + "…"
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
