package api_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"relay"
	"relay/api"
	"relay/record"
)

// client is an API with a fake deliverer, to which a test sends requests.
type client struct {
	t       *testing.T
	handler http.Handler
	deliver *fakeDeliverer
	site    relay.Site
	log     *lockedBuffer
}

// answer is the answer to a request of the test.
type answer struct {
	t      *testing.T
	what   string
	status int
	header http.Header
	body   string
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newClient returns a client without a store, for requests that are answered before the store is
// needed.
func newClient(t *testing.T) *client { return newClientWith(t, nil, func(*api.Options) {}) }

func newClientWith(t *testing.T, known api.Accounts, change func(*api.Options)) *client {
	t.Helper()
	d := &client{
		t: t, log: &lockedBuffer{}, deliver: &fakeDeliverer{},
		site: relay.Site{Base: url.URL{Scheme: "http", Host: "localhost:8080"}, AliasDomain: "localhost"},
	}
	if known == nil {
		known = noAccounts{}
	}
	o := api.Options{
		Deliver: d.deliver, Accounts: known, Site: d.site, Log: slog.New(slog.NewJSONHandler(d.log, nil)),
		Limits: api.NewLimits(api.Rate{N: 60, Per: time.Minute}, api.Rate{N: 10, Per: time.Minute}),
	}
	if events, ok := known.(api.Events); ok {
		o.Events = events
	}
	if nodes, ok := known.(api.Nodes); ok {
		o.Nodes = nodes
	}
	change(&o)
	d.site = o.Site
	d.handler = api.New(o)
	return d
}

type accounts = api.Accounts

// noAccounts is a store without credentials.
type noAccounts struct{ accounts }

func (noAccounts) TokenOwner(context.Context, string) (relay.Actor, error) {
	return relay.Actor{}, relay.ErrNotFound
}

func (noAccounts) SessionOwner(context.Context, string) (relay.Actor, error) {
	return relay.Actor{}, relay.ErrNotFound
}

func (noAccounts) ShareActor(context.Context, string, bool) (relay.Actor, relay.Share, error) {
	return relay.Actor{}, relay.Share{}, relay.ErrNotFound
}

func (d *client) request(method, token, target, body string) *http.Request {
	r := httptest.NewRequest(method, "http://localhost:8080/", strings.NewReader(body))
	u, err := url.ParseRequestURI(target)
	if err != nil {
		d.t.Fatal(err)
	}
	r.URL, r.RequestURI = u, target
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

func (d *client) do(r *http.Request) *answer {
	d.t.Helper()
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, r)
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		d.t.Fatal(err)
	}
	a := &answer{t: d.t, what: r.Method + " " + r.RequestURI, status: w.Code, header: w.Result().Header, body: string(body)}
	a.matchesDocument(r)
	return a
}

func (d *client) call(method, token, target, body string) *answer {
	d.t.Helper()
	return d.do(d.request(method, token, target, body))
}

func (d *client) get(token, target string) *answer {
	d.t.Helper()
	return d.call(http.MethodGet, token, target, "")
}

func (d *client) post(token, target, body string) *answer {
	d.t.Helper()
	return d.call(http.MethodPost, token, target, body)
}

// want checks the status, and that an error answer is a complete problem+json.
func (a *answer) want(status int) *answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: %d, want %d: %.500s", a.what, a.status, status, a.body)
	}
	if status >= 400 {
		a.problem()
	}
	return a
}

func (a *answer) problem() record.Problem {
	a.t.Helper()
	var p record.Problem
	a.decode(&p)
	if a.header.Get("Content-Type") != "application/problem+json" || p.Type != "about:blank" || p.Title == "" || p.Status != a.status ||
		p.Detail == "" || p.Code == "" || p.RequestID == "" || p.RequestID != a.header.Get("X-Request-Id") || p.Errors == nil {
		a.t.Errorf("%s: no whole problem: %v %s", a.what, a.header, a.body)
	}
	return p
}

func (a *answer) code(status int, code string) *answer {
	a.t.Helper()
	if got := a.want(status).problem().Code; got != code {
		a.t.Errorf("%s: code %s, want %s: %s", a.what, got, code, a.body)
	}
	return a
}

func (a *answer) decode(v any) {
	a.t.Helper()
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		a.t.Fatalf("%s: %v in %.300q", a.what, err, a.body)
	}
}

// decoded returns the body of an answer as a T.
func decoded[T any](a *answer) (v T) {
	a.t.Helper()
	a.decode(&v)
	return v
}
