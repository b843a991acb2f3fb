package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"relay"
	"relay/record"
)

func (s *server) addExportRoute() {
	formats := make([]any, 0, len(record.ExportFormats))
	for _, f := range record.ExportFormats {
		formats = append(formats, f)
	}
	text := map[string]*huma.MediaType{
		"text/plain":       {Schema: &huma.Schema{Type: "string"}},
		"application/json": {Schema: &huma.Schema{Type: "object"}},
	}
	s.registerRaw(route{
		method: http.MethodGet, path: "/events/{id}/export", id: "export-event", tag: "events",
		summary: "Export an event as a curl command, HAR, JSON, or a test that sends the exact bytes",
		scope:   relay.ScopeEventsRead, resolve: s.resolveEvent(record.MaxBody),
		errors: []int{http.StatusConflict, http.StatusRequestEntityTooLarge},
		query: []*huma.Param{{
			Name: "format", In: "query", Required: true, Schema: &huma.Schema{Type: "string", Enum: formats},
			Description: "go, js and python are self-contained tests, of requests up to 1 MiB; beyond that 413",
		}},
		answers: map[string]*huma.Response{"200": {Description: "The file", Content: text}},
	}, s.export)
}

func (s *server) export(w http.ResponseWriter, r *http.Request, c *requestInfo) error {
	out, err := record.Export(c.event, r.URL.Query().Get("format"), s.Site, s.Version, time.Now())
	if err != nil {
		return err
	}
	setDownloadHeaders(w, out.Name)
	w.Header().Set("Content-Type", out.Type)
	w.Header().Set("Content-Length", strconv.Itoa(len(out.Body)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(out.Body)
	}
	return nil
}
