package dashboard

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"relay"
	"relay/record"
)

// streamFilter is the filter of a stream as it stands in the address, each field as
// it was typed.
type streamFilter struct {
	Method, Status, Path, State string
	Since, Until                string
	Text                        string
	Cursor                      string
}

// filterOf reads the filter of an address.
func filterOf(q url.Values) streamFilter {
	get := func(name string) string {
		s := strings.TrimSpace(q.Get(name))
		return s[:min(len(s), 1000)]
	}
	return streamFilter{
		Method: strings.ToUpper(get("method")), Status: strings.ToLower(get("status")), Path: get("path"), State: get("state"),
		Since: get("since"), Until: get("until"), Text: get("q"), Cursor: get("cursor"),
	}
}

// query is the address of the filter; fields that do not filter are left out.
func (f *streamFilter) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{
		"method": f.Method, "status": f.Status, "path": f.Path, "state": f.State,
		"since": f.Since, "until": f.Until, "q": f.Text, "cursor": f.Cursor,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// Active tells whether anything is filtered.
func (f *streamFilter) Active() bool {
	return f.Method+f.Status+f.Path+f.State+f.Since+f.Until+f.Text != ""
}

// storeFilter is the filter for the store.
func (f *streamFilter) storeFilter(alias string) (relay.Filter, error) {
	out := relay.Filter{
		Alias: alias, Method: f.Method, Status: f.Status, Path: f.Path, State: f.State,
		Cursor: f.Cursor, Limit: streamRows, Budget: streamBudget,
	}
	if f.Text != "" {
		out.Texts = []relay.TextFilter{{Text: f.Text}}
	}
	bad := relay.Errorf(relay.CodeValidationFailed, "the filter cannot be read")
	moment := func(name, typed string) time.Time {
		t, ok := parseTime(typed)
		if !ok {
			bad.Fields = append(bad.Fields, relay.FieldError{Location: "query." + name, Message: "expected a time such as 2026-11-21 14:30"})
		}
		return t
	}
	out.Since, out.Until = moment("since", f.Since), moment("until", f.Until)
	if f.Status != "" && !validStatus(f.Status) {
		bad.Fields = append(bad.Fields, relay.FieldError{Location: "query.status", Message: "expected a status such as 404 or a class such as 2xx"})
	}
	if f.State != "" && !slices.Contains(eventStates(), f.State) {
		bad.Fields = append(bad.Fields, relay.FieldError{Location: "query.state", Message: "expected one of the states listed"})
	}
	if len(bad.Fields) > 0 {
		return out, bad
	}
	return out, nil
}

// filterFields are those of the form; what is wrong elsewhere stands below it.
var filterFields = []string{"status", "state", "since", "until"}

// filterErrors tells by field what is wrong with a filter.
func filterErrors(e *relay.Error) form {
	f := form{name: "filter", errors: map[string]string{}}
	for _, bad := range e.Fields {
		if name := strings.TrimPrefix(bad.Location, "query."); slices.Contains(filterFields, name) {
			f.errors[name] = bad.Message
		}
	}
	if len(f.errors) == 0 {
		f.errors[""] = e.Detail
	}
	return f
}

func validStatus(s string) bool {
	if len(s) != 3 || s[0] < '1' || s[0] > '9' {
		return false
	}
	_, err := strconv.Atoi(s)
	return err == nil || s[1:] == "xx"
}

// parseTime reads a moment as a browser's time field writes it, in UTC, or RFC 3339;
// nothing is the zero time.
func parseTime(s string) (time.Time, bool) {
	if s == "" {
		return time.Time{}, true
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04", "2006-01-02T15:04:05", time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// matches tells whether a new or changed event belongs into the list as far as its
// summary tells; those that do not are only updated where they stand. What text a
// body holds is not known here.
func (f *streamFilter) matches(s *record.Summary) bool {
	if f.Cursor != "" || f.Text != "" || f.Method != "" && !strings.EqualFold(f.Method, s.Method) || f.State != "" && f.State != s.State ||
		!strings.HasPrefix(s.Path, f.Path) || !f.matchesStatus(s.Status) {
		return false
	}
	id, err := relay.ParseID(s.ID)
	if err != nil {
		return false
	}
	since, _ := parseTime(f.Since)
	until, _ := parseTime(f.Until)
	return !id.Time().Before(since) && (until.IsZero() || id.Time().Before(until))
}

func (f *streamFilter) matchesStatus(status *int) bool {
	if f.Status == "" {
		return true
	}
	if status == nil {
		return false
	}
	have := strconv.Itoa(*status)
	return have == f.Status || f.Status == have[:1]+"xx"
}

// eventStates are the states that a filter offers.
func eventStates() []string {
	return []string{
		relay.StateDelivering, relay.StateQueued, relay.StateDelivered, relay.StateFailed,
		relay.StateInterrupted, relay.StateCanceled, relay.StateRejected, relay.StateIncomplete,
	}
}
