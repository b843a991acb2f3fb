package alias

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/a-h/templ"

	"relay"
	"relay/dashboard/page"
	"relay/record"
)

// saveSearch stores a search of an alias under a name. Without search words it deletes the search of
// that name.
func (p Pages) saveSearch(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	alias, search := r.PathValue("alias"), relay.SavedSearch{Name: page.Field(r, "name"), Words: page.Field(r, "words")}
	err := p.Events.SaveSearch(r.Context(), who, alias, search)
	if search.Words == "" {
		return page.Acted(w, r, err, "The search is forgotten.", "list", page.AliasPath(alias))
	}
	return page.Acted(w, r, err, "The search is saved.", "list", page.WithQuery(page.AliasPath(alias), (&Filter{Typed: search.Words, find: true}).Query()))
}

// Filter is the filter of a list, from the address of the page: either named values, or words that were
// typed into the search box.
type Filter struct {
	relay.Filter
	Typed string // words of the search box
	err   error  // reason why the filter cannot be read

	find bool // the address has the filter as words, in the query parameter find
}

// otherParameters are the query parameters of lists and events that are not filters.
var otherParameters = []string{
	"find", "cursor", "tick", "window", "released", "replayed-now", "body", "response", "attempt", "attempts", "diff",
	"v", "after", "event", "ev",
}

// FilterOf reads the filter from the address of a page of an alias. A query that cannot be decoded is an
// error, because a list that ignored it would show too many events.
func FilterOf(address *url.URL, alias string) (f Filter) {
	q, err := url.ParseQuery(address.RawQuery)
	if err != nil {
		f.Typed = rawWords(q)
		f.err = relay.Errorf(relay.CodeValidationFailed, "the query of the address cannot be read")
	} else if f.Typed = strings.TrimSpace(strings.Join(q["find"], " ")); f.Typed != "" {
		// The address has one parameter find for each token of the search box, and one for the text that the
		// user has typed.
		f.find = true
		f.Filter, f.err = record.ParseFilterWords(f.Typed)
	} else if f.Filter, f.err = record.ParseFilter(q, otherParameters...); f.err == nil {
		f.Typed = record.FilterWords(f.Filter)
	} else {
		f.Typed = rawWords(q)
	}
	if f.err == nil && f.Alias != "" && f.Alias != alias {
		f.err = relay.Errorf(relay.CodeValidationFailed, "alias: this list has the events of %s only", alias)
	}
	f.Alias, f.Cursor, f.Limit = alias, q.Get("cursor"), streamRows
	return f
}

// rawWords returns the values of an address that cannot be read, so that the user can correct them in
// the search box.
func rawWords(q url.Values) string {
	var words []string
	for name, values := range q {
		for _, value := range values {
			if value != "" && !slices.Contains(otherParameters, name) {
				words = append(words, name+":"+value)
			}
		}
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// Query returns the query of an address: the filter, and the cursor where the list begins.
func (f *Filter) Query() url.Values {
	q := url.Values{}
	if f.find || f.err != nil {
		q.Set("find", f.Typed)
	} else {
		q = f.values()
	}
	if f.Cursor != "" {
		q.Set("cursor", f.Cursor)
	}
	return q
}

// values returns the values of the filter by name, without the alias.
func (f *Filter) values() url.Values {
	without := f.Filter
	without.Alias = ""
	return record.FilterValues(without)
}

// Active reports whether the filter excludes anything.
func (f *Filter) Active() bool { return f.err != nil || len(f.values()) > 0 }

// Error returns the reason why the filter cannot be read, "" = it can.
func (f *Filter) Error() string {
	if f.err == nil {
		return ""
	}
	return relay.AsError(f.err).Detail
}

// token is one word of the filter, and the address of the list without it.
type token struct{ Word, Without string }

// Tokens returns the named values of the filter as words, and the text to search for. It returns no words
// if the filter cannot be read, so that the user can correct all of it.
func (v *List) Tokens() (tokens []token, text string) {
	if v.Filter.err != nil {
		return nil, v.Filter.Typed
	}
	named, text := record.SplitFilterWords(v.Filter.Typed)
	for i, word := range named {
		q := url.Values{}
		if rest := strings.TrimSpace(strings.Join(slices.Concat(named[:i], named[i+1:], []string{text}), " ")); rest != "" {
			q.Set("find", rest)
		}
		if v.Ticks {
			q.Set("tick", "1")
		}
		tokens = append(tokens, token{word, page.WithQuery(page.AliasPath(v.Alias), q)})
	}
	return tokens, text
}

// Found says as text how many events the list shows and, as far as they were counted, how many the filter
// selects.
func (v *List) Found() string {
	if v.Older != "" {
		text := strconv.Itoa(len(v.Rows))
		switch {
		case v.All <= len(v.Rows):
			return "the newest " + text
		case v.AllMore:
			return text + " of " + strconv.Itoa(v.All) + "+"
		}
		return text + " of " + strconv.Itoa(v.All)
	}
	return record.Count(len(v.Rows), "event", "events")
}

// choice is something that one click chooses: a filter, or a view of a body.
type choice struct {
	Text, Link string
	On         bool
}

// chip returns a choice that sets one value of the filter, or removes it if it is set already.
func (v *List) chip(text, name, value string) choice {
	q := v.Filter.values()
	on := q.Get(name) == value
	if q.Del(name); !on {
		q.Set(name, value)
	}
	if v.Ticks {
		q.Set("tick", "1")
	}
	return choice{Text: text, Link: page.WithQuery(page.AliasPath(v.Alias), q), On: on}
}

// Chips returns the filters that users need most; one click sets each.
func (v *List) Chips() []choice {
	return []choice{
		{Text: "All", Link: page.AliasPath(v.Alias), On: !v.Filter.Active()},
		v.chip("Errors", "status", relay.StatusError), v.chip("Queued", "state", relay.StateQueued),
		v.chip("Pinned", "pinned", "true"),
	}
}

// choiceList holds the values of one filter, such as the event types.
type choiceList struct {
	Title   string
	Choices []choice
}

// Menu returns the choices that have no chip; it leaves out filters without values.
func (v *List) Menu() []choiceList {
	return slices.DeleteFunc([]choiceList{
		{"Type", v.choices("type", v.Choices.Types)},
		{"Sender", v.choices("provider", v.Choices.Providers)},
		{"Label", v.choices("label", v.Choices.Labels)},
		{"Attempts", []choice{v.chip("Replayed", "replayed", "true")}},
	}, func(l choiceList) bool { return len(l.Choices) == 0 })
}

// shownChoices is the largest number of completions that completeFilter returns.
const shownChoices = 12

// choices returns the choices for a filter: the values that events of the alias have, and the chosen
// value, each once.
func (v *List) choices(name string, values []string) (list []choice) {
	if chosen := v.Filter.values().Get(name); chosen != "" && !slices.Contains(values, chosen) {
		values = append([]string{chosen}, values...)
	}
	for _, value := range values {
		text := value
		if name == "provider" {
			text = page.ProviderName(value)
		}
		if value == record.SafeText(value) {
			list = append(list, v.chip(text, name, value))
		}
	}
	return list
}

// completeFilter completes the text in the search box, with names of filters and with values that
// events of the alias have.
func (p Pages) completeFilter(_ http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	text := r.URL.Query().Get("text")
	choices, err := p.Events.Choices(r.Context(), who, r.PathValue("alias"))
	if err != nil {
		return nil, err
	}
	seen := map[string][]string{"type": choices.Types, "label": choices.Labels, "provider": choices.Providers}
	start, words := record.CompleteFilter(text, seen)
	words = words[:min(len(words), shownChoices)]
	for i := range words {
		words[i] = text[:start] + words[i]
	}
	return completions(words), nil
}
