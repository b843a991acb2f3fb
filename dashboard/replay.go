package dashboard

import (
	"net/http"
	"strconv"
	"time"

	"github.com/a-h/templ"

	"relay"
)

// replayWait is how long an answer to a plain form waits for the end of the attempt;
// the script does not wait, it is told.
const replayWait = 5 * time.Second

// replay replays an event and redirects to its page.
func (p *pages) replay(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	id, err := relay.ParseID(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	if err := p.Limits.Replay(who); err != nil {
		return nil, err
	}
	wait := replayWait
	if partial(r) {
		wait = 0
	}
	e, n, err := p.Deliver.Replay(r.Context(), who, id, wait)
	if err != nil {
		return nil, err
	}
	if partial(r) {
		return noticeFragment(replayText(e, n)), nil
	}
	return seeOther(w, r, eventPath(id.String())+"#attempt-"+strconv.Itoa(n))
}

// replayText says how a replay stands.
func replayText(e *relay.Event, n int) string {
	for i := range e.Attempts {
		if a := &e.Attempts[i]; a.N == n && a.State == relay.StateQueued {
			s := "Attempt " + strconv.Itoa(n) + " is queued until the tunnel is back online"
			if a.Position > 0 {
				s += ", position " + strconv.Itoa(a.Position)
			}
			return s + "."
		}
	}
	return "Attempt " + strconv.Itoa(n) + " is being delivered."
}

// cancel cancels the queued attempts of an event.
func (p *pages) cancel(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	id, err := relay.ParseID(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	if _, err := p.Deliver.Cancel(r.Context(), who, id); err != nil {
		return nil, err
	}
	if partial(r) {
		return noticeFragment("The queued attempts were canceled."), nil
	}
	return seeOther(w, r, eventPath(id.String()))
}
