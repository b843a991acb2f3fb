package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"relay/record"
)

func TestKeysOfATerminal(t *testing.T) {
	for in, want := range map[string]string{
		"j": "j", "jjj": "j j j", "R": "R", "\r": keyEnter, "\x7f": keyBack, "\x1b": keyEscape,
		"\x1b[A": keyUp, "\x1bOB": keyDown, "\x1b[A\x1b[B": keyUp + " " + keyDown, "é": "é", "\x1b[1;5A": "", "\x1b[15~": "", "\x1bq": "",
		"\x00": "", "\x04": "", "\xff": "", "qR": "", "hello q\n": "", "r\nq\n": "", "\x1b[200~q\x1b[201~": "", "\x1b[200~qR\x1b[201~j": "j",
	} {
		var k keyParser
		if got := strings.Join(k.parse([]byte(in), time.Time{}.Add(time.Hour)), " "); got != want {
			t.Errorf("%q gives %q, want %q", in, got, want)
		}
	}
}

func TestPastedTextIsNoKeys(t *testing.T) {
	var k keyParser
	now := time.Now()
	for i, piece := range []string{"\x1b[200~rm -rf", " R", "q", "\x1b[A", "q\x1b[201~"} {
		if keys := k.parse([]byte(piece), now); len(keys) > 0 {
			t.Errorf("piece %d of a marked paste gives %v", i, keys)
		}
	}
	if keys := k.parse([]byte("j"), now); !slices.Equal(keys, []string{"j"}) {
		t.Errorf("after a paste j gives %v", keys)
	}
	k = keyParser{}
	for i, piece := range []string{"some text", "q", "R"} {
		now = now.Add(pasteQuiet / 4)
		if keys := k.parse([]byte(piece), now); len(keys) > 0 {
			t.Errorf("piece %d of an unmarked paste gives %v", i, keys)
		}
	}
	if keys := k.parse([]byte("q"), now.Add(2*pasteQuiet)); !slices.Equal(keys, []string{"q"}) {
		t.Errorf("later q gives %v", keys)
	}
}

// screenOf plays a terminal: carriage return, line feed, cursor up and erase below.
func screenOf(t *testing.T, width int, out string) []string {
	t.Helper()
	var rows [][]rune
	x, y := 0, 0
	for out != "" {
		switch {
		case strings.HasPrefix(out, "\x1b[J"):
			rows, out = append(rows[:y:y], rows[y][:min(x, len(rows[y]))]), out[3:]
		case strings.HasPrefix(out, "\x1b["):
			end := strings.IndexByte(out, 'A')
			y, out = y-int(out[2]-'0'), out[end+1:]
		case out[0] == '\r':
			x, out = 0, out[1:]
		case out[0] == '\n':
			x, y, out = 0, y+1, out[1:]
		default:
			r := []rune(out)[0]
			if x == width {
				x, y = 0, y+1
			}
			for len(rows) <= y {
				rows = append(rows, nil)
			}
			rows[y] = append(rows[y][:min(x, len(rows[y]))], r)
			x, out = x+1, out[len(string(r)):]
		}
		for len(rows) <= y {
			rows = append(rows, nil)
		}
	}
	var lines []string
	for _, r := range rows {
		lines = append(lines, string(r))
	}
	return lines
}

func TestStatusStaysBelowTheLog(t *testing.T) {
	var out strings.Builder
	width := 20
	con := &console{tty: &out, width: func() int { return width }}
	w := con.over(&out)
	_, _ = w.Write([]byte("one\n"))
	if out.String() != "one\n" {
		t.Errorf("without a status %q is written", out.String())
	}
	con.show("> status that is longer than the terminal")
	_, _ = w.Write([]byte("two\n"))
	width = 5 // the terminal has wrapped what was drawn; screenOf does not, so play that
	want := []string{"one", "two", "> status that is lo"}
	if got := screenOf(t, 20, out.String()); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	out.Reset()
	con.resized()
	if got := out.String(); got != "\r\x1b[3A\x1b[J\r> st" {
		t.Errorf("a narrow terminal gets %q", got)
	}
	out.Reset()
	con.sleep()
	con.show("other")
	con.send("x")
	_, _ = w.Write([]byte("three\n"))
	if got := out.String(); got != "\r\x1b[J"+"three\n" {
		t.Errorf("somebody else's terminal gets %q", got)
	}
	out.Reset()
	con.wake()
	con.show("")
	if got := out.String(); got != "\rothe\r\x1b[J" {
		t.Errorf("%q", got)
	}
	if text, n := cut("日本語", 5); text != "日本" || n != 4 {
		t.Errorf("%q, %d", text, n)
	}
}

func TestPickingWalksThroughWhatFits(t *testing.T) {
	con := &console{tty: &strings.Builder{}, width: func() int { return 200 }}
	p := newPicker(con)
	if p.move(1) || p.selected() != "" {
		t.Error("something is selected of nothing")
	}
	add := func(id, line string) bool { return p.add(&record.Summary{ID: id}, line) }
	for _, id := range []string{"a", "b", "c"} {
		add(id, "POST /"+id)
	}
	if p.selected() != "c" { // the newest
		t.Errorf("selected %q", p.selected())
	}
	p.move(-1)
	add("d", "POST /d")
	if p.selected() != "b" || !strings.HasPrefix(con.status, "> 2/4  POST /b") {
		t.Errorf("selected %q, status %q", p.selected(), con.status)
	}
	for range 9 {
		p.move(1)
	}
	if p.selected() != "d" {
		t.Error("the end is not the end")
	}
	p.begin()
	for _, key := range []string{"/", "A", "x", keyBack, keyUp} {
		p.typed(key)
	}
	if con.status != "filter: /A_" {
		t.Errorf("status %q", con.status)
	}
	if filter, done := p.typed(keyEnter); filter != "/A" || !done || p.typing() {
		t.Errorf("filter %q", filter)
	}
	if p.selected() != "a" || p.move(1) && p.selected() != "a" {
		t.Errorf("with the filter %q is selected", p.selected())
	}
	if add("e", "GET /e\x1b[2J") || !add("f", "GET /a\x1b[2J") {
		t.Error("the filter lets the wrong ones through")
	}
	p.move(1)
	if strings.Contains(con.status, "\x1b") {
		t.Errorf("status %q", con.status)
	}
	for range 2 * longestLog {
		add("x", "GET /a")
	}
	if len(p.all) != longestLog || p.at != -1 {
		t.Errorf("%d are kept, selected %d", len(p.all), p.at)
	}
	if p.again("x") || !p.again("x") || p.again("x") {
		t.Error("c pressed twice is told wrong")
	}
}
