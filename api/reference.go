package api

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // embeds referencePage
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

//go:embed reference.html
var referencePage string

// addReferenceRoute adds the page that describes every route with an example, made from the OpenAPI
// document. Call it after all routes were added, except that of the document.
func (s *server) addReferenceRoute() {
	// The Content-Security-Policy of the page allows nothing but the style sheet in the page.
	_, style, _ := strings.Cut(referencePage, "<style>")
	style, _, _ = strings.Cut(style, "</style>")
	sum := sha256.Sum256([]byte(style))
	csp := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	s.registerRaw(route{
		tag: "about", public: true, answers: map[string]*huma.Response{"200": answer("OK", "text/html", textSchema)},
	}.on("GET /docs", "get-reference", "Every route with an example, for people"), func(w http.ResponseWriter, _ *http.Request, _ *requestInfo) error {
		w.Header().Set("Content-Security-Policy", csp)
		writeRaw(w, http.StatusOK, "text/html; charset=utf-8", s.reference)
		return nil
	})
}

// renderReference renders the page from the routes that have been added.
func (s *server) renderReference() {
	var operations []*huma.Operation
	for _, item := range s.huma.OpenAPI().Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			if op != nil {
				operations = append(operations, op)
			}
		}
	}
	slices.SortFunc(operations, func(a, b *huma.Operation) int {
		return strings.Compare(a.Tags[0]+a.Path+a.Method, b.Tags[0]+b.Path+b.Method)
	})
	page := template.New("reference").Funcs(template.FuncMap{"curl": s.curl, "type": typeName, "example": func(schema *huma.Schema) (string, error) {
		example, err := json.MarshalIndent(s.example(schema, 0), "", "  ")
		return string(example), err
	}})
	var out bytes.Buffer
	if err := template.Must(page.Parse(referencePage)).Execute(&out, struct {
		Base       string
		Operations []*huma.Operation
	}{s.Site.URL(""), operations}); err != nil {
		panic("api: the reference cannot be written: " + err.Error())
	}
	s.reference = out.Bytes()
}

// pathExamples are values for the placeholders of paths.
var pathExamples = strings.NewReplacer("events/{id}", "events/evt_01k…", "{id}", "ID", "{alias}", "stripe-dev", "{n}", "1", "{user}", "alice", "{token}", "TOKEN", "{shareId}", "shr_01k…", "{name}", "NAME")

// curl returns a curl command that calls an operation.
func (s *server) curl(op *huma.Operation) (string, error) {
	command := "curl -s"
	if op.Method != http.MethodGet {
		command += " -X " + op.Method
	}
	if len(op.Security) > 0 {
		command += ` -H "Authorization: Bearer $RELAY_TOKEN"`
	}
	if op.RequestBody != nil {
		body, err := json.Marshal(s.example(op.RequestBody.Content["application/json"].Schema, 0))
		if err != nil {
			return "", err
		}
		command += " -H 'Content-Type: application/json' -d '" + string(body) + "'"
	}
	path, before := pathExamples.Replace(op.Path), "?"
	for _, p := range op.Parameters {
		if p.In == "query" && p.Required {
			path, before = path+before+p.Name+"=…", "&"
		}
	}
	return command + " '" + s.Site.URL(path) + "'", nil
}

func typeName(schema *huma.Schema) string {
	switch {
	case len(schema.Enum) > 0:
		return strings.ReplaceAll(strings.Trim(fmt.Sprint(schema.Enum), "[]"), " ", " | ")
	case schema.Type == huma.TypeArray:
		return typeName(schema.Items) + ", repeatable"
	}
	return schema.Type
}

// example returns an example value for a schema. Values that are nested too deeply are left out.
func (s *server) example(schema *huma.Schema, depth int) any {
	for schema != nil && (schema.Ref != "" || len(schema.AnyOf) > 0) {
		if schema.Ref == "" {
			schema = schema.AnyOf[0]
		} else {
			schema = s.huma.OpenAPI().Components.Schemas.SchemaFromRef(schema.Ref)
		}
	}
	switch {
	case schema == nil || depth > 6:
		return nil
	case len(schema.Examples) > 0:
		return schema.Examples[0]
	case len(schema.Enum) > 0:
		return schema.Enum[0]
	case schema.Format == "date-time":
		return "2026-11-21T05:17:53.123Z"
	}
	switch schema.Type {
	case huma.TypeObject:
		object := map[string]any{}
		for name, property := range schema.Properties {
			object[name] = s.example(property, depth+1)
		}
		return object
	case huma.TypeArray:
		return []any{s.example(schema.Items, depth+1)}
	}
	return map[string]any{huma.TypeInteger: 1, huma.TypeNumber: 12.5, huma.TypeBoolean: true, huma.TypeString: "…"}[schema.Type]
}
