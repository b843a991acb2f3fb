package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"relay"
	"relay/budget"
	"relay/record"
)

// listBudget is the time after which a list returns the events found so far. It is less than the
// promised 500 ms.
const listBudget = 300 * time.Millisecond

// listInput describes the query of GET /events in the schema of the API. Its handler reads only Limit, Cursor
// and Wait from it; resolveList reads the filters, whose names are those of record.FilterNames.
type listInput struct {
	Alias     string   `query:"alias"`
	Method    string   `query:"method" doc:"letter case is ignored"`
	Status    string   `query:"status" doc:"such as 404 or 2xx, or error: not delivered, or 400 and above"`
	Path      string   `query:"path" doc:"prefix of the path"`
	State     string   `query:"state" doc:"delivering, queued, delivered, failed, interrupted, canceled, rejected, incomplete or answered"`
	Provider  string   `query:"provider" doc:"recognised sender, such as stripe"`
	Handshake string   `query:"handshake" doc:"name of a registration challenge that relayd has answered, such as slack"`
	Type      string   `query:"type" doc:"event type; a * at the end matches any ending, as in invoice.*"`
	Pinned    string   `query:"pinned" doc:"true: only pinned events; false: only the others"`
	Signature string   `query:"signature" enum:"valid,expired,invalid,missing,unchecked" doc:"verdict on the signature"`
	Label     string   `query:"label" doc:"label of the event; a * at the end matches any ending, as in bug-*"`
	Replayed  string   `query:"replayed" doc:"true: only events with more than one attempt; false: only the others"`
	Origin    string   `query:"origin" doc:"caller: received from a caller; send: made and sent with Relay"`
	JSON      []string `query:"json,explode" doc:"field of the request body (JSON, JSON lines, a form or multipart) and its value, such as data.object.id=pi_1; if repeated, all must hold"`
	Since     string   `query:"since" doc:"arrived at or after this time: RFC 3339, or a duration before now such as 24h"`
	Until     string   `query:"until" doc:"arrived before this time; written like since"`
	Text      []string `query:"q,explode" doc:"text in path, headers or decoded body; letter case is ignored unless the text is in double quotes; if repeated, all must be found"`
	Limit     int      `query:"limit" minimum:"1" maximum:"200" default:"50"`
	Cursor    string   `query:"cursor" maxLength:"500"`
	Wait      string   `query:"wait" doc:"such as 30s, at most 60s: returns as soon as a new event matches"`
}

// resolveList resolves the alias of a list and then reads its filters.
func (s *server) resolveList(r *http.Request, c *requestInfo) (err error) {
	if name := r.URL.Query().Get("alias"); name != "" {
		if c.alias, err = s.Accounts.Alias(r.Context(), c.who, name); err != nil {
			return err
		}
	}
	c.filter, err = record.ParseFilter(r.URL.Query(), "limit", "cursor", "wait")
	return err
}

func (s *server) addEventRoutes() {
	addJSON(s, route{tag: "events", scope: relay.ScopeEventsRead, resolve: s.resolveList}.on("GET /events", "list-events", "Events, newest first"), s.listEvents)
	addJSON(s, route{tag: "events", scope: relay.ScopeEventsRead, resolve: s.resolveEvent(record.MaxBody)}.on("GET /events/{id}", "get-event", "The whole record of an event"),
		func(_ context.Context, c *requestInfo, _ *noInput) (*record.Event, error) {
			return s.eventRecord(c, c.event, nil)
		})
	addJSON(s, route{tag: "events", scope: relay.ScopeEventsRead, resolve: s.resolveRequest}.on("GET /events/{id}/attempts", "list-attempts",
		"Attempts of an event, newest first; the record of the event has the first and the newest 20"), s.listAttempts)
	writes := route{tag: "events", scope: relay.ScopeEventsWrite, resolve: s.resolveRequest}
	addJSON(s, writes.on("PATCH /events/{id}", "mark-event",
		"Pin, label or annotate an event, for the owner of its alias; retention keeps a pinned event", 409), s.markEvent)
	addAction(s, writes.on("DELETE /events/{id}", "delete-event", "Remove an event; its queued attempts are canceled", 409),
		func(ctx context.Context, c *requestInfo) error { return s.Events.DeleteEvent(ctx, c.who, c.event.ID) })
	writes.scope = relay.ScopeEventsReplay
	addJSON(s, writes.on("POST /events/{id}/cancel", "cancel-event", "Cancel the queued attempts of an event; a request body is ignored", 409),
		func(ctx context.Context, c *requestInfo, _ *noInput) (*record.Event, error) {
			if err := s.Deliver.Cancel(ctx, c.who, c.event.ID); err != nil {
				return nil, err
			}
			return s.changedRecord(ctx, c)
		})
	addJSON(s, route{tag: "events", scope: relay.ScopeEventsRead, resolve: s.resolveDiff}.on("GET /diff", "get-diff", "What changed between two responses or two requests"),
		func(ctx context.Context, c *requestInfo, in *diffInput) (*record.Diff, error) {
			return record.ReadDiff(ctx, s.Events, c.compared[0], c.compared[1], in.Part)
		})
}

// mostJSON returns the largest size, in bytes of JSON, of the bodies in one answer. With any size of the
// budget, the share of an account has space for the bodies of two such answers.
func (s *server) mostJSON() int64 { return min(record.MaxJSON, s.Budget.Share()/2) }

// eventRecord returns the record of an event that was read, or err if that failed. It reserves the
// memory of the record until the answer is written.
func (s *server) eventRecord(c *requestInfo, e *relay.Event, err error) (*record.Event, error) {
	if err == nil {
		err = c.answer.Hold(budget.ReadCopies * e.HeldBytes())
	}
	if err != nil {
		return nil, err
	}
	rec := record.Of(e, s.Site, time.Now())
	rec.Fit(s.mostJSON())
	*e = relay.Event{ID: e.ID} // the record holds the bodies now, so the event need not hold them
	if err := c.answer.Hold(rec.Weight()); err != nil {
		return nil, err
	}
	return rec, nil
}

// changedRecord reads the record of an event that was changed. If there is no memory for it, or too
// many reads run, it returns the record without bodies and with the newest attempt only: an error
// would suggest that nothing was changed.
func (s *server) changedRecord(ctx context.Context, c *requestInfo) (*record.Event, error) {
	e, err := s.Events.Event(ctx, c.who, c.event.ID, record.MaxBody)
	rec, err := s.eventRecord(c, e, err)
	if err == nil || relay.AsError(err).Code != relay.CodeOverloaded {
		return rec, err
	}
	if e, err = s.Events.Request(ctx, c.who, c.event.ID, 0); err == nil {
		e.Attempts, err = s.Events.Attempts(ctx, c.who, c.event.ID, relay.AttemptPage{Limit: 1})
	}
	if err != nil {
		return nil, err
	}
	return record.Of(e, s.Site, time.Now()), nil
}

// attemptsInput selects a page of attempts.
type attemptsInput struct {
	Before int `query:"before" minimum:"1" doc:"only attempts with a smaller number; if absent, from the newest on"`
	Limit  int `query:"limit" minimum:"1" maximum:"200" default:"50"`
}

func (s *server) listAttempts(ctx context.Context, c *requestInfo, in *attemptsInput) (record.List[record.Attempt], error) {
	attempts, err := s.Events.Attempts(ctx, c.who, c.event.ID, relay.AttemptPage{Before: in.Before, Limit: in.Limit, MaxBody: record.MaxBody})
	if err == nil {
		err = c.answer.Hold(budget.ReadCopies * relay.HeldBytes(attempts))
	}
	if err != nil {
		return record.List[record.Attempt]{}, err
	}
	list := record.AttemptsOf(attempts)
	record.FitAttempts(list, s.mostJSON())
	return list, c.answer.Hold(record.AttemptsWeight(list.Data))
}

// diffInput names the two attempts or requests to compare.
type diffInput struct {
	Left  string `query:"left" required:"true" maxLength:"100" doc:"an event, or one of its attempts: evt_…/1"`
	Right string `query:"right" required:"true" maxLength:"100" doc:"as left; of the same event or another one"`
	Part  string `query:"part" enum:"request,response" doc:"if absent: response where left or right names an attempt, else request. The response of an event without the number of an attempt is that of its last attempt that got one"`
}

// resolveDiff reads the two sides to compare. It skips a missing parameter, which huma reports when it checks
// the input.
func (s *server) resolveDiff(r *http.Request, c *requestInfo) (err error) {
	for i, name := range []string{"left", "right"} {
		text := r.URL.Query().Get(name)
		if text == "" {
			continue
		}
		if c.compared[i], err = record.ReadCompared(r.Context(), s.Events, c.who, text); err != nil {
			return err
		}
	}
	return nil
}

type markInput struct {
	Body struct {
		Pinned *bool        `json:"pinned,omitempty"`
		Label  nullableText `json:"label,omitzero" doc:"at most 60 characters; null or empty = none"`
		Note   nullableText `json:"note,omitzero" doc:"at most 2000 characters; null or empty = none"`
	}
}

// markEvent changes the pin, the label and the note of an event. What the request body does not have stays.
func (s *server) markEvent(ctx context.Context, c *requestInfo, in *markInput) (*record.Event, error) {
	want := &in.Body
	err := s.Events.MarkEvent(ctx, c.who, c.event.ID, func(m *relay.Mark) {
		if want.Pinned != nil {
			m.Pinned = *want.Pinned
		}
		want.Label.set(&m.Label)
		want.Note.set(&m.Note)
	})
	if err != nil {
		return nil, err
	}
	return s.changedRecord(ctx, c)
}

func (s *server) listEvents(ctx context.Context, c *requestInfo, in *listInput) (*record.Page, error) {
	f := c.filter
	f.Cursor, f.Limit, f.Budget = in.Cursor, in.Limit, listBudget
	wait, err := parseWait(in.Wait, 0)
	if err != nil {
		return nil, err
	}
	var page relay.Page
	if wait > 0 {
		page, err = s.waitForEvents(ctx, c, f, wait)
	} else {
		page, err = s.Events.Events(ctx, c.who, f)
	}
	if err != nil {
		return nil, err
	}
	return record.PageOf(page, s.Site, time.Now()), nil
}

// waitForEvents waits for an event that matches and arrives in the same millisecond as the call or later. It
// returns an empty page if none arrives in time. For an agent, the wait runs after the call; see type later.
func (s *server) waitForEvents(ctx context.Context, c *requestInfo, f relay.Filter, wait time.Duration) (relay.Page, error) {
	c.waited = true
	if began := time.Now().Truncate(time.Millisecond); f.Since.Before(began) {
		f.Since = began
	}
	if f.Cursor != "" { // a page of older events cannot contain the new event, so this read only serves to refuse an invalid cursor
		if _, err := s.Events.Events(ctx, c.who, f); err != nil {
			return relay.Page{}, err
		}
	}
	l := laterOf(ctx)
	if l == nil {
		return s.awaitMatch(ctx, c, f, wait)
	}
	page, over, err := l.outcome(ctx, func(ctx context.Context) (relay.Page, error) { return s.awaitMatch(ctx, c, f, wait) })
	c.again = !over
	return page, err
}

// awaitMatch waits until an event matches. It searches again after every change in the live feed, each time
// from f.Since, the start of the call, because the feed may have skipped events (resync).
func (s *server) awaitMatch(ctx context.Context, c *requestInfo, f relay.Filter, wait time.Duration) (relay.Page, error) {
	leave, err := s.Limits.Wait(c.who)
	if err != nil {
		return relay.Page{}, err
	}
	defer leave()
	sub, err := s.Deliver.Subscribe(ctx, c.who, aliasID(c.alias), "")
	if err != nil {
		return relay.Page{}, err
	}
	defer sub.Close()
	deadline, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	f.Cursor = ""
	for over := false; ; {
		page, err := s.Events.Events(ctx, c.who, f)
		if err != nil {
			return page, err
		}
		if len(page.Events) > 0 {
			return page, s.awaitDelivery(ctx, deadline, c, sub, &page.Events[0])
		}
		if f.Cursor = page.Next; f.Cursor != "" && deadline.Err() == nil {
			continue // the search stopped at its time limit; the rest may still match
		}
		if over {
			return relay.Page{SearchedBackTo: f.Since}, nil
		}
		_, err = sub.Next(deadline)
		switch {
		case err == nil:
		case errors.Is(err, relay.ErrNotFound):
			return relay.Page{}, s.accessEndedError(ctx, c)
		case deadline.Err() != nil && ctx.Err() == nil:
			over = true // one search more, because an event may have been stored that is not in the feed yet
		default:
			return relay.Page{}, err
		}
		f.Cursor = ""
	}
}

// awaitDelivery waits until the delivery of the found event has ended, and reads the event again. It does so
// only for agents, whose calls keep the slot of Limits.Wait until then. Other clients get the event at once,
// in its current state.
func (s *server) awaitDelivery(ctx, deadline context.Context, c *requestInfo, sub relay.Subscription, e *relay.Event) error {
	for c.who.Via != "" && e.State == relay.StateDelivering {
		_, err := sub.Next(deadline)
		switch {
		case errors.Is(err, relay.ErrNotFound):
			return s.accessEndedError(ctx, c)
		case deadline.Err() != nil && ctx.Err() == nil: // the event is returned while its delivery is in progress
			return nil
		case err != nil:
			return err
		}
		now, err := s.Events.Event(ctx, c.who, e.ID, 0)
		if err != nil {
			return err
		}
		*e = *now
	}
	return nil
}

// accessEndedError returns the error for a feed that ended with ErrNotFound: the alias was removed or
// is no longer visible to the user, or the credential ended.
func (s *server) accessEndedError(ctx context.Context, c *requestInfo) error {
	if c.alias != nil {
		if _, err := s.Accounts.Alias(ctx, c.who, c.alias.Name); err != nil {
			return err
		}
	}
	return errCredentialEnded
}

func aliasID(a *relay.Alias) int64 {
	if a == nil {
		return 0
	}
	return a.ID
}
