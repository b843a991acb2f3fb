package alias

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/a-h/templ"

	"relay"
	"relay/dashboard/page"
)

// maxReplays is the largest number of events that one form replays. There is no "all": the user ticks
// each event.
const maxReplays = 50

// replaysView is the page that asks before several events are replayed.
type replaysView struct {
	Alias  string
	Online bool
	Rows   []Row
	Failed []string // reasons why some events could not be replayed
	Done   int
}

// ticked reads the events whose checkboxes a form has ticked, each once, oldest first.
func (p Pages) ticked(r *http.Request, who relay.Actor, a *relay.Alias, names []string) (v replaysView, err error) {
	head, err := p.Head(r, a)
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
		v.Rows = append(v.Rows, p.Row(e))
	}
	return v, nil
}

// confirmReplays asks before several events are replayed.
func (p Pages) confirmReplays(_ http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	v, err := p.ticked(r, who, a, r.URL.Query()["id"])
	return replaysPage(v), err
}

// replayMany replays several events, each as an attempt of its own, oldest first.
func (p Pages) replayMany(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
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
	return page.SeeOther(w, r, nil, page.AliasPath(v.Alias)+"?replayed-now="+strconv.Itoa(v.Done))
}
