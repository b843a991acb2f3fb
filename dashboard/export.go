package dashboard

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/a-h/templ"

	"relay"
	"relay/record"
)

// export gives an event in a form that other programs read: a cURL command as text,
// HAR and JSON as files.
func (p *pages) export(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	id, err := relay.ParseID(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	e, err := p.Events.Event(r.Context(), who, id, record.MaxBody)
	if err != nil {
		return nil, err
	}
	var v any
	format := r.URL.Query().Get("format")
	switch format {
	case "curl":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(record.CURL(e, p.Site, e.ID.String()+"-request.body")))
		return nil, nil
	case "har":
		v = record.HAROf(e, p.Site, "1")
	case "json":
		v = record.Of(e, p.Site, time.Now())
	default:
		return nil, relay.Errorf(relay.CodeValidationFailed, "format: expected one of curl, har, json")
	}
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Disposition", `attachment; filename="`+e.ID.String()+"."+format+`"`)
	_, _ = w.Write(body)
	return nil, nil
}
