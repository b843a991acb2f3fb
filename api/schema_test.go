package api_test

import (
	"encoding/json"
	"fmt"
	"math"
	"mime"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// apiDocument is the OpenAPI document. Each answer in a test is checked against it.
type apiDocument struct {
	mux     *http.ServeMux
	answers map[string]map[string]struct {
		Content map[string]struct{ Schema map[string]any }
	}
	schemas map[string]map[string]any
}

var loadDocument = sync.OnceValues(func() (*apiDocument, error) {
	text, err := os.ReadFile(goldenOpenAPI)
	if err != nil {
		return nil, err
	}
	var doc struct {
		Paths      map[string]map[string]operation
		Components struct{ Schemas map[string]map[string]any }
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	p := &apiDocument{mux: http.NewServeMux(), schemas: doc.Components.Schemas}
	p.answers = map[string]map[string]struct {
		Content map[string]struct{ Schema map[string]any }
	}{}
	for at, operations := range doc.Paths {
		for method, op := range operations {
			pattern := strings.ToUpper(method) + " " + at
			p.mux.Handle(pattern, http.NotFoundHandler())
			p.answers[pattern] = op.Responses
		}
	}
	return p, nil
})

// matchesDocument checks an answer: its status, its media type, and every key of its body.
func (a *answer) matchesDocument(r *http.Request) {
	a.t.Helper()
	doc, err := loadDocument()
	if err != nil {
		a.t.Fatal(err)
	}
	_, pattern := doc.mux.Handler(r)
	answers := doc.answers[pattern]
	if answers == nil || path.Clean(r.URL.Path) != r.URL.Path {
		return // the path matches no route
	}
	said, ok := answers[strconv.Itoa(a.status)]
	if !ok {
		a.t.Errorf("%s: %d is not in the document: %.300s", a.what, a.status, a.body)
		return
	}
	if len(said.Content) == 0 && a.body == "" {
		return
	}
	media, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	content, ok := said.Content[media]
	if !ok {
		a.t.Errorf("%s: %d as %q is not in the document", a.what, a.status, media)
		return
	}
	if strings.HasSuffix(media, "json") && a.body != "" {
		var v any
		a.decode(&v)
		for _, wrong := range doc.check(content.Schema, v, "") {
			a.t.Errorf("%s: %d is not as the document says:%s", a.what, a.status, wrong)
		}
	}
}

// check returns the differences between v and a schema. Keys that the schema does not describe are
// errors here, although clients ignore them.
func (p *apiDocument) check(schema map[string]any, v any, at string) (wrong []string) {
	if ref, ok := schema["$ref"].(string); ok {
		return p.check(p.schemas[strings.TrimPrefix(ref, "#/components/schemas/")], v, at)
	}
	if choices, ok := schema["anyOf"].([]any); ok {
		for _, one := range choices {
			if wrong = p.check(one.(map[string]any), v, at); len(wrong) == 0 {
				return nil
			}
		}
		return wrong
	}
	if kind := schema["type"]; kind != nil && !hasJSONType(kind, v) {
		return []string{fmt.Sprintf(" %s is %.100v, not %v", at, v, kind)}
	}
	if words, ok := schema["enum"].([]any); ok && !slices.Contains(words, v) {
		wrong = append(wrong, fmt.Sprintf(" %s is %.100v, none of %v", at, v, words))
	}
	switch v := v.(type) {
	case string:
		if _, err := time.Parse(time.RFC3339, v); schema["format"] == "date-time" && err != nil {
			wrong = append(wrong, fmt.Sprintf(" %s is no time: %s", at, v))
		}
	case []any:
		items, _ := schema["items"].(map[string]any)
		for i, item := range v {
			wrong = append(wrong, p.check(items, item, fmt.Sprintf("%s[%d]", at, i))...)
		}
	case map[string]any:
		wrong = append(wrong, p.checkObject(schema, v, at)...)
	}
	return wrong
}

func (p *apiDocument) checkObject(schema, v map[string]any, at string) (wrong []string) {
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if _, ok := v[name.(string)]; !ok {
			wrong = append(wrong, fmt.Sprintf(" %s.%s is missing", at, name))
		}
	}
	properties, closed := schema["properties"].(map[string]any)
	for name, value := range v {
		if property, ok := properties[name].(map[string]any); ok {
			wrong = append(wrong, p.check(property, value, at+"."+name)...)
		} else if closed {
			wrong = append(wrong, fmt.Sprintf(" %s.%s is not described", at, name))
		}
	}
	return wrong
}

// hasJSONType reports whether v has a type, or one of a list of types.
func hasJSONType(kind, v any) bool {
	if kinds, ok := kind.([]any); ok {
		return slices.ContainsFunc(kinds, func(one any) bool { return hasJSONType(one, v) })
	}
	is := "null"
	switch v := v.(type) {
	case bool:
		is = "boolean"
	case string:
		is = "string"
	case float64:
		is = "number"
		if kind == "integer" && v == math.Trunc(v) {
			is = "integer"
		}
	case []any:
		is = "array"
	case map[string]any:
		is = "object"
	}
	return kind == is
}

// TestAnswersAreHeldAgainstTheDocument: the check of answers finds each kind of difference from the document.
func TestAnswersAreHeldAgainstTheDocument(t *testing.T) {
	t.Parallel()
	doc, err := loadDocument()
	must(t, err)
	me := map[string]any{"$ref": "#/components/schemas/Me"}
	good := func() map[string]any {
		return map[string]any{"user": "alice", "admin": true, "scopes": []any{"account"}, "alias": nil, "tokenId": nil}
	}
	if wrong := doc.check(me, good(), ""); len(wrong) > 0 {
		t.Errorf("a good one: %v", wrong)
	}
	for what, spoil := range map[string]func(map[string]any){
		"a missing key":      func(v map[string]any) { delete(v, "user") },
		"a wrong type":       func(v map[string]any) { v["admin"] = "yes" },
		"null":               func(v map[string]any) { v["scopes"] = nil },
		"an item":            func(v map[string]any) { v["scopes"] = []any{3.0} },
		"an undescribed key": func(v map[string]any) { v["more"] = 1.0 },
	} {
		v := good()
		spoil(v)
		if len(doc.check(me, v, "")) == 0 {
			t.Errorf("%s is not found", what)
		}
	}
}
