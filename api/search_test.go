package api_test

import (
	"fmt"
	"testing"

	"relay"
	"relay/record"
)

// A saved search can be replaced, listed and deleted by its account. Another account gets 404.
func TestSavedSearches(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	const list = "/api/v1/aliases/shop/searches"
	h.call("PUT", h.asAlice, list+"/failed%20invoices", `{"words":"status:5xx type:invoice.*"}`).want(204)
	h.call("PUT", h.asAlice, list+"/mine", `{"words":"label:bug"}`).want(204)
	h.call("PUT", h.asAlice, list+"/mine", `{"words":"label:bug-17"}`).want(204)
	want := []relay.SavedSearch{{Name: "failed invoices", Words: "status:5xx type:invoice.*"}, {Name: "mine", Words: "label:bug-17"}}
	if got := decoded[record.List[relay.SavedSearch]](h.get(h.asAlice, list).want(200)).Data; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	h.call("PUT", h.asAlice, list+"/bad", `{"words":"stat:5xx"}`).code(422, relay.CodeValidationFailed)
	h.call("PUT", h.asAlice, list+"/bad", `{"words":""}`).code(422, relay.CodeValidationFailed)
	h.get(h.asBob, list).want(404)
	h.call("PUT", h.asBob, list+"/mine", `{"words":"label:x"}`).want(404)
	h.call("DELETE", h.asAlice, list+"/failed%20invoices", "").want(204)
	h.call("DELETE", h.asAlice, list+"/failed%20invoices", "").want(404)
	if got := decoded[record.List[relay.SavedSearch]](h.get(h.asAlice, list).want(200)).Data; len(got) != 1 || got[0] != want[1] {
		t.Errorf("%v after one was forgotten", got)
	}
}

// The list of aliases has pages, ordered by name.
func TestAliasesHavePages(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for _, name := range []string{"a-b", "ab", "a0", "zz"} {
		h.alias(h.alice, name)
	}
	var names []string
	for path := "/api/v1/aliases?limit=2"; path != ""; {
		page := decoded[record.List[record.Alias]](h.get(h.asAlice, path).want(200))
		if len(page.Data) > 2 || len(names) > 10 {
			t.Fatalf("%d aliases on a page", len(page.Data))
		}
		for i := range page.Data {
			names = append(names, page.Data[i].Name)
		}
		if path = ""; page.NextCursor != nil {
			path = "/api/v1/aliases?limit=2&cursor=" + *page.NextCursor
		}
	}
	if got := fmt.Sprint(names); got != "[a-b a0 ab shop zz]" {
		t.Error(got)
	}
	if page := decoded[record.List[record.Alias]](h.get(h.asAlice, "/api/v1/aliases").want(200)); len(page.Data) != 5 || page.NextCursor != nil {
		t.Errorf("%d aliases, cursor %v", len(page.Data), page.NextCursor)
	}
	for _, bad := range []string{"limit=0", "limit=1001", "curser=x"} {
		h.get(h.asAlice, "/api/v1/aliases?"+bad).want(422)
	}
}
