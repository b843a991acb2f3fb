package dashboard

import (
	"net/http"

	"github.com/a-h/templ"

	"relay"
)

// mark changes what a form names: the pin, or what the person has changed of label and note.
func (p *pages) mark(w http.ResponseWriter, r *http.Request, who relay.Actor, id relay.ID) (templ.Component, error) {
	said, f := "Saved.", posted("mark", r)
	err := p.Events.MarkEvent(r.Context(), who, id, func(m *relay.Mark) {
		clear(f.errors)
		if r.PostForm.Has("pinned") {
			m.Pinned = field(r, "pinned") == "on"
			said = map[bool]string{true: "Pinned: retention keeps this event.", false: "Not pinned any more."}[m.Pinned]
		}
		before := *m
		for _, x := range []struct {
			name string
			to   *string
		}{{"label", &m.Label}, {"note", &m.Note}} {
			typed, want, stale := f.change(x.name, *x.to)
			if stale {
				f.errors[x.name] = staleText(*x.to, "")
			} else if want {
				*x.to = typed
			}
		}
		if f.Failed() {
			*m = before
		}
	})
	if err == nil && f.Failed() {
		return p.staleMark(r, who, id, f)
	}
	return acted(w, r, err, said, eventPath(id.String()))
}

// staleMark shows the event with what was typed, after somebody else has changed the same.
func (p *pages) staleMark(r *http.Request, who relay.Actor, id relay.ID, f form) (templ.Component, error) {
	v, head, err := p.readEventView(r, who, id)
	if err != nil {
		return nil, err
	}
	by := p.lastChange(r, who, "event.mark", id.String(), "")
	for name, now := range map[string]string{"label": v.Mark.Label, "note": v.Mark.Note} {
		if f.errors[name] != "" {
			f.errors[name] = staleText(now, by)
		}
	}
	v.Typed = f
	page, err := p.renderEvent(r, who, v, head)
	return withStatus{page, http.StatusConflict}, err
}

// confirmDelete asks before an event is deleted.
func (p *pages) confirmDelete(_ http.ResponseWriter, r *http.Request, who relay.Actor, id relay.ID) (templ.Component, error) {
	e, err := p.Events.Request(r.Context(), who, id, 0)
	if err != nil {
		return nil, err
	}
	return deletePage(p.row(e), e.ReceivedAt), nil
}

// deleteEvent deletes an event for good and shows the list without it.
func (p *pages) deleteEvent(w http.ResponseWriter, r *http.Request, who relay.Actor, id relay.ID) (templ.Component, error) {
	e, err := p.Events.Request(r.Context(), who, id, 0)
	if err != nil {
		return nil, err
	}
	err = p.Events.DeleteEvent(r.Context(), who, id)
	return seeOther(w, r, err, aliasPath(e.Alias))
}

// saveSearch keeps a search of an alias by a name; without words it forgets the name.
func (p *pages) saveSearch(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	alias, search := r.PathValue("alias"), relay.SavedSearch{Name: field(r, "name"), Words: field(r, "words")}
	err := p.Events.SaveSearch(r.Context(), who, alias, search)
	if search.Words == "" {
		return acted(w, r, err, "The search is forgotten.", aliasPath(alias))
	}
	return acted(w, r, err, "The search is saved.", withQuery(aliasPath(alias), (&streamFilter{Typed: search.Words, find: true}).query()))
}
