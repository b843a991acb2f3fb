package record

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	udiff "github.com/aymanbagabas/go-udiff"

	reading "relay/record/body"
)

const (
	diffLines   = 4000 // largest number of lines that are compared on each side, from the first line that differs
	diffContext = 3    // unchanged lines around a change
	diffLine    = 1000 // largest number of bytes of a line that are shown
	diffTokens  = 400  // largest number of words of a line that are compared with those of another line
)

// compareText compares two texts line by line.
func compareText(was, is []byte) BodyDiff {
	d := BodyDiff{Kind: DiffText}
	left, right := splitLines(was), splitLines(is)
	start := commonStart(left, right, equalText)
	a, b := left[start:], right[start:]
	if len(a) > diffLines || len(b) > diffLines {
		end := commonEnd(a, b, equalText)
		a, b = a[:len(a)-end], b[:len(b)-end]
		if len(a) > diffLines || len(b) > diffLines {
			a, b = a[:min(len(a), diffLines)], b[:min(len(b), diffLines)]
			d.Note = fmt.Sprintf("only %d lines from the first that differs were compared", diffLines)
		}
	}
	first := max(0, start-diffContext)
	text := func(lines []string) string {
		if len(lines) == 0 {
			return ""
		}
		return strings.Join(lines, "\n") + "\n"
	}
	was1, is1 := text(append(left[first:start:start], a...)), text(append(right[first:start:start], b...))
	u, err := udiff.ToUnifiedDiff("", "", was1, udiff.Lines(was1, is1), diffContext)
	if err != nil {
		d.Note = "the lines could not be compared"
		return d
	}
	for i, h := range u.Hunks {
		if i > 0 {
			d.Changes = append(d.Changes, BodyChange{Op: "skip"})
		}
		d.addHunk(h, first)
	}
	if d.Total > diffChanges {
		d.Note = strings.TrimPrefix(d.Note+fmt.Sprintf("; only the first %d changed lines are listed", diffChanges), "; ")
	}
	markLines(d.Changes)
	return d
}

// addHunk adds the lines of a hunk. The argument before is the number of lines before the compared part of the
// body. A removed line and the added line that replaces it count as one change.
func (b *BodyDiff) addHunk(h *udiff.Hunk, before int) {
	l, r := h.FromLine+before, h.ToLine+before
	removed, added := 0, 0
	for _, line := range h.Lines {
		c := BodyChange{Op: "same", Text: strings.TrimSuffix(line.Content, "\n")}
		switch line.Kind {
		case udiff.Delete:
			c.Op, c.LeftLine = "remove", l
			l++
			removed++
		case udiff.Insert:
			c.Op, c.RightLine = "add", r
			r++
			added++
		default:
			c.LeftLine, c.RightLine = l, r
			l, r = l+1, r+1
			b.Total += max(removed, added)
			removed, added = 0, 0
		}
		if b.Total+max(removed, added) <= diffChanges {
			b.Changes = append(b.Changes, c)
		}
	}
	b.Total += max(removed, added)
}

// splitLines splits a text at its line ends, which do not belong to the lines.
func splitLines(p []byte) []string {
	if len(p) == 0 {
		return nil
	}
	lines := strings.Split(string(bytes.TrimSuffix(p, []byte("\n"))), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSuffix(l, "\r")
	}
	return lines
}

// commonStart counts the items at the start of a and b that are equal.
func commonStart[T any](a, b []T, equal func(T, T) bool) int {
	n := 0
	for n < len(a) && n < len(b) && equal(a[n], b[n]) {
		n++
	}
	return n
}

// commonEnd counts the items at the end of a and b that are equal.
func commonEnd[T any](a, b []T, equal func(T, T) bool) int {
	n := 0
	for n < len(a) && n < len(b) && equal(a[len(a)-1-n], b[len(b)-1-n]) {
		n++
	}
	return n
}

func equalText(a, b string) bool { return a == b }

// markLines marks the differences within removed lines and the added lines that replace them, and
// shortens long lines.
func markLines(changes []BodyChange) {
	for i := 0; i < len(changes); {
		removed := i
		for removed < len(changes) && changes[removed].Op == "remove" {
			removed++
		}
		added := removed
		for added < len(changes) && changes[added].Op == "add" {
			added++
		}
		for k := range min(removed-i, added-removed) {
			markPair(&changes[i+k], &changes[removed+k])
		}
		for k := i; k < max(added, i+1); k++ {
			changes[k].Text = cutText(changes[k].Text)
		}
		i = max(added, i+1)
	}
}

func cutText(s string) string {
	if len(s) <= diffLine {
		return s
	}
	return string(reading.WholeRunes([]byte(s[:diffLine]))) + "…"
}

// markPair marks the words that differ between two lines. If long lines begin alike, it leaves their
// beginning out.
func markPair(was, is *BodyChange) {
	if max(len(was.Text), len(is.Text)) > diffLine {
		n := 0
		for n < len(was.Text) && n < len(is.Text) && was.Text[n] == is.Text[n] {
			n++
		}
		for n -= 40; n > 0 && !utf8.RuneStart(was.Text[n]); {
			n--
		}
		if n > 0 {
			was.Text, is.Text = "…"+was.Text[n:], "…"+is.Text[n:]
		}
		was.Text, is.Text = cutText(was.Text), cutText(is.Text)
	}
	a, b := diffToken.FindAllString(was.Text, -1), diffToken.FindAllString(is.Text, -1)
	if len(a) > diffTokens || len(b) > diffTokens {
		return
	}
	left, right := strings.Join(a, "\n")+"\n", strings.Join(b, "\n")+"\n"
	u, err := udiff.ToUnifiedDiff("", "", left, udiff.Lines(left, right), diffTokens)
	if err != nil || len(u.Hunks) == 0 {
		return
	}
	same := 0
	for _, line := range u.Hunks[0].Lines {
		text := strings.TrimSuffix(line.Content, "\n")
		if line.Kind != udiff.Insert {
			was.Marks = addMark(was.Marks, text, line.Kind == udiff.Delete)
		}
		if line.Kind != udiff.Delete {
			is.Marks = addMark(is.Marks, text, line.Kind == udiff.Insert)
		}
		if line.Kind == udiff.Equal && strings.TrimSpace(text) != "" {
			same += len(text)
		}
	}
	if same == 0 { // the lines have no word or sign in common, so none is marked
		was.Marks, is.Marks = nil, nil
	}
}

func addMark(list []Mark, text string, changed bool) []Mark {
	if n := len(list); n > 0 && list[n-1].Changed == changed {
		list[n-1].Text += text
		return list
	}
	return append(list, Mark{Text: text, Changed: changed})
}

// diffToken matches a word, or one character that belongs to no word.
var diffToken = regexp.MustCompile(`(?s)[\p{L}\p{Nd}_]+|.`)
