package api_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"relay"
	"relay/api"
	"relay/store"
)

// fixture is an API with a real store and two unrelated accounts: alice, who is an admin, and bob.
type fixture struct {
	*client
	store      *store.Store
	dir        string // path of the data directory
	alice, bob relay.Actor
	asAlice    string // tokens with all scopes
	asBob      string
}

func newFixture(t *testing.T, changes ...func(*api.Options)) *fixture {
	t.Helper()
	return newFixtureWithAliases(t, 50, changes...)
}

// newFixtureWithAliases returns a fixture in which an account may have only the given number of
// aliases.
func newFixtureWithAliases(t *testing.T, aliases int, changes ...func(*api.Options)) *fixture {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	dir := t.TempDir()
	s, err := store.Open(ctx, store.Options{DataDir: dir, AliasClaim: true, MaxAliases: aliases})
	must(t, err)
	t.Cleanup(func() {
		cancel()
		must(t, s.Close())
	})
	_, _, err = s.Migrate(ctx)
	must(t, err)
	must(t, s.Serve(ctx, func([]relay.Change) {}))
	h := &fixture{store: s, dir: dir}
	h.client = newClientWith(t, s, func(o *api.Options) {
		for _, change := range changes {
			change(o)
		}
	})
	h.alice, h.asAlice = h.account("alice", true)
	h.bob, h.asBob = h.account("bob", false)
	h.alias(h.alice, "shop")
	h.alias(h.bob, "other")
	return h
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (h *fixture) account(name string, admin bool) (relay.Actor, string) {
	h.t.Helper()
	_, err := h.store.CreateAccount(h.t.Context(), relay.System(), name, admin)
	must(h.t, err)
	secret := h.token(name, relay.Token{Name: name + "-ci", Scopes: relay.AllScopes})
	who, err := h.store.TokenOwner(h.t.Context(), secret)
	must(h.t, err)
	return who, secret
}

func (h *fixture) token(user string, want relay.Token) string {
	h.t.Helper()
	account, err := h.store.AccountByName(h.t.Context(), user)
	must(h.t, err)
	want.Account, want.AccountName = account.ID, user
	_, secret, err := h.store.CreateToken(h.t.Context(), relay.System(), want)
	must(h.t, err)
	return secret
}

func (h *fixture) alias(who relay.Actor, name string) {
	h.t.Helper()
	_, err := h.store.CreateAlias(h.t.Context(), who, name, who.AccountName)
	must(h.t, err)
}

// session logs a user in and returns the value of the cookie.
func (h *fixture) session(user string) string {
	h.t.Helper()
	link, err := h.store.CreateLoginLink(h.t.Context(), relay.System(), user, time.Minute)
	must(h.t, err)
	secret, _, err := h.store.UseLoginLink(h.t.Context(), link, "127.0.0.1:1", "test")
	must(h.t, err)
	return secret
}

// event stores an event of an alias, delivered with 200. change may alter the event before it is stored; nil
// = no change.
func (h *fixture) event(alias string, change func(*relay.Event)) relay.ID {
	h.t.Helper()
	a, err := h.store.Alias(h.t.Context(), relay.System(), alias)
	must(h.t, err)
	e := newEvent(h.store.NewID(), a)
	if change != nil {
		change(e)
	}
	e.AttemptCount = len(e.Attempts)
	ended := e.Attempts
	var first relay.Attempt
	if len(ended) > 0 {
		first = ended[0]
		if first.State != relay.StateQueued {
			open := relay.Attempt{N: 1, Kind: first.Kind, State: relay.StateDelivering, ReceivedAt: first.ReceivedAt, StartedAt: first.StartedAt}
			e.Attempts = []relay.Attempt{open}
			e.State = relay.StateDelivering
		}
	}
	h.wait(h.store.Accept(e))
	if len(ended) > 0 && first.State != relay.StateQueued && first.State != relay.StateDelivering {
		h.wait(h.store.Finish(e.ID, &first, ""))
	}
	return e.ID
}

func (h *fixture) wait(ticket *relay.Ticket) {
	h.t.Helper()
	select {
	case <-ticket.Done():
		must(h.t, ticket.Err())
	case <-time.After(time.Minute):
		h.t.Fatal("the store did not answer")
	}
}

func newEvent(id relay.ID, a *relay.Alias) *relay.Event {
	now := id.Time()
	identical := true
	return &relay.Event{
		ID: id, AliasID: a.ID, Alias: a.Name, ReceivedAt: now, LastReceivedAt: now,
		Remote: netip.MustParseAddrPort("203.0.113.9:52011"), Method: "POST", Target: []byte("/hook?x=1"), HTTPMinor: 1,
		Host: a.Name + ".localhost", State: relay.StateDelivered,
		Request: message(fmt.Sprintf("POST /hook?x=1 HTTP/1.1\r\nHost: %s.localhost\r\nContent-Length: 5\r\nAuthorization: s3cret\r\n\r\n", a.Name), "hello"),
		Attempts: []relay.Attempt{{
			N: 1, Kind: relay.KindOriginal, State: relay.StateDelivered, ReceivedAt: now, StartedAt: now, EndedAt: now.Add(time.Millisecond),
			Connection: relay.ConnectionNew, Identical: &identical, HasTiming: true, Timing: relay.Timing{Wait: time.Millisecond},
			HasResponse: true, Status: 200, ResponseState: relay.ResponseComplete,
			Response: message("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "ok"),
		}},
	}
}

func message(head, body string) relay.Message {
	return relay.Message{Head: []byte(head), Framing: relay.FramingLength, Body: wholeBody(body)}
}

func wholeBody(body string) relay.Body {
	return relay.Body{
		Data: []byte(body), Stored: int64(len(body)), Size: int64(len(body)), SHA256: sha256.Sum256([]byte(body)), State: relay.BodyComplete,
	}
}

func queued(e *relay.Event) {
	e.State = relay.StateQueued
	e.Attempts = []relay.Attempt{{N: 1, Kind: relay.KindOriginal, State: relay.StateQueued, ReceivedAt: e.ReceivedAt}}
}

func rejected(e *relay.Event) {
	e.State, e.Blocker, e.Attempts = relay.StateRejected, relay.BlockedRejected, nil
	e.Error = &relay.Fault{Code: relay.CodeRequestMalformed, Message: "two lengths"}
	e.Request.Body = relay.Body{State: relay.BodyNotSent}
}

// setDeliveryState makes the deliverer answer as if a replay, attempt 2, had ended in the given state.
func (h *fixture) setDeliveryState(state string) {
	h.deliver.replay = func(who relay.Actor, id relay.ID, _ time.Duration) (*relay.Event, int, error) {
		e, err := h.store.Event(context.Background(), who, id, 1<<20)
		if err != nil {
			return nil, 0, err
		}
		again := e.Attempts[0]
		again.N, again.Kind, again.State, again.Actor = 2, relay.KindReplay, state, who.String()
		e.Attempts, e.State, e.AttemptCount = append(e.Attempts, again), state, 2
		return e, 2, nil
	}
}
