package record

import (
	"context"
	"encoding/base64"
	"strconv"
	"strings"

	"golang.org/x/time/rate"

	"relay"
)

// Verdict is the result of a filter for an event.
type Verdict int

// The verdicts. Unknown means that the summary of an event does not decide, because the filter looks into
// headers or bodies. The method Matches of the store decides then.
const (
	Miss Verdict = iota
	Hit
	Unknown
)

// MatchSummary reports whether the filter selects an event of which only the summary is known, such as
// an item of the live feed. It ignores Cursor and Limit.
func MatchSummary(f *relay.Filter, s *Summary) Verdict {
	var sender Provider
	if s.Provider != nil {
		sender = *s.Provider
	}
	path := s.Path
	if s.PathBase64 != "" { // PathBase64 has the received bytes
		if p, err := base64.StdEncoding.DecodeString(s.PathBase64); err == nil {
			path = string(p)
		}
	}
	switch {
	case f.Alias != "" && f.Alias != s.Alias,
		f.Method != "" && !strings.EqualFold(f.Method, s.Method),
		!matchStatus(f.Status, s.State, valueOf(s.Status)),
		!strings.HasPrefix(path, f.Path),
		f.State != "" && f.State != s.State,
		f.Provider != "" && f.Provider != sender.Name,
		f.Handshake != "" && f.Handshake != valueOf(s.Handshake),
		!matchType(f.Type, valueOf(sender.EventType)),
		f.Replayed != nil && *f.Replayed != (s.AttemptCount > 1),
		f.Pinned != nil && *f.Pinned != s.Pinned,
		f.Signature != "" && (s.Signature == nil || f.Signature != s.Signature.Verdict),
		!matchType(f.Label, valueOf(s.Label)):
		return Miss
	}
	if !f.Since.IsZero() || !f.Until.IsZero() {
		// The id contains the time of the first arrival; receivedAt is the time of the last attempt.
		id, err := relay.ParseID(s.ID)
		if err != nil || id.Time().Before(f.Since) || !f.Until.IsZero() && !id.Time().Before(f.Until) {
			return Miss
		}
	}
	search := NewTextSearch(f.Texts)
	if len(f.JSON) > 0 || !search.LookDecoded([]byte(path)) {
		return Unknown
	}
	return Hit
}

// liveLookups is the number of events that one live list may read in a second to compare their headers
// and bodies with its filter.
const liveLookups = 20

// LiveMatcher decides for the items of the live feed whether a filter selects them. It is used by one
// goroutine.
type LiveMatcher struct {
	Filter relay.Filter
	// Look is called if the summary of an event is not enough, and reports whether the filter selects the
	// event. It calls the method Matches of the store.
	Look func(ctx context.Context, id relay.ID) (bool, error)

	lookups *rate.Limiter
	found   string // id of the event that Look selected last; for later changes of the same event, Look is not called again
}

// Match decides whether the filter selects an event. If too many events would have to be read one by
// one, it returns Unknown: the list has to be read again instead.
func (m *LiveMatcher) Match(ctx context.Context, s *Summary) Verdict {
	verdict := MatchSummary(&m.Filter, s)
	if verdict != Unknown {
		return verdict
	}
	if s.ID == m.found {
		return Hit
	}
	if m.lookups == nil {
		m.lookups = rate.NewLimiter(liveLookups, liveLookups)
	}
	id, err := relay.ParseID(s.ID)
	if err != nil || !m.lookups.Allow() {
		return Unknown
	}
	hit, err := m.Look(ctx, id)
	switch {
	case err != nil:
		return Unknown
	case !hit:
		return Miss
	}
	m.found = s.ID
	return Hit
}

func matchStatus(want, state string, status int) bool {
	switch {
	case want == "":
		return true
	case want == relay.StatusError:
		return relay.IsError(state, status)
	}
	have := strconv.Itoa(status)
	return status != 0 && (have == want || want[1:] == "xx" && have[0] == want[0])
}

func matchType(want, have string) bool {
	if prefix, wild := strings.CutSuffix(want, "*"); wild {
		return have != "" && strings.HasPrefix(have, prefix)
	}
	return want == "" || want == have
}
