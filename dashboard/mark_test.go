package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"relay"
)

// TestPinLabelAndNote: forms set the pin, label and note of an event. The event and the list show them, and
// filters find the event.
func TestPinLabelAndNote(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	id, other := r.send(post("/marked", "{}")).String(), r.send(post("/other", "{}")).String()
	contains(t, "unmarked", r.get("/events/"+id, 200), ">Pin</span>", "Label, note")
	contains(t, "pinned", r.submit("/events/"+id+"/mark", url.Values{"pinned": {"on"}}, 200), `class="star on"`, ">Unpin</span>")
	page := r.submit("/events/"+id+"/mark", url.Values{"label": {"bug <17>"}, "note": {"two\nlines"}}, 200)
	contains(t, "labelled", page, `class="star on"`, "bug &lt;17&gt;</a>", "two\nlines", "/aliases/hook?label=bug+%3C17%3E")
	list := r.get("/aliases/hook", 200)
	contains(t, "list", list, `aria-label="pinned">★`, `<span class="label">bug &lt;17&gt;</span>`, "?pinned=true")
	for _, query := range []string{"pinned=true", "label=bug+%3C17%3E", "label=bug*", "find=pinned:true"} {
		if page := r.get("/aliases/hook?"+query, 200); !strings.Contains(page, `data-event-id="`+id) || strings.Contains(page, `data-event-id="`+other) {
			t.Errorf("%s does not show the marked event alone", query)
		}
	}
	contains(t, "completion", r.get("/aliases/hook/complete?text=label:bu", 200), "bug &lt;17&gt;")
	r.submit("/events/"+id+"/mark", url.Values{"label": {strings.Repeat("x", 61)}}, 422)
	if part := r.do("POST", "/events/"+id+"/mark", url.Values{"pinned": {"off"}}, http.Header{"X-Regions": {"detail"}}, 200); !strings.Contains(part, "Unpinned") || strings.Contains(part, "<html") {
		t.Errorf("partial answer: %q", part)
	}
	contains(t, "not pinned", r.get("/events/"+id, 200), ">Pin</span>", "two\nlines")
}

// TestDeleteAsksFirst: an event is deleted by a button on a page that asks for confirmation. That page, and the
// list that follows the deletion, keep the filter in the address.
func TestDeleteAsksFirst(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	id := r.send(post("/gone", "{}")).String()
	contains(t, "event", r.get("/events/"+id, 200), "/events/"+id+"/delete")
	contains(t, "question", r.get("/events/"+id+"/delete", 200), "Delete POST /gone?", "cannot be undone", ">Delete event</button>")
	r.get("/events/"+id, 200)
	if list := r.submit("/events/"+id+"/delete", nil, 200); strings.Contains(list, id) || !strings.Contains(list, "No events yet") {
		t.Error("the list after the deletion still has the event")
	}
	r.get("/events/"+id, 404)
	r.submit("/events/"+id+"/delete", nil, 404)
	id = r.send(post("/gone", "{}")).String()
	const filter = "?status=2xx"
	contains(t, "event", r.get("/events/"+id+filter, 200), `href="/events/`+id+`/delete`+filter+`"`)
	contains(t, "question", r.get("/events/"+id+"/delete"+filter, 200), `href="/events/`+id+filter+`">Back`, `action="/events/`+id+`/delete`+filter+`"`)
	contains(t, "list", r.submit("/events/"+id+"/delete"+filter, nil, 200), "status:2xx")
}

// TestMembersCannotMarkOrDelete: a member sees a label, and cannot mark or delete the event.
func TestMembersCannotMarkOrDelete(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	id := r.send(post("/kept", "{}")).String()
	r.submit("/events/"+id+"/mark", url.Values{"label": {"seen"}}, 200)
	_, err := r.s.CreateAccount(t.Context(), relay.System(), "bob", false)
	must(t, err)
	must(t, r.s.AddMember(t.Context(), relay.System(), "hook", "bob"))
	r.login("bob")
	page := r.get("/events/"+id, 200)
	contains(t, "member", page, "seen</a>")
	for _, word := range []string{`id="pin"`, `id="mark"`, `id="delete"`} {
		if strings.Contains(page, word) {
			t.Errorf("a member is offered %s", word)
		}
	}
	r.submit("/events/"+id+"/mark", url.Values{"pinned": {"on"}}, 403)
	r.submit("/events/"+id+"/delete", nil, 403)
	res := r.do("POST", "/events/"+id+"/mark", url.Values{"pinned": {"on"}}, http.Header{"Sec-Fetch-Site": {"cross-site"}}, 403)
	if strings.Contains(res, "owner") {
		t.Error("another site's form got to the store")
	}
}

// TestSavedSearches: a saved search is shown on the pages of the alias until it is forgotten. A search with a
// mistake is not saved.
func TestSavedSearches(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	save := func(name, words string, status int) string {
		return r.submit("/aliases/hook/searches", url.Values{"name": {name}, "words": {words}}, status)
	}
	contains(t, "offer", r.get("/aliases/hook?status=error", 200), `name="words" value="status:error"`)
	contains(t, "saved", save("failed", "status:error", 200), ">failed</a>", "?find=status%3Aerror", `aria-label="Forget the search failed"`, `value="status:error"`)
	contains(t, "another page", r.get("/aliases/hook", 200), ">failed</a>")
	save("wrong", "stauts:error", 422)
	if page := save("failed", "", 200); strings.Contains(page, ">failed</a>") {
		t.Error("a forgotten search is still there")
	}
}
