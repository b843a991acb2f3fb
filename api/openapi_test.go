package api_test

import (
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata/openapi.json anew")

const goldenOpenAPI = "testdata/openapi.json"

func TestOpenAPIIsTheCommittedOne(t *testing.T) {
	t.Parallel()
	got := newClient(t).get("", "/api/v1/openapi.json").want(200).body
	if *update {
		if err := os.WriteFile(goldenOpenAPI, []byte(got+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(goldenOpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimSpace(string(want)), got); diff != "" {
		t.Errorf("the API has changed; look at the difference, and write it down with -update (-want +got):\n%.4000s", diff)
	}
}

type document struct {
	OpenAPI    string
	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]any }
}

type operation struct {
	OperationID string
	Description string
	Security    []map[string][]string
	Responses   map[string]struct {
		Content map[string]struct{ Schema map[string]any }
	}
	Parameters []struct {
		Name, In string
		Required bool
	}
}

func openAPI(t *testing.T) (doc document) {
	t.Helper()
	body := newClient(t).get("", "/api/v1/openapi.json").want(200).body
	if err := json.Unmarshal([]byte(body), &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// contractRoutes lists all routes of version 1.
var contractRoutes = strings.Fields(`
	GET:/me GET:/aliases POST:/aliases GET:/aliases/{alias} PATCH:/aliases/{alias} DELETE:/aliases/{alias}
	POST:/aliases/{alias}/transfer GET:/aliases/{alias}/members PUT:/aliases/{alias}/members/{user} DELETE:/aliases/{alias}/members/{user}
	POST:/aliases/{alias}/replay-queued GET:/events GET:/events/{id} PATCH:/events/{id} DELETE:/events/{id} GET:/events/{id}/request.raw GET:/events/{id}/request.body
	GET:/events/{id}/attempts/{n}/request.raw GET:/events/{id}/attempts/{n}/response.raw GET:/events/{id}/attempts/{n}/response.body
	GET:/events/{id}/attempts
	POST:/events/{id}/replay POST:/events/{id}/cancel POST:/events/{id}/shares GET:/events/{id}/shares DELETE:/events/{id}/shares/{shareId}
	POST:/events/shared/{token}/replay GET:/shared/{token} GET:/stream GET:/tokens POST:/tokens POST:/tokens/renew DELETE:/tokens/{id} GET:/keys POST:/keys DELETE:/keys/{id}
	GET:/sessions DELETE:/sessions/{id} GET:/nodes GET:/tunnels DELETE:/tunnels/{id} GET:/users POST:/users PATCH:/users/{user} DELETE:/users/{user} POST:/users/{user}/invite GET:/audit GET:/openapi.json GET:/docs GET:/ssh GET:/events/{id}/export
	GET:/diff GET:/aliases/{alias}/figures GET:/aliases/{alias}/searches PUT:/aliases/{alias}/searches/{name} DELETE:/aliases/{alias}/searches/{name}
	GET:/providers POST:/events/{id}/verify POST:/aliases/{alias}/send GET:/samples
	GET:/aliases/{alias}/secrets POST:/aliases/{alias}/secrets DELETE:/aliases/{alias}/secrets/{id}`)

func TestOpenAPIDescribesEveryRoute(t *testing.T) {
	t.Parallel()
	doc := openAPI(t)
	if doc.OpenAPI != "3.1.0" {
		t.Errorf("version %q", doc.OpenAPI)
	}
	described := map[string]bool{}
	for path, operations := range doc.Paths {
		for method, op := range operations {
			described[strings.ToUpper(method)+":"+strings.TrimPrefix(path, "/api/v1")] = true
			checkOperation(t, method+" "+path, path, op)
		}
	}
	for _, route := range contractRoutes {
		if !described[route] {
			t.Errorf("%s is not described", route)
		}
		delete(described, route)
	}
	for route := range described {
		t.Errorf("%s is described but not in the contract", route)
	}
}

func checkOperation(t *testing.T, name, path string, op operation) {
	t.Helper()
	if op.OperationID == "" || len(op.Responses) < 2 {
		t.Errorf("%s: id %q, %d answers", name, op.OperationID, len(op.Responses))
	}
	for status, answer := range op.Responses {
		for media := range answer.Content {
			if isError := status >= "400"; isError != (media == "application/problem+json") {
				t.Errorf("%s: %s is %s", name, status, media)
			}
		}
	}
	for part := range strings.SplitSeq(path, "/") {
		if !strings.HasPrefix(part, "{") {
			continue
		}
		found := false
		for _, p := range op.Parameters {
			found = found || p.In == "path" && p.Required && "{"+p.Name+"}" == part
		}
		if !found {
			t.Errorf("%s: the parameter %s is not described", name, part)
		}
	}
}

func TestOpenAPIReferencesLeadSomewhere(t *testing.T) {
	t.Parallel()
	body := newClient(t).get("", "/api/v1/openapi.json").want(200).body
	doc := openAPI(t)
	for _, part := range strings.Split(body, `"$ref": "#/components/schemas/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		if _, ok := doc.Components.Schemas[name]; !ok {
			t.Errorf("there is no schema %s", name)
		}
	}
	for _, name := range []string{"ErrorModel", "ErrorDetail"} {
		if _, ok := doc.Components.Schemas[name]; ok {
			t.Errorf("the schema %s is not ours", name)
		}
	}
	if strings.Contains(body, "$schema") {
		t.Error("there are schema links")
	}
}

func TestEveryDescribedRouteIsThere(t *testing.T) {
	t.Parallel()
	d := newClient(t)
	for path, operations := range openAPI(t).Paths {
		for method, op := range operations {
			if slices.Contains([]string{"/api/v1/openapi.json", "/api/v1/docs", "/api/v1/ssh"}, path) {
				continue
			}
			concrete := strings.NewReplacer("{alias}", "x", "{id}", "x", "{n}", "1", "{user}", "x", "{token}", "x", "{shareId}", "x").Replace(path)
			want := http.StatusUnauthorized
			if len(op.Security) == 0 {
				want = http.StatusNotFound
			}
			d.call(strings.ToUpper(method), "", concrete, "").want(want)
		}
	}
}
