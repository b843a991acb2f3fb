package alias

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/a-h/templ"

	"relay"
	"relay/dashboard/page"
	"relay/record"
)

// shownSending is the largest number of events in delivery that a page lists while a queue is being
// delivered.
const shownSending = 3

// WaitingCount returns the number of queued deliveries that will be sent without an action of a user.
func (a *Head) WaitingCount() int { return max(0, a.Queued-a.QueuedEvents) }

// SentCount returns how many of the events that the user released last were delivered.
func (a *Head) SentCount() int { return max(0, a.Released-a.WaitingCount()) }

// QueueText returns a sentence on the next step of the queue.
func (a *Head) QueueText() string {
	waiting := record.Count(a.WaitingCount(), "queued delivery", "queued deliveries")
	switch {
	case a.WaitingCount() == 0:
		return "The queue is empty."
	case a.Settings.Paused:
		return waiting + ": paused."
	case a.Online:
		return waiting + ": sent one at a time, in order."
	default:
		return waiting + ": sent when the tunnel is back online."
	}
}

// queuedText returns the number of events that were queued while offline, in words.
func queuedText(n int) string {
	return record.Count(n, "event was queued while offline", "events were queued while offline")
}

// released reads from the address of the page how many events the user has just released; 0 = none.
func released(r *http.Request) int { return max(0, numberOf(r, "released")) }

// numberOf reads a count from a query parameter of the address; -1 = it has no valid count.
func numberOf(r *http.Request, name string) int {
	n, err := strconv.Atoi(r.URL.Query().Get(name))
	if err != nil || n < 0 || n > 1_000_000 {
		return -1
	}
	return n
}

// addQueueProgress adds the progress of the queue's delivery. If the events in delivery cannot be
// read, the rest of the page is shown without them.
func (p Pages) addQueueProgress(ctx context.Context, who relay.Actor, a *Head, released int) {
	a.Released, a.Sending = released, nil
	if !a.Online || a.WaitingCount() == 0 {
		return
	}
	found, err := p.Events.Events(ctx, who, relay.Filter{
		// The budget is short, because the rest of the page also takes time.
		Alias: a.Name, State: relay.StateDelivering, Limit: shownSending, Budget: 80 * time.Millisecond,
	})
	if err != nil {
		p.Log.Warn("cannot read deliveries", "alias", a.Name, "err", err)
		return
	}
	for i := range found.Events {
		a.Sending = append(a.Sending, p.Row(&found.Events[i]))
	}
}

func releasedNotice(r *http.Request, a Head) string {
	if n := numberOf(r, "replayed-now"); n > 0 {
		return record.Count(n, "event is being replayed", "events are being replayed") + "."
	}
	n := numberOf(r, "released")
	text := record.Count(n, "event was released", "events were released")
	switch {
	case n < 0:
		return ""
	case n > 0 && !a.Online:
		return text + "; they are delivered when the tunnel is back online."
	}
	return text + "."
}

// confirmRelease returns the page that asks before "Replay all queued", with the number of events that the
// button would deliver, and the times of the oldest and the newest one.
func (p Pages) confirmRelease(_ http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	head, err := p.Head(r, a)
	if err != nil {
		return nil, err
	}
	found, err := p.Events.Events(r.Context(), who, relay.Filter{Alias: a.Name, State: relay.StateQueued, Limit: streamRows})
	if err != nil {
		return nil, err
	}
	var newest time.Time
	if i := slices.IndexFunc(found.Events, func(e relay.Event) bool { return e.AttemptCount == 1 }); i >= 0 {
		newest = found.Events[i].ReceivedAt
	}
	return releasePage(head, newest), nil
}

func releaseButton(n int) string { return "Replay all queued (" + strconv.Itoa(n) + ")" }

// release releases the events of an alias that were queued while it was offline.
func (p Pages) release(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	if err := p.Limits.Replay(who); err != nil {
		return nil, err
	}
	n, err := p.Deliver.Release(r.Context(), who, a.Name)
	return page.SeeOther(w, r, err, page.WithQuery(page.AliasPath(a.Name), url.Values{"released": {strconv.Itoa(n)}}))
}
