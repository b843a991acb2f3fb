package api

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"time"

	"relay"
	"relay/record"
)

// listBudget is the time after which a list gives what it has found, below the
// promised 500 ms.
const listBudget = 350 * time.Millisecond

// eventInput names an event.
type eventInput struct {
	ID string `path:"id"`
}

type listInput struct {
	Alias  string    `query:"alias"`
	Method string    `query:"method" doc:"letter case is ignored"`
	Status string    `query:"status" doc:"such as 404 or 2xx"`
	Path   string    `query:"path" doc:"prefix of the path"`
	State  string    `query:"state" enum:"delivering,queued,delivered,failed,interrupted,canceled,rejected,incomplete"`
	Since  time.Time `query:"since" doc:"first arrival, this moment included"`
	Until  time.Time `query:"until" doc:"first arrival, this moment not included"`
	Text   string    `query:"q" maxLength:"1000" doc:"text in path, headers or body, as received; case-sensitive"`
	Limit  int       `query:"limit" minimum:"1" maximum:"200" default:"50"`
	Cursor string    `query:"cursor" maxLength:"500"`
	Wait   string    `query:"wait" doc:"such as 30s, at most 60s: returns as soon as a new event matches"`
}

var statusFilter = regexp.MustCompile(`^([1-9]xx|[1-9][0-9][0-9])$`)

func (in *listInput) filter() (relay.Filter, error) {
	if in.Status != "" && !statusFilter.MatchString(in.Status) {
		return relay.Filter{}, invalid("query.status", "expected a status such as 404 or a class such as 2xx", shortValue(in.Status))
	}
	return relay.Filter{
		Alias: in.Alias, Method: in.Method, Status: in.Status, Path: in.Path, State: in.State,
		Since: in.Since, Until: in.Until, Text: in.Text, Cursor: in.Cursor, Limit: in.Limit, Budget: listBudget,
	}, nil
}

func (s *server) addEventRoutes() {
	registerTyped(s, route{
		method: http.MethodGet, path: "/events", id: "list-events", tag: "events",
		summary: "Events, newest first", scope: relay.ScopeEventsRead, resolve: s.resolveQueryAlias,
	}, s.listEvents)
	registerTyped(s, route{
		method: http.MethodGet, path: "/events/{id}", id: "get-event", tag: "events",
		summary: "The whole record of an event", scope: relay.ScopeEventsRead, resolve: s.resolveEvent(record.MaxBody),
	}, func(_ context.Context, c *requestInfo, _ *eventInput) (*jsonBody[*record.Event], error) {
		return &jsonBody[*record.Event]{record.Of(c.event, s.Site, time.Now())}, nil
	})
	registerTyped(s, route{
		method: http.MethodDelete, path: "/events/{id}", id: "delete-event", tag: "events",
		summary: "Remove an event; its queued attempts are canceled", scope: relay.ScopeEventsWrite, resolve: s.resolveEvent(0),
		errors: []int{http.StatusConflict},
	}, func(ctx context.Context, c *requestInfo, _ *eventInput) (*noContent, error) {
		return nil, s.Events.DeleteEvent(ctx, c.who, c.event.ID)
	})
	registerTyped(s, route{
		method: http.MethodPost, path: "/events/{id}/cancel", id: "cancel-event", tag: "events",
		summary: "Cancel the queued attempts of an event; a request body is ignored", scope: relay.ScopeEventsReplay, resolve: s.resolveEvent(0),
		errors: []int{http.StatusConflict},
	}, func(ctx context.Context, c *requestInfo, _ *eventInput) (*jsonBody[*record.Event], error) {
		e, err := s.Deliver.Cancel(ctx, c.who, c.event.ID)
		if err != nil {
			return nil, err
		}
		return &jsonBody[*record.Event]{record.Of(e, s.Site, time.Now())}, nil
	})
}

func (s *server) listEvents(ctx context.Context, c *requestInfo, in *listInput) (*jsonBody[*record.Page], error) {
	f, err := in.filter()
	if err != nil {
		return nil, err
	}
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
	return &jsonBody[*record.Page]{record.PageOf(page, s.Site, time.Now())}, nil
}

// waitForEvents waits until an event matches that arrived after now, to the millisecond
// of its id; an empty page when none did in time. It searches again after every change
// in the live feed, from the start of the call on, so that events skipped by the feed
// (resync) are found too.
func (s *server) waitForEvents(ctx context.Context, c *requestInfo, f relay.Filter, wait time.Duration) (relay.Page, error) {
	c.waited = true
	if began := time.Now().Truncate(time.Millisecond); f.Since.Before(began) {
		f.Since = began
	}
	leave, err := s.Limits.waits.acquire(accountKey(c.who))
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
	for {
		page, err := s.Events.Events(ctx, c.who, f)
		if err != nil || len(page.Events) > 0 {
			return page, err
		}
		if f.Cursor = page.Next; f.Cursor != "" && deadline.Err() == nil {
			continue // the search ran out of its time, not of events
		}
		err = waitForEventItem(deadline, sub)
		switch {
		case err == nil:
		case errors.Is(err, relay.ErrNotFound):
			return relay.Page{}, s.accessEndedError(ctx, c)
		case deadline.Err() != nil && ctx.Err() == nil:
			return relay.Page{SearchedBackTo: f.Since}, nil
		default:
			return relay.Page{}, err
		}
		f.Cursor = ""
	}
}

// waitForEventItem waits for an item that may tell of an event.
func waitForEventItem(ctx context.Context, sub relay.Subscription) error {
	for {
		items, err := sub.Next(ctx)
		if err != nil {
			return err
		}
		for i := range items {
			if items[i].Name != "tunnel" {
				return nil
			}
		}
	}
}

// accessEndedError tells why a feed ended by ErrNotFound: the alias was removed or is no
// longer visible to the caller, or the credential ended.
func (s *server) accessEndedError(ctx context.Context, c *requestInfo) error {
	if c.alias != nil {
		if _, err := s.Accounts.Alias(ctx, c.who, c.alias.Name); err != nil {
			return err
		}
	}
	return relay.Errorf(relay.CodeUnauthorized, "this credential ended while the call waited; make a new one")
}

func aliasID(a *relay.Alias) int64 {
	if a == nil {
		return 0
	}
	return a.ID
}
