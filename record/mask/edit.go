package mask

import (
	"cmp"
	"slices"
)

// edit replaces a piece of a text.
type edit struct {
	from, to int
	with     string
}

// edits are the replacements in one text.
type edits struct{ list []edit }

// add adds an edit. If it overlaps the previous edit and has the same replacement, add extends that edit instead,
// because in a repetitive text a secret may end at every byte, and the list would become very long.
func (e *edits) add(from, to int, with string) {
	if n := len(e.list); n > 0 {
		if last := &e.list[n-1]; last.with == with && from < last.to && last.from < to {
			last.from, last.to = min(last.from, from), max(last.to, to)
			return
		}
	}
	e.list = append(e.list, edit{from, to, with})
}

// apply makes the edits. Two overlapping edits become one, with the replacement of the first edit.
func (e *edits) apply(s []byte) (edited []byte, changed bool) {
	if len(e.list) == 0 {
		return s, false
	}
	order := func(a, b edit) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to)) }
	if !slices.IsSortedFunc(e.list, order) {
		slices.SortStableFunc(e.list, order)
	}
	out := make([]byte, 0, len(s))
	done := 0
	for i := 0; i < len(e.list); {
		one := e.list[i]
		for i++; i < len(e.list) && e.list[i].from < one.to; i++ {
			one.to = max(one.to, e.list[i].to)
		}
		out = append(append(out, s[done:one.from]...), one.with...)
		done = one.to
	}
	return append(out, s[done:]...), true
}
