package event

import (
	"net/http"
	"strconv"

	"github.com/a-h/templ"

	"relay"
	"relay/dashboard/page"
)

// replay replays an event and redirects to its page.
func (p pages) replay(w http.ResponseWriter, r *http.Request, who relay.Actor, id relay.ID) (templ.Component, error) {
	if err := p.Limits.Replay(who); err != nil {
		return nil, err
	}
	wait := page.ReplayWait
	if page.Partial(r) {
		wait = 0
	}
	e, n, err := p.Deliver.Replay(r.Context(), who, id, wait)
	if err != nil {
		return nil, err
	}
	text := "is being delivered"
	if a := e.Attempt(n); a != nil && a.State == relay.StateQueued {
		text = "is " + queueText(a, true)
	}
	return page.Acted(w, r, nil, "Attempt "+strconv.Itoa(n)+" "+text+".", "event", page.EventPath(id.String())+"#attempt-"+strconv.Itoa(n))
}

// cancel cancels the queued attempts of an event.
func (p pages) cancel(w http.ResponseWriter, r *http.Request, who relay.Actor, id relay.ID) (templ.Component, error) {
	err := p.Deliver.Cancel(r.Context(), who, id)
	return page.Acted(w, r, err, "The queued attempts were canceled.", "event", page.EventPath(id.String()))
}
