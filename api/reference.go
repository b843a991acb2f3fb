package api

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the page
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

//go:embed reference.html
var referencePage string

// referenceStyle is the style sheet in the page. Its hash is in the policy of the page,
// which forbids everything else.
var referenceStyle = func() string {
	_, rest, _ := strings.Cut(referencePage, "<style>")
	style, _, _ := strings.Cut(rest, "</style>")
	return style
}()

// operationView is an operation as the page shows it.
type operationView struct {
	ID, Method, Path, Summary, Description, Tag string
	Parameters                                  []parameterView
	Curl, Body, Status, Answer                  string
	Errors                                      []string
}

type parameterView struct {
	Name, In, Type, Description string
	Required                    bool
}

type tagView struct {
	Name       string
	Operations []operationView
}

// addReferenceRoute adds the page that describes every route with an example, made from
// the OpenAPI document. It comes behind all routes but that of the document.
func (s *server) addReferenceRoute() {
	policy := sha256.Sum256([]byte(referenceStyle))
	csp := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(policy[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	s.registerRaw(route{
		method: http.MethodGet, path: "/docs", id: "get-reference", tag: "about",
		summary: "Every route with an example, for people", public: true,
		answers: map[string]*huma.Response{"200": {
			Description: "OK",
			Content:     map[string]*huma.MediaType{"text/html": {Schema: &huma.Schema{Type: "string"}}},
		}},
	}, func(w http.ResponseWriter, _ *http.Request, _ *requestInfo) error {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Length", strconv.Itoa(len(s.reference)))
		h.Set("Content-Security-Policy", csp)
		h.Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(s.reference)
		return nil
	})
}

// renderReference writes the page down, once all routes are known.
func (s *server) renderReference() {
	var page bytes.Buffer
	err := template.Must(template.New("reference").Parse(referencePage)).Execute(&page, struct {
		Base string
		Tags []tagView
	}{s.Site.URL(""), s.operationsByTag()})
	if err != nil {
		panic("api: the reference cannot be written: " + err.Error())
	}
	s.reference = page.Bytes()
}

// operationsByTag gives all operations, ordered by path and method within their tags.
func (s *server) operationsByTag() []tagView {
	var tags []tagView
	var keys []string
	for key := range s.routes {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int {
		x, y := s.routes[a], s.routes[b]
		return strings.Compare(x.tag+x.path+x.method, y.tag+y.path+y.method)
	})
	doc := s.huma.OpenAPI()
	for _, key := range keys {
		rt := s.routes[key]
		op := operationOf(doc.Paths[Prefix+rt.path], rt.method)
		if op == nil {
			continue
		}
		if n := len(tags); n == 0 || tags[n-1].Name != rt.tag {
			tags = append(tags, tagView{Name: rt.tag})
		}
		t := &tags[len(tags)-1]
		t.Operations = append(t.Operations, s.view(op))
	}
	return tags
}

func operationOf(item *huma.PathItem, method string) *huma.Operation {
	if item == nil {
		return nil
	}
	return map[string]*huma.Operation{
		http.MethodGet: item.Get, http.MethodPost: item.Post, http.MethodPut: item.Put, http.MethodPatch: item.Patch, http.MethodDelete: item.Delete,
	}[method]
}

func (s *server) view(op *huma.Operation) operationView {
	v := operationView{ID: op.OperationID, Method: op.Method, Path: op.Path, Summary: op.Summary, Description: op.Description}
	for _, p := range op.Parameters {
		if p.In != "cookie" {
			v.Parameters = append(v.Parameters, parameterView{p.Name, p.In, typeName(p.Schema), p.Description, p.Required})
		}
	}
	if op.RequestBody != nil {
		if media := op.RequestBody.Content["application/json"]; media != nil {
			v.Body = s.sampleText(media.Schema)
		}
	}
	codes := make([]string, 0, len(op.Responses))
	for code := range op.Responses {
		codes = append(codes, code)
	}
	slices.Sort(codes)
	for _, code := range codes {
		if code >= "300" {
			v.Errors = append(v.Errors, code)
			continue
		}
		if v.Status == "" {
			v.Status = code
			if media := op.Responses[code].Content["application/json"]; media != nil {
				v.Answer = s.sampleText(media.Schema)
			}
		}
	}
	v.Curl = s.curl(op, v.Body)
	return v
}

// exampleOf are values for the placeholders of paths.
var exampleOf = map[string]string{
	"alias": "stripe-dev", "id": "evt_01k…", "n": "1", "user": "alice", "token": "TOKEN", "shareId": "shr_01k…",
}

// curl is a command that calls an operation.
func (s *server) curl(op *huma.Operation, body string) string {
	path := op.Path
	for name, value := range exampleOf {
		if name == "id" && len(op.Tags) > 0 && !strings.Contains(path, "/events/") {
			value = "ID"
		}
		path = strings.ReplaceAll(path, "{"+name+"}", value)
	}
	var query []string
	for _, p := range op.Parameters {
		if p.In == "query" && p.Required {
			query = append(query, p.Name+"=…")
		}
	}
	if len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	command := "curl -s"
	if op.Method != http.MethodGet {
		command += " -X " + op.Method
	}
	if len(op.Security) > 0 {
		command += ` -H "Authorization: Bearer $RELAY_TOKEN"`
	}
	if body != "" {
		flat := new(bytes.Buffer)
		if json.Compact(flat, []byte(body)) == nil {
			body = flat.String()
		}
		command += " -H 'Content-Type: application/json' -d '" + body + "'"
	}
	return command + " '" + s.Site.URL(path) + "'"
}

func typeName(schema *huma.Schema) string {
	switch {
	case schema == nil:
		return ""
	case len(schema.Enum) > 0:
		var values []string
		for _, v := range schema.Enum {
			values = append(values, fmt.Sprint(v))
		}
		return strings.Join(values, " | ")
	case schema.Type == "array":
		return typeName(schema.Items) + ", repeatable"
	}
	return schema.Type
}

func (s *server) sampleText(schema *huma.Schema) string {
	var out bytes.Buffer
	if json.Indent(&out, s.sample(schema, 0), "", "  ") != nil {
		return ""
	}
	return out.String()
}

// sample is JSON as a schema describes it. Below some levels it is cut off.
func (s *server) sample(schema *huma.Schema, depth int) []byte {
	schemas := s.huma.OpenAPI().Components.Schemas
	var t reflect.Type
	for schema != nil && (schema.Ref != "" || len(schema.AnyOf) > 0) {
		if schema.Ref == "" {
			schema = schema.AnyOf[0]
			continue
		}
		t = schemas.TypeFromRef(schema.Ref)
		schema = schemas.SchemaFromRef(schema.Ref)
	}
	switch {
	case schema == nil || depth > 6:
		return []byte("null")
	case len(schema.Examples) > 0:
		return mustJSON(schema.Examples[0])
	case len(schema.Enum) > 0:
		return mustJSON(schema.Enum[0])
	}
	switch schema.Type {
	case "object":
		return s.sampleObject(schema, t, depth)
	case "array":
		return slices.Concat([]byte("["), s.sample(schema.Items, depth+1), []byte("]"))
	case "integer":
		return []byte("1")
	case "number":
		return []byte("12.5")
	case "boolean":
		return []byte("true")
	case "string":
		if schema.Format == "date-time" {
			return []byte(`"2026-11-21T05:17:53.123Z"`)
		}
		return []byte(`"…"`)
	}
	return []byte("null")
}

// sampleObject gives the properties in the order of the fields of t, which is the order in
// answers, and those that t does not have by name.
func (s *server) sampleObject(schema *huma.Schema, t reflect.Type, depth int) []byte {
	var names []string
	if t != nil && t.Kind() == reflect.Struct {
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if schema.Properties[name] != nil && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	var rest []string
	for name := range schema.Properties {
		if !slices.Contains(names, name) {
			rest = append(rest, name)
		}
	}
	slices.Sort(rest)
	out := []byte("{")
	for i, name := range append(names, rest...) {
		if i > 0 {
			out = append(out, ',')
		}
		out = slices.Concat(out, mustJSON(name), []byte(":"), s.sample(schema.Properties[name], depth+1))
	}
	return append(out, '}')
}

// mustJSON encodes a value of the OpenAPI document, which was read from constants.
func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("api: an example cannot be encoded: " + err.Error())
	}
	return text
}
