package shell

import (
	"strings"

	"relay/record"
)

// Bounds of a method and a path on a wide screen.
const maxMethod, maxPath = 32, 512

// minPath is how much of a path is worth its space: for less of it, other parts of the
// line are left out.
const minPath = 12

// fit shortens a line to a number of columns. What is left out first can be looked up.
func fit(l record.Line, columns int) record.Line {
	for _, step := range []struct {
		drop func()
		path int // is enough
	}{
		{func() {}, minPath},
		{func() { l.Time = l.Time[max(0, len(l.Time)-len("15:04:05")):] }, minPath},
		{func() { l.Note, _, _ = strings.Cut(l.Note, ":") }, minPath},
		{func() { l.Note = "" }, minPath},
		{func() { l.ID = "" }, minPath},
		{func() { l.Took = "" }, 4},
		{func() { l.Method = shorten(l.Method, 7) }, 4},
	} {
		step.drop()
		path := columnsOf(l.Path)
		space := columns - (columnsOf(l.String()) - path)
		if space >= min(path, step.path) {
			l.Path = shorten(l.Path, space)
			return l
		}
	}
	l.Method = ""
	l.Path = shorten(l.Path, max(1, columns-columnsOf(l.String())+columnsOf(l.Path)))
	return l
}

// line returns the line as the terminal shows it best.
func (s *Screen) line(l record.Line) string {
	l.Method, l.Path = record.SafeTextMax(l.Method, maxMethod), record.SafeTextMax(l.Path, maxPath)
	if width := s.width(); width > 0 {
		l = fit(l, width)
	}
	return strings.Replace(l.String(), l.Outcome(), s.paint(toneOf(l.Status), l.Outcome()), 1)
}

func toneOf(status int) tone {
	switch {
	case status < 200:
		return toneNone
	case status < 300:
		return toneGood
	case status < 400:
		return toneElse
	case status < 500:
		return toneHere
	}
	return toneBad
}
