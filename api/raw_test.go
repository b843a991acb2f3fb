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

// failing is a store that can read only the first part of a request body.
type failing struct{ *store.Store }

func (f failing) Attempts(ctx context.Context, who relay.Actor, id relay.ID, _ relay.AttemptPage) ([]relay.Attempt, error) {
	e, err := f.Request(ctx, who, id, 0)
	return e.Attempts, err
}

func (failing) Request(_ context.Context, _ relay.Actor, id relay.ID, _ int) (*relay.Event, error) {
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
	h := newFixture(t)
	d := newClientWith(t, h.store, func(o *api.Options) { o.Events = failing{h.store} })
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
	// If reading fails before a byte of the body was sent, the client gets a complete error answer.
	d.get(h.asAlice, e+"/attempts/1/response.body").code(503, "store-unavailable")
}

// panicking is a store that panics when it lists aliases.
type panicking struct{ *store.Store }

func (panicking) Aliases(context.Context, relay.Actor) ([]relay.Alias, error) { panic("bug") }

func TestPanicsAreAnswered(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	d := newClientWith(t, panicking{h.store}, func(o *api.Options) { o.Events = h.store })
	d.get(h.asAlice, "/api/v1/aliases").code(500, "internal")
	d.get(h.asAlice, "/api/v1/me").want(200)
}

// bodyLimitRecorder is a store that records, for each read of an event or its attempts, how many bytes of each body
// are read with it; 0 = no body is read.
type bodyLimitRecorder struct {
	*store.Store
	most *[]int
}

func (s bodyLimitRecorder) Request(ctx context.Context, who relay.Actor, id relay.ID, most int) (*relay.Event, error) {
	*s.most = append(*s.most, most)
	return s.Store.Request(ctx, who, id, most)
}

func (s bodyLimitRecorder) Attempts(ctx context.Context, who relay.Actor, id relay.ID, page relay.AttemptPage) ([]relay.Attempt, error) {
	*s.most = append(*s.most, page.MaxBody)
	return s.Store.Attempts(ctx, who, id, page)
}

// TestDownloadsReadOneBody: a download reads only its own body, not the possibly hundreds of others of
// the event.
func TestDownloadsReadOneBody(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	var most []int
	d := newClientWith(t, h.store, func(o *api.Options) { o.Events = bodyLimitRecorder{h.store, &most} })
	e := "/api/v1/events/" + h.event("shop", nil).String()
	for path, want := range map[string]string{
		"/request.body": "hello", "/attempts/1/response.body": "ok",
		"/request.raw":                "POST /hook?x=1 HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 5\r\nAuthorization: s3cret\r\n\r\nhello",
		"/attempts/1/response.raw":    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"/attempts/1/request.raw":     "POST /hook?x=1 HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 5\r\nAuthorization: s3cret\r\n\r\nhello",
		"/attempts/1/request.raw?x=1": "",
	} {
		if a := d.get(h.asAlice, e+path); want != "" {
			a.bytes(want)
		}
	}
	for _, n := range most {
		if n != 0 {
			t.Errorf("%d bytes of each body were asked for", n)
		}
	}
	if len(most) != 6+4 {
		t.Errorf("%d events and attempts were read", len(most))
	}
}
