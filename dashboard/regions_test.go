package dashboard_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"relay"
	"relay/dashboard"
)

type eventReader = dashboard.Events

// countingEvents counts the reads of lists.
type countingEvents struct {
	eventReader
	lists *atomic.Int32
}

func (c countingEvents) Events(ctx context.Context, who relay.Actor, f relay.Filter) (relay.Page, error) {
	c.lists.Add(1)
	return c.eventReader.Events(ctx, who, f)
}

// TestRegionsAreReadAlone: an answer has only the regions that the script names, and a list is read only if
// it is among them and not shown already.
func TestRegionsAreReadAlone(t *testing.T) {
	t.Parallel()
	var lists atomic.Int32
	r := newFixture(t, func(o *dashboard.Options) { o.Events = countingEvents{o.Events, &lists} })
	r.online()
	id := r.send(post("/a", `{"n":1}`)).String()
	for _, c := range []struct {
		path, regions string
		has, lacks    []string
		lists         int32
	}{
		{"/aliases/hook?q=none", "plot", []string{`id="plot"`, "1 event in the last 24 hours", "<title>"}, []string{`id="list"`, `id="alias"`, "<main", "<html"}, 0},
		{"/aliases/hook?q=none", "list=/aliases/hook?q=none detail", []string{`id="alias"`}, []string{`id="list"`, "<main"}, 0},
		{"/aliases/hook?q=none", "list=/aliases/hook detail", []string{`id="list"`, `id="alias"`, "No event matches"}, []string{"<main"}, 1},
		{"/aliases/hook?q=none", "list", []string{`id="list"`}, []string{`id="alias"`}, 1},
		{"/aliases/hook?status=none", "list detail", []string{`id="filter-wrong"`}, []string{"<main"}, 0},
		{"/events/" + id, "list=/aliases/hook detail", []string{`id="event"`}, []string{`id="list"`}, 0},
		{"/events/" + id, "list=/aliases/hook?cursor=x detail", []string{`id="event"`}, []string{`id="list"`}, 0}, // a further part of the same list
		{"/events/" + id + "?status=2xx", "list=/aliases/hook detail", []string{`id="event"`, `id="list"`}, nil, 1},
		{"/", "aliases", []string{`id="aliases"`}, []string{"<main", "New alias"}, 0},
		{"/aliases/hook", "main", []string{`<main id="main" class="work overview"`, `id="list"`, `id="alias"`}, []string{"<html"}, 1}, // the script runs on another page
		{"/account", "list=/aliases/hook detail", []string{`<main id="main"`, "SSH keys"}, []string{"<html", `id="sidebar"`}, 0},
	} {
		lists.Store(0)
		status := http.StatusOK
		if strings.Contains(c.path, "status=none") {
			status = http.StatusUnprocessableEntity
		}
		part := r.do("GET", c.path, nil, http.Header{"X-Regions": {c.regions}}, status)
		contains(t, c.path+" "+c.regions, part, c.has...)
		for _, text := range c.lacks {
			if strings.Contains(part, text) {
				t.Errorf("%s, %s: has %q", c.path, c.regions, text)
			}
		}
		if n := lists.Load(); n != c.lists {
			t.Errorf("%s, %s: %d lists were read, want %d", c.path, c.regions, n, c.lists)
		}
	}
}

// TestFormsAnswerByRegions: the answer to a form that the script has sent has only the region main, with the
// saved values or the error.
func TestFormsAnswerByRegions(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	send := func(path string, form url.Values, status int, has ...string) {
		t.Helper()
		part := r.do("POST", path, form, http.Header{"X-Regions": {"main"}}, status)
		contains(t, path, part, has...)
		if strings.Contains(part, "<html") {
			t.Errorf("%s: the whole page came", path)
		}
	}
	send("/aliases/hook/settings", url.Values{"offlineStatus": {"200"}}, 200, `<main id="main"`, "The settings were saved.", `value="200"`)
	send("/aliases/hook/settings", url.Values{"offlineStatus": {"99"}}, 422, `<main id="main"`, `aria-invalid="true"`, `value="99"`)
	send("/aliases/hook/settings/members", url.Values{"user": {"nobody"}}, 422, "there is no account with that name")
	send("/account/keys", url.Values{"key": {"none"}}, 422, `aria-invalid="true"`)
}
