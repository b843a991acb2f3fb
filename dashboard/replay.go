package dashboard

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/a-h/templ"

	"relay"
)

// replayWait is how long an answer to a plain form waits for the end of the attempt;
// the script does not wait, it is told.
const replayWait = 5 * time.Second

// replay replays an event and redirects to its page.
func (p *pages) replay(w http.ResponseWriter, r *http.Request, who relay.Actor, id relay.ID) (templ.Component, error) {
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
	text := "is being delivered"
	if a := e.Attempt(n); a != nil && a.State == relay.StateQueued {
		text = "is " + queueText(a, true)
	}
	return acted(w, r, nil, "Attempt "+strconv.Itoa(n)+" "+text+".", eventPath(id.String())+"#attempt-"+strconv.Itoa(n))
}

// maxReplays is how many events one form replays. There is no "all": each is ticked.
const maxReplays = 50

// replaysView is the question before several events are replayed.
type replaysView struct {
	Alias  string
	Online bool
	Rows   []rowView
	Failed []string // reasons, after some could not be replayed
	Done   int
}

// ticked reads the events that a form names, each once, oldest first.
func (p *pages) ticked(r *http.Request, who relay.Actor, a *relay.Alias, names []string) (v replaysView, err error) {
	head, err := p.aliasHead(r, a)
	if err != nil {
		return v, err
	}
	v.Alias, v.Online = a.Name, head.Online
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) > maxReplays {
		return v, relay.Errorf(relay.CodeValidationFailed, "at most %d events are replayed at once; %d were ticked", maxReplays, len(names))
	}
	for _, name := range names {
		id, err := relay.ParseID(name)
		if err != nil {
			return v, err
		}
		e, err := p.Events.Request(r.Context(), who, id, 0)
		if err != nil {
			return v, err
		}
		if e.AliasID != a.ID {
			return v, relay.ErrNotFound
		}
		v.Rows = append(v.Rows, p.row(e))
	}
	return v, nil
}

// confirmReplays asks before several events are replayed.
func (p *pages) confirmReplays(_ http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	v, err := p.ticked(r, who, a, r.URL.Query()["id"])
	return replaysPage(v), err
}

// replayMany replays several events, each as an attempt of its own, oldest first.
func (p *pages) replayMany(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	v, err := p.ticked(r, who, a, r.PostForm["id"])
	if err != nil {
		return nil, err
	}
	for i := range v.Rows {
		row := &v.Rows[i]
		id, _ := relay.ParseID(row.ID)
		err := p.Limits.Replay(who)
		if err == nil {
			_, _, err = p.Deliver.Replay(r.Context(), who, id, 0)
		}
		if err != nil {
			v.Failed = append(v.Failed, row.Name()+": "+relay.AsError(err).Detail)
			continue
		}
		v.Done++
	}
	if len(v.Failed) > 0 {
		return replaysPage(v), nil
	}
	return seeOther(w, r, nil, aliasPath(v.Alias)+"?replayed-now="+strconv.Itoa(v.Done))
}

// cancel cancels the queued attempts of an event.
func (p *pages) cancel(w http.ResponseWriter, r *http.Request, who relay.Actor, id relay.ID) (templ.Component, error) {
	err := p.Deliver.Cancel(r.Context(), who, id)
	return acted(w, r, err, "The queued attempts were canceled.", eventPath(id.String()))
}
