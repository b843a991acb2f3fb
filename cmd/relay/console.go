package main

import (
	"io"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// console keeps a status line below what is written to a terminal. Without a status
// it changes nothing of what passes. Its methods may be called by several goroutines.
type console struct {
	tty   io.Writer
	width func() int // of the terminal, in cells; 0 = not known

	mu     sync.Mutex
	status string
	asleep bool // the terminal belongs to somebody else just now
	drawn  int  // cells of the status that is on the terminal; 0 = none
}

// over gives a writer to w, whose text appears above the status. Each write has to
// be whole lines.
func (c *console) over(w io.Writer) io.Writer { return above{c, w} }

type above struct {
	c *console
	w io.Writer
}

func (a above) Write(p []byte) (int, error) {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	a.c.wipe()
	n, err := a.w.Write(p)
	a.c.draw()
	return n, err
}

// show puts another status there, "" for none. It has to be safe to print.
func (c *console) show(status string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if status == c.status {
		return
	}
	c.wipe()
	c.status = status
	c.draw()
}

// send writes what is no text, such as a request to the terminal itself.
func (c *console) send(sequence string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.asleep {
		_, _ = io.WriteString(c.tty, sequence)
	}
}

// sleep takes the status away while the terminal belongs to somebody else; wake
// puts it back.
func (c *console) sleep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wipe()
	c.asleep = true
}

func (c *console) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asleep = false
	c.draw()
}

// resized draws anew for another width.
func (c *console) resized() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wipe()
	c.draw()
}

// wipe takes the status off the terminal. One that was drawn on a wider terminal
// stands on several rows by now.
func (c *console) wipe() {
	if c.drawn == 0 {
		return
	}
	up := ""
	if width := c.width(); width > 0 && c.drawn > width {
		up = "\x1b[" + strconv.Itoa((c.drawn-1)/width) + "A"
	}
	_, _ = io.WriteString(c.tty, "\r"+up+"\x1b[J")
	c.drawn = 0
}

func (c *console) draw() {
	if c.status == "" || c.asleep {
		return
	}
	width := c.width()
	if width <= 0 {
		width = 80
	}
	text, n := cut(c.status, width-1)
	_, _ = io.WriteString(c.tty, "\r"+text)
	c.drawn = n
}

// cut gives as much of a text as fits into so many cells, and how many it takes.
// Letters from the East are as wide as two.
func cut(s string, cells int) (string, int) {
	n := 0
	for i, r := range s {
		w := 1
		if r >= 0x1100 {
			w = 2
		}
		if n+w > cells {
			return s[:i], n
		}
		n += w
	}
	return s, n
}

// typed is what somebody types into a line: runes are added and taken away.
type typed struct{ b strings.Builder }

const longestTyped = 100

func (t *typed) add(s string) {
	for _, r := range s {
		if t.b.Len() < longestTyped && r != utf8.RuneError {
			t.b.WriteRune(r)
		}
	}
}

func (t *typed) back() {
	s := t.b.String()
	_, size := utf8.DecodeLastRuneInString(s)
	t.b.Reset()
	t.b.WriteString(s[:len(s)-size])
}

func (t *typed) String() string { return t.b.String() }
