package record

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"relay"
	"relay/handshake"
	"relay/signature"
)

// Limits of a filter.
const (
	maxFilterValue  = 1000 // largest number of bytes of one value
	maxFilterRepeat = 16   // largest number of values of one filter, if it may be given more than once
)

// FilterName describes one filter of a list of events: for help texts, for flags and
// for completion.
type FilterName struct {
	Name    string
	Doc     string   // description of the value, as the end of a sentence
	Values  []string // the usual values, for completion; nil = there are none
	Strict  bool     // other values than Values are an error
	Repeat  bool     // may be given more than once; an event must then match all values
	Example string   // the filter as a user types it

	expected string                    // describes the accepted values; "" = the list of Values
	field    func(f *relay.Filter) any // returns the field that holds the value
}

// FilterNames lists the filters of event lists. Their names are the same in the query of the API and
// the dashboard, as flags, and as typed words.
func FilterNames() []FilterName { return filters }

var filters = []FilterName{
	{Name: "alias", Doc: "name of an alias", Example: "alias:stripe-dev", field: func(f *relay.Filter) any { return &f.Alias }},
	{Name: "method", Doc: "method of the request; letter case is ignored", Values: []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}, Example: "method:POST", field: func(f *relay.Filter) any { return &f.Method }},
	{Name: "status", Doc: "status of the last response such as 404, a class such as 5xx, or error: not delivered, or 400 and above", Values: []string{relay.StatusError, "2xx", "3xx", "4xx", "5xx"}, Example: "status:5xx", field: func(f *relay.Filter) any { return &f.Status }},
	{Name: "path", Doc: "beginning of the path", Example: "path:/webhooks", field: func(f *relay.Filter) any { return &f.Path }},
	{Name: "state", Doc: "state of the event", Values: []string{
		relay.StateDelivering, relay.StateQueued, relay.StateDelivered, relay.StateFailed, relay.StateInterrupted, relay.StateCanceled, relay.StateRejected, relay.StateIncomplete, relay.StateAnswered,
	}, Strict: true, Example: "state:queued", field: func(f *relay.Filter) any { return &f.State }},
	{Name: "handshake", Doc: "name of a registration challenge that relayd has answered", Values: handshake.Names(), Strict: true, Example: "handshake:slack", expected: "expected a challenge such as slack or x", field: func(f *relay.Filter) any { return &f.Handshake }},
	{Name: "provider", Doc: "recognised sender", Values: providerNames, Strict: true, Example: "provider:stripe", expected: "expected a known sender such as stripe or github", field: func(f *relay.Filter) any { return &f.Provider }},
	{Name: "type", Doc: "event type; a * at the end matches any ending, as in invoice.*", Example: "type:invoice.*", field: func(f *relay.Filter) any { return &f.Type }},
	{Name: "replayed", Doc: "true: only events with more than one attempt; false: only the others", Values: []string{"true", "false"}, Strict: true, Example: "replayed:true", expected: "expected true or false", field: func(f *relay.Filter) any { return &f.Replayed }},
	{Name: "pinned", Doc: "true: only pinned events; false: only the others", Values: []string{"true", "false"}, Strict: true, Example: "pinned:true", expected: "expected true or false", field: func(f *relay.Filter) any { return &f.Pinned }},
	{Name: "label", Doc: "label of the event; a * at the end matches any ending, as in bug-*", Example: "label:bug-17", field: func(f *relay.Filter) any { return &f.Label }},
	{Name: "origin", Doc: "caller: received from a caller; send: made and sent with Relay", Values: []string{relay.OriginCaller, relay.OriginSend}, Strict: true, Example: "origin:send", field: func(f *relay.Filter) any { return &f.Origin }},
	{Name: "signature", Doc: "verdict on the signature", Values: []string{signature.Valid, signature.Expired, signature.Invalid, signature.Missing, signature.Unchecked}, Strict: true, Example: "signature:invalid", field: func(f *relay.Filter) any { return &f.Signature }},
	{Name: "json", Doc: "field of the request body (JSON, JSON lines, a form or multipart) and its value, such as data.object.id=pi_1; may be repeated", Repeat: true, Example: "data.object.id=pi_1", field: func(f *relay.Filter) any { return &f.JSON }},
	{Name: "since", Doc: "arrived at or after this time: such as 2026-11-21T14:30:00Z, or a duration before now such as 24h", Example: "since:24h", field: func(f *relay.Filter) any { return &f.Since }},
	{Name: "until", Doc: "arrived before this time: a time, or a duration before now", Example: "until:1h", field: func(f *relay.Filter) any { return &f.Until }},
	{Name: "q", Doc: "text in path, headers or decoded body; letter case is ignored unless the text is in double quotes; may be repeated", Repeat: true, Example: `"exact text"`, field: func(f *relay.Filter) any { return &f.Texts }},
}

// findFilter returns the filter with a name, or nil.
func findFilter(name string) *FilterName {
	if i := slices.IndexFunc(filters, func(n FilterName) bool { return n.Name == name }); i >= 0 {
		return &filters[i]
	}
	return nil
}

// ParseFilter reads a filter from values by name, from the query of a URL or from flags. It ignores the names in
// the list others; any other unknown name is an error. Errors are *relay.Error with code validation-failed; they
// name the filter and suggest a correction.
func ParseFilter(values url.Values, others ...string) (relay.Filter, error) {
	var f relay.Filter
	for _, name := range slices.Sorted(maps.Keys(values)) { // sorted, so that of several mistakes the same one is always reported
		if slices.Contains(others, name) {
			continue
		}
		n := findFilter(name)
		if n == nil {
			return f, unknownFilter(name, others)
		}
		given := 0
		for _, value := range values[name] {
			if value == "" {
				continue
			}
			switch given++; {
			case given > 1 && !n.Repeat:
				return f, filterError(name, "it is given more than once", value)
			case given > maxFilterRepeat:
				return f, filterError(name, fmt.Sprintf("there are more than %d of it", maxFilterRepeat), value)
			}
			if err := n.set(&f, value); err != nil {
				return f, err
			}
		}
	}
	return f, nil
}

// ParseFilterWords reads a filter as users type it: words such as status:5xx, type:invoice.*,
// data.object.id=pi_1 for a field of the body, and text, in double quotes to respect letter case.
// Values may also be in double quotes, to contain spaces. A backslash escapes a double quote, a
// backslash and, outside double quotes, a space.
func ParseFilterWords(text string) (relay.Filter, error) {
	words, err := splitFilterWords(text)
	if err != nil {
		return relay.Filter{}, err
	}
	values := url.Values{}
	for _, w := range words {
		if w.text == "" {
			continue
		}
		name, value, err := w.filter()
		if err != nil {
			return relay.Filter{}, err
		}
		if name == "q" && w.quoted {
			value = `"` + value + `"`
		}
		values.Add(name, value)
	}
	return ParseFilter(values)
}

// SplitFilterWords splits a typed filter into the words that name a filter or a field of the body, and the
// text to search for. Both are returned as typed. If the filter is invalid, all of it is returned as text.
func SplitFilterWords(typed string) (named []string, text string) {
	words, err := splitFilterWords(typed)
	if err != nil {
		return nil, typed
	}
	var texts []string
	for _, w := range words {
		if name, _, err := w.filter(); err != nil {
			return nil, typed
		} else if name == "q" {
			texts = append(texts, w.raw)
		} else {
			named = append(named, w.raw)
		}
	}
	return named, strings.Join(texts, " ")
}

// filterWord is one typed word.
type filterWord struct {
	text   string // the word without its quotes
	mark   int    // index in text of the first : or = outside quotes; -1 = none
	quoted bool   // the word, or the value after its mark, began with a quote
	raw    string // the word as typed
}

// splitFilterWords splits text at white space outside double quotes.
func splitFilterWords(text string) ([]filterWord, error) {
	if len(text) > maxFilterRepeat*maxFilterValue {
		return nil, filterError("q", "the search is too long", text)
	}
	var words []filterWord
	var b strings.Builder
	w, start, inWord, inQuotes := filterWord{mark: -1}, 0, false, false
	end := func(i int) {
		if inWord {
			w.text, w.raw = b.String(), text[start:i]
			words = append(words, w)
		}
		w, inWord = filterWord{mark: -1}, false
		b.Reset()
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		if !inQuotes && isFilterSpace(c) {
			end(i)
			continue
		}
		if !inWord {
			start, inWord = i, true
		}
		switch {
		case c == '"':
			w.quoted = w.quoted || !inQuotes && b.Len() == w.mark+1
			inQuotes = !inQuotes
		case c == '\\' && i+1 < len(text) && (text[i+1] == '"' || text[i+1] == '\\' || !inQuotes && isFilterSpace(text[i+1])):
			i++
			b.WriteByte(text[i])
		default:
			if !inQuotes && w.mark < 0 && (c == ':' || c == '=') && !w.quoted {
				w.mark = b.Len()
			}
			b.WriteByte(c)
		}
	}
	if inQuotes {
		return nil, filterError("q", "a double quote is not closed", text)
	}
	end(len(text))
	return words, nil
}

func isFilterSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// filter returns the name and the value of the filter in a word.
func (w *filterWord) filter() (name, value string, err error) {
	if w.mark <= 0 {
		return "q", w.text, nil
	}
	name, value = w.text[:w.mark], w.text[w.mark+1:]
	known := findFilter(name) != nil
	switch {
	case w.text[w.mark] == '=' && known:
		return "", "", filterError(name, fmt.Sprintf("write %s:%s for the filter, or json:%s for a field of the body", name, value, w.text), w.raw)
	case w.text[w.mark] == '=':
		return "json", w.text, nil
	case known && value == "":
		return "", "", filterError(name, "a value is missing after the colon", nil)
	case known:
		return name, value, nil
	case value == "" || strings.HasPrefix(value, "//") || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_") != "":
		return "q", w.text, nil
	}
	e := unknownFilter(name, nil)
	e.Detail += `; in double quotes it is text to search for`
	return "", "", e
}

// unknownFilter returns the error for an unknown filter name, with the most similar known one.
func unknownFilter(name string, others []string) *relay.Error {
	known := slices.Clone(others)
	for i := range filters {
		known = append(known, filters[i].Name)
	}
	message := "there is no such filter"
	if near := Nearest(name, known); near != "" {
		message += "; did you mean " + near + "?"
	}
	return filterError(SafeTextMax(name, 60), message, nil)
}

// filterError returns the error for a filter with a wrong value.
func filterError(name, message string, value any) *relay.Error {
	if s, ok := value.(string); ok {
		value = SafeTextMax(s, 100)
	}
	e := relay.Errorf(relay.CodeValidationFailed, "%s: %s", name, message)
	e.Fields = []relay.FieldError{{Location: "query." + name, Message: message, Value: value}}
	return e
}

// notOneOf returns the error for a value that a filter does not accept, with the accepted values and the
// most similar one.
func notOneOf(name, value, expected string, values []string) error {
	if near := Nearest(value, values); near != "" {
		expected += "; did you mean " + near + "?"
	}
	return filterError(name, expected, value)
}

// set sets the filter to a value.
func (n *FilterName) set(f *relay.Filter, value string) error {
	if len(value) > maxFilterValue {
		return filterError(n.Name, fmt.Sprintf("it is longer than %d bytes", maxFilterValue), value)
	}
	if n.Strict && !slices.Contains(n.Values, value) {
		return notOneOf(n.Name, value, cmp.Or(n.expected, "expected one of "+strings.Join(n.Values, ", ")), n.Values)
	}
	switch to := n.field(f).(type) {
	case *string:
		*to = value
	case **bool:
		*to = new(value == "true")
	case *time.Time:
		return setTime(to, n.Name, value)
	case *[]relay.FieldFilter:
		parts := fieldAndValue.FindStringSubmatch(value)
		if parts == nil {
			parts = make([]string, 3)
		}
		steps, ok := splitPath(parts[1])
		if !ok {
			return filterError(n.Name, "expected a field and its value such as data.object.id=pi_1", value)
		}
		want := parts[2]
		if inner, err := strconv.Unquote(want); err == nil && strings.HasPrefix(want, `"`) {
			want = inner
		}
		*to = append(*to, relay.FieldFilter{Path: steps, Value: want})
	case *[]relay.TextFilter:
		t := relay.TextFilter{Text: value}
		if inQuotes(value) {
			t = relay.TextFilter{Text: value[1 : len(value)-1], Exact: true}
		}
		*to = append(*to, t)
	}
	switch n.Name {
	case "method":
		f.Method = strings.ToUpper(value)
	case "status":
		if !statusFilter.MatchString(value) {
			return notOneOf(n.Name, value, "expected a status such as 404, a class such as 2xx, or error", n.Values)
		}
	case "type", "label":
		if strings.Contains(strings.TrimSuffix(value, "*"), "*") {
			return filterError(n.Name, "a * may stand at the end only", value)
		}
	}
	return nil
}

// fieldAndValue splits a text such as data["a=b"].id=pi_1 into path and value, at the first equals sign that is
// not within the quotes of the path.
var fieldAndValue = regexp.MustCompile(`(?s)^((?:\["(?:[^"\\]|\\.)*"\]|[^=])*)=(.*)$`)

// statusFilter matches the word error, the HTTP classes, and every status that a local server may send: up
// to 999.
var statusFilter = regexp.MustCompile(`^(?:` + relay.StatusError + `|[1-5]xx|[1-9][0-9][0-9])$`)

// timeLayouts are the accepted forms of a time: RFC 3339, the forms that pages show, and forms without a zone,
// which mean UTC. Browsers send 2006-01-02T15:04 from a time field. Each form with seconds may also have a
// fraction.
var timeLayouts = []string{
	time.RFC3339Nano, time.DateTime + " UTC", time.DateTime + " -07:00",
	"2006-01-02T15:04", "2006-01-02T15:04:05", time.DateTime, "2006-01-02 15:04", time.DateOnly,
}

// ParseTime reads a time, or a duration that is subtracted from now. ok is false for any other text.
func ParseTime(text string) (t time.Time, ok bool) {
	for _, layout := range timeLayouts {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), true
		}
	}
	ago, err := relay.ParseDuration(text)
	return time.Now().Add(-ago).UTC(), err == nil
}

// ExpectedTime describes the texts that ParseTime reads.
const ExpectedTime = "expected a time such as 2026-11-21T14:30:00Z, or a duration before now such as 24h"

func setTime(to *time.Time, name, value string) error {
	t, ok := ParseTime(value)
	if !ok {
		return filterError(name, ExpectedTime, value)
	}
	*to = t
	return nil
}

// pathStep is one step of a path with the dot that follows it: a name, [0] or ["a.b"].
var pathStep = regexp.MustCompile(`(?s)^(?:\[("(?:[^"\\]|\\.)*")\]|\[([^\]]+)\]|([^.\[]+))\.?`)

// SplitPath splits a path of the filter json into its steps; ok is false if the text is not such a
// path.
func SplitPath(path string) (steps []string, ok bool) { return splitPath(path) }

// splitPath splits data.items[0]["a.b"] into its steps. A $ before the first dot or bracket means the
// whole body and is dropped; in $ref it is part of the name.
func splitPath(path string) (steps []string, ok bool) {
	rest := path
	if strings.HasPrefix(path, "$.") || strings.HasPrefix(path, "$[") {
		rest = path[1:]
	}
	rest = strings.TrimPrefix(rest, ".")
	if strings.HasSuffix(rest, ".") {
		return nil, false
	}
	for rest != "" {
		m := pathStep.FindStringSubmatch(rest)
		if m == nil {
			return nil, false
		}
		step := m[2] + m[3]
		if m[1] != "" {
			var err error
			if step, err = strconv.Unquote(m[1]); err != nil {
				return nil, false
			}
		}
		steps, rest = append(steps, step), rest[len(m[0]):]
	}
	return steps, len(steps) > 0 && len(steps) <= 64
}

// joinPath joins steps into a path that splitPath reads.
func joinPath(steps []string) string {
	var b strings.Builder
	for i, step := range steps {
		switch {
		case step == "" || strings.ContainsAny(step, ".[]\"=: \t\n\\") || step[0] == '$' || !utf8.ValidString(step):
			b.WriteString("[" + strconv.Quote(step) + "]")
		case i > 0:
			b.WriteString("." + step)
		default:
			b.WriteString(step)
		}
	}
	return b.String()
}

// FilterValues returns a filter as the query of a URL; ParseFilter reads the same filter from it. Cursor,
// Limit and Budget are left out.
func FilterValues(f relay.Filter) url.Values {
	q := url.Values{}
	for i := range filters {
		n := &filters[i]
		add := func(value string) {
			if value != "" {
				q.Add(n.Name, value)
			}
		}
		switch from := n.field(&f).(type) {
		case *string:
			add(*from)
		case **bool:
			if *from != nil {
				add(strconv.FormatBool(**from))
			}
		case *time.Time:
			if !from.IsZero() {
				add(from.UTC().Format(time.RFC3339Nano))
			}
		case *[]relay.FieldFilter:
			for _, field := range *from {
				value := field.Value
				if strings.HasPrefix(value, `"`) {
					value = strconv.Quote(value)
				}
				add(joinPath(field.Path) + "=" + value)
			}
		case *[]relay.TextFilter:
			for _, t := range *from {
				if t.Exact {
					t.Text = `"` + t.Text + `"`
				}
				add(t.Text)
			}
		}
	}
	return q
}

// FilterWords returns a filter as typed words; ParseFilterWords reads the same filter from them.
func FilterWords(f relay.Filter) string {
	var words []string
	values := FilterValues(f)
	for _, n := range filters {
		for _, value := range values[n.Name] {
			words = append(words, filterWordOf(n.Name, value))
		}
	}
	return strings.Join(words, " ")
}

// filterWordOf writes one value of a filter as a typed word.
func filterWordOf(name, value string) string {
	switch {
	case name == "q" && inQuotes(value):
		return quoteWord(value[1 : len(value)-1])
	case name == "q":
		if strings.ContainsAny(value, ":=") {
			value = "q:" + value
		}
		return escapeWord.Replace(value)
	case name != "json":
		if strings.ContainsAny(value, "\"\\ \t\n\r") {
			value = quoteWord(value)
		}
		return name + ":" + value
	case strings.ContainsAny(value, "\"\\[: \t\n\r"), findFilter(value[:strings.IndexByte(value, '=')]) != nil:
		return name + ":" + quoteWord(value)
	}
	return value
}

// inQuotes reports whether a value of the filter q is a text in double quotes.
func inQuotes(value string) bool {
	return len(value) > 2 && value[0] == '"' && value[len(value)-1] == '"'
}

var escapeWord = strings.NewReplacer(`\`, `\\`, `"`, `\"`, " ", `\ `, "\t", "\\\t", "\n", "\\\n", "\r", "\\\r")

func quoteWord(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// CompleteFilter returns completions for the last word of a typed filter, each a whole word, and the byte
// at which that word starts. seen holds, by the name of a filter, values that occur in the list, such as
// event types. Completions from seen come first.
func CompleteFilter(text string, seen map[string][]string) (start int, words []string) {
	start = strings.LastIndexAny(text, " \t\n\r") + 1
	name, typed, hasName := strings.Cut(text[start:], ":")
	for _, n := range filters {
		if !hasName {
			if strings.HasPrefix(n.Name, strings.ToLower(name)) && !n.Repeat {
				words = append(words, n.Name+":")
			}
			continue
		}
		if n.Name != name {
			continue
		}
		for _, value := range slices.Concat(seen[name], n.Values) {
			word := filterWordOf(name, value)
			if len(typed) <= len(value) && strings.EqualFold(value[:len(typed)], typed) && !slices.Contains(words, word) {
				words = append(words, word)
			}
		}
	}
	return start, words
}
