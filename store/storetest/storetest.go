// Package storetest is the conformance suite of the store: tests of its promises, run on each engine
// against a real database.
package storetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"relay"
	"relay/store"
)

// Run runs the whole suite. fresh returns the options of a new, empty store; two stores opened with
// the same options use the same data.
func Run(t *testing.T, fresh func(t testing.TB) store.Options) {
	groups := []struct {
		name string
		test func(*testing.T, func(testing.TB) store.Options)
	}{
		{"Journal", testJournal},
		{"Large", testLarge},
		{"Queue", testQueue},
		{"Crash", testCrash},
		{"List", testList},
		{"Marks", testMarks},
		{"Accounts", testAccounts},
		{"Credentials", testCredentials},
		{"Secrets", testSecrets},
		{"Aliases", testAliases},
		{"Access", testAccess},
		{"Viewers", testViewers},
		{"Shares", testShares},
		{"FreshLogin", testFreshLogin},
		{"Changes", testChanges},
		{"Figures", testFigures},
		{"Health", testHealth},
		{"Audit", testAudit},
		{"Acts", testActs},
		{"Clock", testClock},
		{"Lives", testLives},
		{"Load", testLoad},
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			g.test(t, fresh)
		})
	}
}

// fixture is one store under test with some accounts: alice owns the alias "hooks", bob owns "other",
// root is an admin without aliases.
type fixture struct {
	testing.TB
	*store.Store
	opt              store.Options
	alice, bob, root relay.Actor
	hooks, other     *relay.Alias

	mu      sync.Mutex
	changes []relay.Change
	taken   []snapshot
	changed chan struct{}
}

// snapshot holds the event and attempt of a change.
type snapshot struct {
	event   *relay.Event
	attempt *relay.Attempt
}

var system = relay.System()

// setup opens, migrates and serves a new store.
func setup(t testing.TB, fresh func(testing.TB) store.Options, edit ...func(*store.Options)) *fixture {
	t.Helper()
	b := &fixture{TB: t, opt: fresh(t), changed: make(chan struct{}, 1)}
	b.opt.AliasClaim, b.opt.MaxAliases = true, 50
	b.opt.Log = slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	for _, e := range edit {
		e(&b.opt)
	}
	b.reopen()
	ctx := t.Context()
	people := []*relay.Actor{&b.alice, &b.bob, &b.root}
	for i, name := range []string{"alice", "bob", "root"} {
		a, err := b.CreateAccount(ctx, system, name, name == "root")
		b.must(err)
		*people[i] = relay.Actor{
			Account: a.ID, AccountName: name, Name: name, Kind: relay.ActorUser, Admin: a.Admin, Scopes: relay.AllScopes,
		}
	}
	var err error
	b.hooks, err = b.CreateAlias(ctx, b.alice, "hooks", "")
	b.must(err)
	b.other, err = b.CreateAlias(ctx, b.bob, "other", "")
	b.must(err)
	return b
}

// reopen simulates a restart: it closes the store, if open, and opens it again.
func (b *fixture) reopen() {
	b.Helper()
	if b.Store != nil {
		b.must(b.Close())
	}
	s, err := store.Open(b.Context(), b.opt)
	b.must(err)
	b.Cleanup(func() { _ = s.Close() }) // the error is ignored, because some tests have closed the store before
	_, _, err = s.Migrate(b.Context())
	b.must(err)
	b.must(s.Serve(b.Context(), b.hear))
	b.Store = s
}

func (b *fixture) hear(changes []relay.Change) {
	b.mu.Lock()
	b.changes = append(b.changes, changes...)
	for _, c := range changes {
		if c.Snapshot != nil {
			e, a := c.Snapshot()
			b.taken = append(b.taken, snapshot{e, a})
		}
	}
	b.mu.Unlock()
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// heard waits for a change for which the function fits returns true.
func (b *fixture) heard(what string, fits func(relay.Change) bool) {
	b.Helper()
	late := time.NewTimer(30 * time.Second)
	defer late.Stop()
	for {
		b.mu.Lock()
		for _, c := range b.changes {
			if fits(c) {
				b.mu.Unlock()
				return
			}
		}
		b.mu.Unlock()
		select {
		case <-b.changed:
		case <-late.C:
			b.Fatalf("no change was published: %s", what)
		}
	}
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(string(bytes.TrimSpace(p)))
	return len(p), nil
}

func (b *fixture) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// want checks the code of an error.
func (b *fixture) want(code string, err error) {
	b.Helper()
	var e *relay.Error
	if !errors.As(err, &e) || e.Code != code {
		b.Errorf("got error %v, want code %s", err, code)
	}
}

// done waits for a ticket.
func (b *fixture) done(t *relay.Ticket) error {
	b.Helper()
	select {
	case <-t.Done():
		return t.Err()
	case <-time.After(time.Minute):
		b.Fatal("a ticket was never resolved")
		return nil
	}
}

func (b *fixture) ok(t *relay.Ticket) {
	b.Helper()
	b.must(b.done(t))
}

func message(head, body string) relay.Message {
	return relay.Message{
		Head: []byte(head), Framing: relay.FramingLength,
		Body: relay.Body{Data: []byte(body), Size: int64(len(body)), SHA256: sha256.Sum256([]byte(body)), State: relay.BodyComplete},
	}
}

// newEvent returns an event of the alias with attempt 1 in a state; "" = without an attempt.
func (b *fixture) newEvent(a *relay.Alias, state, path, body string) *relay.Event {
	now := time.Now().UTC().Truncate(time.Microsecond)
	e := &relay.Event{
		ID: b.NewID(), AliasID: a.ID, Alias: a.Name, ReceivedAt: now, LastReceivedAt: now, Remote: netip.MustParseAddrPort("203.0.113.9:52011"),
		TLS: true, Method: "POST", Target: []byte(path), HTTPMinor: 1, Host: a.Name + ".localhost", State: state,
		Request: message("POST "+path+" HTTP/1.1\r\nHost: "+a.Name+".localhost\r\n\r\n", body),
	}
	if state != "" {
		e.Attempts = []relay.Attempt{{N: 1, Kind: relay.KindOriginal, State: state, ReceivedAt: now}}
	}
	return e
}

// ended returns the end of attempt n.
func ended(n int, state string, status int, body string) *relay.Attempt {
	now := time.Now().UTC().Truncate(time.Microsecond)
	same := true
	a := &relay.Attempt{
		N: n, State: state, StartedAt: now.Add(-time.Second), EndedAt: now, Connection: relay.ConnectionNew, Identical: &same, HasTiming: true,
		Timing: relay.Timing{Blocked: 1000, Connect: time.Millisecond, Send: 2 * time.Millisecond, Wait: 3 * time.Millisecond, Receive: 4 * time.Millisecond},
	}
	if status > 0 {
		a.HasResponse, a.Status, a.ResponseState = true, status, relay.ResponseComplete
		a.Interim = [][]byte{[]byte("HTTP/1.1 103 Early Hints\r\n\r\n"), []byte("HTTP/1.1 102 Processing\r\n\r\n")}
		a.Response = message(fmt.Sprintf("HTTP/1.1 %d X\r\n\r\n", status), body)
	} else {
		a.Error = &relay.Fault{Code: relay.CodeLocalRefused, Message: "nobody listens"}
	}
	return a
}

// capture stores an event whose attempt has ended with the given status; for status 0, it stores an event
// that is queued.
func (b *fixture) capture(a *relay.Alias, path, body string, status int) relay.ID {
	b.Helper()
	state := relay.StateDelivering
	if status == 0 {
		state = relay.StateQueued
	}
	e := b.newEvent(a, state, path, body)
	t := b.Accept(e)
	if status != 0 {
		b.ok(b.Finish(e.ID, ended(1, relay.StateDelivered, status, "done"), ""))
	}
	b.ok(t)
	return e.ID
}

// read reads an event as the system.
func (b *fixture) read(id relay.ID) *relay.Event {
	b.Helper()
	e, err := b.Event(context.Background(), system, id, 1<<20)
	b.must(err)
	return e
}

// wantEvent checks state and attempts of an event, and returns the event.
func (b *fixture) wantEvent(id relay.ID, state string, attempts ...string) *relay.Event {
	b.Helper()
	e := b.read(id)
	var got []string
	for i, a := range e.Attempts {
		if a.N != i+1 {
			b.Errorf("attempt %d of %s has number %d", i+1, id, a.N)
		}
		got = append(got, a.State)
	}
	if e.State != state || fmt.Sprint(got) != fmt.Sprint(attempts) || e.AttemptCount != len(attempts) {
		b.Errorf("event is %s with attempts %v (count %d), want %s with %v", e.State, got, e.AttemptCount, state, attempts)
	}
	return e
}
