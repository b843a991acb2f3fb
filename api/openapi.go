package api

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"relay/cookie"
	"relay/record"
)

// newHuma returns a huma.API without schema links in bodies and without documentation pages. Its errors are
// problem+json.
func (s *server) newHuma() huma.API {
	config := huma.DefaultConfig("Relay", "1")
	config.Info.Description = "Captured webhook requests, their deliveries and replays. Version 1 only adds keys, values and routes; clients should ignore unknown ones."
	config.CreateHooks = nil
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "", "", ""
	config.RejectUnknownQueryParameters = true
	strict := strictJSON()
	config.Formats = map[string]huma.Format{"application/json": strict, "json": strict}
	config.Transformers = []huma.Transformer{s.transformError}
	config.Servers = []*huma.Server{{URL: "/"}}
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token":   {Type: "http", Scheme: "bearer", Description: "an API token, rly_…"},
		"session": {Type: "apiKey", In: "cookie", Name: cookie.Name(s.Site), Description: "the dashboard's cookie; unsafe methods from its own origin only"},
	}
	return humago.New(checkedMux{s.mux, s}, config)
}

// The keys of request bodies must have the letter case of the schema. encoding/json would accept any letter
// case, so the validation of huma refuses other ones. ValidateStrictCasing is a setting of the whole program.
func init() { huma.ValidateStrictCasing = true }

// strictJSON encodes answers and decodes request bodies. huma decodes each body twice: as an any, to validate
// it against the schema (an error is 400), and then as the handler's type (an error is 422). A body that is
// not UTF-8 is refused, because encoding/json would replace invalid bytes silently. A number too large for a
// float64 is no error of the first decoding, because it is valid JSON.
func strictJSON() huma.Format {
	return huma.Format{
		Marshal: func(w io.Writer, v any) error {
			switch v := v.(type) { // these records may hold large bodies, so they are written in pieces
			case *record.Event:
				return record.WriteEvent(w, v)
			case record.List[record.Attempt]:
				return record.WriteAttempts(w, v)
			}
			return huma.DefaultJSONFormat.Marshal(w, v)
		},
		Unmarshal: func(data []byte, v any) error {
			if !utf8.Valid(data) {
				return errors.New("the body is not UTF-8")
			}
			err := json.Unmarshal(data, v)
			var large *json.UnmarshalTypeError
			if _, validates := v.(*any); validates && errors.As(err, &large) {
				return nil
			}
			return err
		},
	}
}

// addOpenAPIRoute adds the route of the OpenAPI document. Call it last, because the document has only the
// routes that were added before this call.
func (s *server) addOpenAPIRoute() {
	s.registerRaw(route{
		tag: "about", public: true,
		answers: map[string]*huma.Response{"200": answer("OpenAPI 3.1", "application/json", &huma.Schema{Type: huma.TypeObject})},
	}.on("GET /openapi.json", "get-openapi", "This document"), func(w http.ResponseWriter, _ *http.Request, _ *requestInfo) error {
		writeRaw(w, http.StatusOK, "application/json", s.openapi)
		return nil
	})
	doc := s.huma.OpenAPI()
	schemas := doc.Components.Schemas
	// huma describes its own error type, which the API does not use.
	delete(schemas.Map(), "ErrorModel")
	delete(schemas.Map(), "ErrorDetail")
	for name, schema := range schemas.Map() {
		t := schemas.TypeFromRef("#/components/schemas/" + name)
		if pkg := t.PkgPath(); pkg == "relay" || pkg == "relay/record" || pkg == "relay/signature" {
			schema.AdditionalProperties = nil // answers may gain keys; requests must not have unknown keys
		}
		allowNull(schema, t)
		allowAbsent(schema, t)
	}
	var err error
	if s.openapi, err = json.MarshalIndent(doc, "", " "); err != nil {
		panic("api: the OpenAPI document cannot be written: " + err.Error())
	}
}

// allowAbsent marks the fields of embedded pointers as optional, because an answer lacks these fields if the
// pointer is nil.
func allowAbsent(schema *huma.Schema, t reflect.Type) {
	if t == nil || t.Kind() != reflect.Struct {
		return
	}
	for _, f := range reflect.VisibleFields(t) {
		if !f.Anonymous || f.Type.Kind() != reflect.Pointer {
			continue
		}
		for _, inner := range reflect.VisibleFields(f.Type.Elem()) {
			name, _, _ := strings.Cut(inner.Tag.Get("json"), ",")
			schema.Required = slices.DeleteFunc(schema.Required, func(required string) bool { return required == name })
		}
	}
}

// allowNull marks every property that is a pointer to an object as nullable, because huma does not.
func allowNull(schema *huma.Schema, t reflect.Type) {
	if t == nil || t.Kind() != reflect.Struct {
		return
	}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		property := schema.Properties[name]
		if property == nil || property.Ref == "" || f.Type.Kind() != reflect.Pointer || f.Tag.Get("nullable") == "false" || strings.Contains(options, "omitempty") {
			continue
		}
		schema.Properties[name] = &huma.Schema{
			Description: property.Description,
			AnyOf:       []*huma.Schema{{Ref: property.Ref}, {Type: "null"}},
		}
	}
}
