package shell

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"

	"relay/record"
)

// export prints an event in another form, as it belongs into a file. With --json it
// stands in one object: a form that is JSON as it is, another one as its text.
func (k *call) export() error {
	id, err := k.id()
	if err != nil {
		return err
	}
	format := k.flags["format"]
	if format == "" {
		format = "curl"
	}
	if !slices.Contains(record.ExportFormats, format) {
		return usage("--format is one of " + strings.Join(record.ExportFormats, ", "))
	}
	e, err := k.s.Read.Event(k.s.Ctx, k.s.Who, id, record.MaxBody)
	if err != nil {
		return err
	}
	out, err := record.Export(e, format, k.s.Site, k.s.Version, time.Now())
	if err != nil {
		return err
	}
	isJSON := format == "har" || format == "json"
	if k.json {
		if isJSON {
			return k.print(json.RawMessage(out.Body), nil)
		}
		return k.print(struct {
			Format string `json:"format"`
			ID     string `json:"id"`
			Name   string `json:"name"`
			Text   string `json:"text"`
		}{format, id.String(), out.Name, string(out.Body)}, nil)
	}
	text := string(out.Body)
	if isJSON {
		text = record.SafeJSON(out.Body)
	}
	if file := id.String() + "-request.body"; format == "curl" && strings.Contains(text, "@"+file) {
		k.talk("the body is too large for a command line; save " +
			k.s.Site.URL("/api/v1/events/"+id.String()+"/request.body") + " as " + file)
	}
	_, err = io.WriteString(k.s.Stdout, text)
	return err
}
