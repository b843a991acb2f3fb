package api

import (
	"net/http"
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
	s.registerRaw(route{
		tag: "events", scope: relay.ScopeEventsRead, resolve: s.resolveEvent(record.MaxBody),
		query: []*huma.Param{{
			Name: "format", In: "query", Required: true, Schema: &huma.Schema{Type: huma.TypeString, Enum: formats},
			Description: "go, js and python are self-contained tests, of requests up to 1 MiB; beyond that 413",
		}},
		answers: map[string]*huma.Response{"200": {Description: "The file", Content: map[string]*huma.MediaType{
			"text/plain":       {Schema: textSchema},
			"application/json": {Schema: &huma.Schema{Type: huma.TypeObject}},
		}}},
	}.on("GET /events/{id}/export", "export-event", "Export an event as a curl command, HAR, JSON, or a test that sends the exact bytes", 409, 413),
		func(w http.ResponseWriter, r *http.Request, c *requestInfo) error {
			out, err := record.Export(c.event, r.URL.Query().Get("format"), s.Site, s.Version, time.Now())
			if err != nil {
				return err
			}
			setDownloadHeaders(w, out.Name)
			writeRaw(w, http.StatusOK, out.Type, out.Body)
			return nil
		})
}
