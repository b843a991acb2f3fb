package event

import (
	"net/http"
	"net/url"

	"github.com/a-h/templ"

	"relay"
	"relay/dashboard/alias"
	"relay/dashboard/page"
)

// mark applies the changes of a form: the pin, or the changes that the user made to label and note.
func (p pages) mark(w http.ResponseWriter, r *http.Request, who relay.Actor, id relay.ID) (templ.Component, error) {
	said, f := "Saved.", page.Posted("mark", r)
	err := p.Events.MarkEvent(r.Context(), who, id, func(m *relay.Mark) {
		clear(f.Errors)
		if r.PostForm.Has("pinned") {
			m.Pinned = page.Field(r, "pinned") == "on"
			said = map[bool]string{true: "Pinned: retention keeps this event.", false: "Unpinned."}[m.Pinned]
		}
		before := *m
		for _, x := range []struct {
			name string
			to   *string
		}{{"label", &m.Label}, {"note", &m.Note}} {
			typed, want, stale := f.Change(x.name, *x.to)
			if stale {
				f.Errors[x.name] = page.StaleText(*x.to, "")
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
	return page.Acted(w, r, err, said, "event", page.EventPath(id.String()))
}

// staleMark shows the event again with the typed values, after another user has changed the same
// field.
func (p pages) staleMark(r *http.Request, who relay.Actor, id relay.ID, f page.Form) (templ.Component, error) {
	v, head, err := p.readEventView(r, who, id)
	if err != nil {
		return nil, err
	}
	by := p.LastChange(r, who, "event.mark", id.String(), "")
	for name, now := range map[string]string{"label": v.Mark.Label, "note": v.Mark.Note} {
		if f.Errors[name] != "" {
			f.Errors[name] = page.StaleText(now, by)
		}
	}
	v.Typed = f
	body, err := p.renderEvent(r, who, v, head)
	return page.WithStatus{Component: body, Status: http.StatusConflict}, err
}

// confirmDelete returns the page that asks before an event is deleted.
func (p pages) confirmDelete(_ http.ResponseWriter, r *http.Request, who relay.Actor, id relay.ID) (templ.Component, error) {
	e, err := p.Events.Request(r.Context(), who, id, 0)
	if err != nil {
		return nil, err
	}
	filter := alias.FilterOf(r.URL, e.Alias)
	row := p.Row(e)
	row.Link = page.WithQuery(row.Link, filter.Query())
	return deletePage(row, deletePath(e, filter.Query()), e.ReceivedAt), nil
}

// deletePath returns the address of the page that deletes an event. It includes the filter of the list.
func deletePath(e *relay.Event, filter url.Values) string {
	return page.WithQuery(page.EventPath(e.ID.String(), "delete"), filter)
}

// deleteEvent deletes an event permanently, and shows the list with its filter.
func (p pages) deleteEvent(w http.ResponseWriter, r *http.Request, who relay.Actor, id relay.ID) (templ.Component, error) {
	e, err := p.Events.Request(r.Context(), who, id, 0)
	if err != nil {
		return nil, err
	}
	err = p.Events.DeleteEvent(r.Context(), who, id)
	filter := alias.FilterOf(r.URL, e.Alias)
	return page.SeeOther(w, r, err, page.WithQuery(page.AliasPath(e.Alias), filter.Query()))
}
