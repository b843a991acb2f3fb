package api_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"relay"
	"relay/api"
	"relay/store"
)

// failing is a store that gives the first part of every body and then no more.
type failing struct{ *store.Store }

func (failing) Event(_ context.Context, _ relay.Actor, id relay.ID, _ int) (*relay.Event, error) {
	e := newEvent(id, &relay.Alias{ID: 1, Name: "shop"})
	e.Request.Body = relay.Body{Parts: 3, Stored: 3 * relay.BodyPart, Size: 3 * relay.BodyPart, State: relay.BodyComplete}
	e.Attempts[0].Response.Body = e.Request.Body
	return e, nil
}

func (failing) BodyPart(_ context.Context, _ relay.ID, n, i int) ([]byte, error) {
	if i == 0 && n == 0 {
		return make([]byte, relay.BodyPart), nil
	}
	return nil, relay.Errorf(relay.CodeStoreUnavailable, "the store is gone")
}

func TestBrokenBodiesAreNotTakenForWhole(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	d := newDeskWith(t, h.store, func(o *api.Options) { o.Events = failing{h.store} })
	front := httptest.NewServer(d.handler)
	t.Cleanup(front.Close)
	e := "/api/v1/events/" + relay.ID{1}.String()
	for _, path := range []string{"/request.body", "/request.raw", "/attempts/1/request.raw"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.URL+e+path, nil)
		must(t, err)
		r.Header.Set("Authorization", "Bearer "+h.asAlice)
		res, err := http.DefaultClient.Do(r)
		must(t, err)
		got, err := io.ReadAll(res.Body)
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %d bytes ended with %v", path, len(got), err)
		}
		must(t, res.Body.Close())
	}
	// Before the first byte it is still an answer.
	d.get(h.asAlice, e+"/attempts/1/response.body").code(503, "store-unavailable")
}

// panicking is a store that panics where it is asked who somebody is.
type panicking struct{ *store.Store }

func (panicking) Aliases(context.Context, relay.Actor) ([]relay.Alias, error) { panic("bug") }

func TestPanicsAreAnswered(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	d := newDeskWith(t, panicking{h.store}, func(o *api.Options) { o.Events = h.store })
	d.get(h.asAlice, "/api/v1/aliases").code(500, "internal")
	d.get(h.asAlice, "/api/v1/me").want(200)
}
