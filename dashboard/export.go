package dashboard

import (
	"net/http"
	"strconv"
	"time"

	"github.com/a-h/templ"

	"relay"
	"relay/record"
)

// exportView is one form in which an event can be taken along.
type exportView struct{ Format, Name, What string }

// exportMenu are all of record.ExportFormats, in the order of the menu.
func exportMenu() []exportView {
	return []exportView{
		{"curl", "cURL", "a shell command that sends the same bytes again"},
		{"go", "Go test", "sends the exact bytes to your handler and checks the status"},
		{"js", "JavaScript test", "the same for node --test"},
		{"python", "Python test", "the same for pytest or python"},
		{"har", "HAR", "request and responses, for browsers’ tools and Postman"},
		{"json", "JSON", "the whole record, as the API gives it"},
	}
}

// export gives an event in a form that other programs read, as a file.
func (p *pages) export(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	id, err := relay.ParseID(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	e, err := p.Events.Event(r.Context(), who, id, record.MaxBody)
	if err != nil {
		return nil, err
	}
	out, err := record.Export(e, r.URL.Query().Get("format"), p.Site, p.Version, time.Now())
	if err != nil {
		return nil, err
	}
	w.Header().Set("Content-Type", out.Type)
	w.Header().Set("Content-Disposition", `attachment; filename="`+out.Name+`"`)
	w.Header().Set("Content-Length", strconv.Itoa(len(out.Body)))
	_, _ = w.Write(out.Body)
	return nil, nil
}
