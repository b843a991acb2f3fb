package shell

import (
	"strings"

	"relay"
	"relay/record"
)

// filter reads the filters of a command about the events of one alias: flags such as
// --status 5xx, and words as in the search box of the dashboard.
func (k *call) filter(label string) (relay.Filter, error) {
	f, err := record.ParseFilterWords(strings.Join(k.filterWords, " "))
	if err != nil {
		return f, err
	}
	all := record.FilterValues(f)
	for name, values := range k.filterFlags {
		all[name] = append(all[name], values...)
	}
	if f, err = record.ParseFilter(all); err == nil && f.Alias != "" && f.Alias != label {
		return f, usage("the alias is given twice")
	}
	f.Alias = label
	return f, err
}

// fits reports whether a live event fits a filter. Where its summary does not decide, the
// event is read.
func (k *call) fits(f *relay.Filter, e *record.Summary) bool {
	switch record.MatchSummary(f, e) {
	case record.Hit:
		return true
	case record.Miss:
		return false
	}
	id, err := relay.ParseID(e.ID)
	if err != nil {
		return false
	}
	ctx, cancel := k.s.ask()
	defer cancel()
	fits, err := k.s.Read.Matches(ctx, k.s.Who, id, *f)
	if err != nil {
		k.s.Log.Warn("match a live event", "event", e.ID, "err", err)
	}
	return fits
}

// isFilterFlag reports whether a flag of a command with filters is a filter.
func isFilterFlag(name string) bool {
	for _, n := range record.FilterNames() {
		if n.Name == name {
			return name != "alias"
		}
	}
	return false
}

// filterWord returns a word of a command line as it is typed in a search: what was in
// quotes stays text in its letter case.
func filterWord(word, raw string) string {
	if !strings.Contains(raw, "'") {
		return raw
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `"`
}

// diff compares two responses or two requests.
func (k *call) diff() error {
	var refs [2]relay.AttemptRef
	for i := range refs {
		var err error
		if refs[i], err = record.ParseAttemptRef(k.words[i]); err != nil {
			return err
		}
	}
	part := k.flags["part"]
	if part != "" && part != record.DiffRequest && part != record.DiffResponse {
		return usage("--part is request or response")
	}
	d, err := record.ReadDiff(k.s.Ctx, k.s.Read, k.s.Who, refs[0], refs[1], part)
	if err != nil {
		return err
	}
	return k.print(d, func() string { return record.DiffLines(d) })
}
