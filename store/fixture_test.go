package store_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/lib/pq"

	"relay"
	"relay/store"
	"relay/store/pgtest"
)

// fixtureVersion is the schema version of the newest fixture, which is a store as SQL in testdata. A migration that
// changes stored rows, and not only adds columns, needs a fixture of the version before it: before such a
// migration is made, set fixtureVersion to the schema version and run RELAY_FIXTURE=write go test ./store -run
// TestOldStores. Older fixtures stay unchanged.
const fixtureVersion = 12

var fixturePath = map[string]string{"queued": "queued", "small": "delivered", "large": "delivered", "failed": "failed", "running": "interrupted", "shared": "delivered"}

// oldEvent returns an event for a fixture.
func oldEvent(s *store.Store, alias int64, name, state string) *relay.Event {
	now := time.Now()
	e := &relay.Event{
		ID: s.NewID(), AliasID: alias, ReceivedAt: now, State: state, Remote: netip.MustParseAddrPort("192.0.2.1:4711"),
		Method: "POST", Target: []byte("/" + name), HTTPMinor: 1, Host: "hooks.example.com",
		Request: relay.Message{
			Head: []byte("POST /" + name + " HTTP/1.1\r\nHost: hooks.example.com\r\nContent-Length: 4\r\n\r\n"), Framing: relay.FramingLength,
			Body: relay.Body{Data: []byte("body"), Size: 4, State: relay.BodyComplete},
		},
		Attempts: []relay.Attempt{{N: 1, Kind: relay.KindOriginal, State: state, ReceivedAt: now, StartedAt: now}},
	}
	if state == relay.StateQueued {
		e.Attempts[0].StartedAt = time.Time{}
	}
	return e
}

// fillOldStore creates at least one row of each kind for a fixture.
func fillOldStore(t *testing.T, s *store.Store) {
	t.Helper()
	ctx, sys := t.Context(), relay.System()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	alias := withAlias(t, s)
	_, err := s.CreateAccount(ctx, sys, "bob", true)
	must(err)
	must(s.AddMember(ctx, sys, "hooks", "bob"))
	retention := 50 * 365 * 24 * time.Hour // longer than the fixture will be used
	_, err = s.SetAlias(ctx, sys, "hooks", func(set *relay.Settings) error {
		set.OfflineStatus, set.Retention, set.Forwarded = 503, &retention, true
		return nil
	})
	must(err)
	bob, err := s.AccountByName(ctx, "bob")
	must(err)
	_, _, err = s.CreateToken(ctx, sys, relay.Token{AccountName: bob.Name, Name: "ci", Scopes: relay.ScopeEventsRead})
	must(err)
	must(s.SaveSearch(ctx, relay.Actor{Account: bob.ID, AccountName: bob.Name, Admin: true}, "hooks", relay.SavedSearch{Name: "errors", Words: "status:5xx"}))
	_, err = s.CreateLoginLink(ctx, sys, "bob", 24*time.Hour)
	must(err)
	_, _, err = s.BeginIdempotent(ctx, sys, "key", "POST /replay")
	must(err)
	must(s.EndIdempotent(ctx, sys, "key", 200, []byte("{}")))

	end := func(id relay.ID, state string, a relay.Attempt) {
		a.N, a.State, a.EndedAt = 1, state, time.Now()
		kept(t, s.Finish(id, &a, ""))
	}
	for _, name := range []string{"small", "large", "failed", "running", "shared"} {
		e := oldEvent(s, alias, name, relay.StateDelivering)
		if name == "large" {
			e.Request.Body = relay.Body{Parts: 2, Stored: 8, Size: 8, State: relay.BodyComplete}
			kept(t, s.Chunk(e.ID, 0, 0, []byte("part")))
			kept(t, s.Chunk(e.ID, 0, 1, []byte("part")))
		}
		kept(t, s.Accept(e))
		switch name {
		case "failed":
			end(e.ID, relay.StateFailed, relay.Attempt{Error: &relay.Fault{Code: relay.CodeLocalRefused, Message: "refused"}})
		case "small", "large", "shared":
			end(e.ID, relay.StateDelivered, relay.Attempt{
				HasResponse: true, Status: 200, ResponseState: relay.ResponseComplete, HasTiming: true, SentHead: []byte("sent"),
				Interim: [][]byte{[]byte("HTTP/1.1 103 Early Hints\r\n\r\n")}, Timing: relay.Timing{Wait: time.Second},
				Response: relay.Message{Head: []byte("HTTP/1.1 200 OK\r\n\r\n"), Body: relay.Body{Data: []byte("ok"), Size: 2, State: relay.BodyComplete}},
			})
		}
		if name == "shared" {
			_, _, err := s.CreateShare(ctx, sys, e.ID, relay.Share{View: true})
			must(err)
			must(s.MarkEvent(ctx, sys, e.ID, func(m *relay.Mark) { *m = relay.Mark{Pinned: true, Label: "july", Note: "of the fixture"} }))
		}
	}
	kept(t, s.Accept(oldEvent(s, alias, "queued", relay.StateQueued)))
}

// TestOldStores opens a store of each released schema, from committed SQL: all of it can be read,
// queued events are delivered, running attempts become interrupted, and events can be replayed.
func TestOldStores(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"sqlite", "postgres"} {
		if os.Getenv("RELAY_FIXTURE") == "write" {
			writeFixture(t, engine)
		}
		files, err := filepath.Glob("testdata/store-v*." + engine + ".sql")
		if err != nil || len(files) == 0 {
			t.Fatalf("no fixtures of %s: %v", engine, err)
		}
		if _, err := os.Stat(fixtureFile(engine)); err != nil {
			t.Error(err)
		}
		for _, file := range files {
			t.Run(filepath.Base(file), func(t *testing.T) {
				t.Parallel()
				openOldStore(t, engine, file)
			})
		}
	}
}

func fixtureFile(engine string) string {
	return fmt.Sprintf("testdata/store-v%d.%s.sql", fixtureVersion, engine)
}

func openOldStore(t *testing.T, engine, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	o := store.Options{DataDir: t.TempDir(), Log: testLog(t)}
	driver, address := "sqlite", "file:"+filepath.Join(o.DataDir, "relay.db")
	if engine == "postgres" {
		o.URL = pgtest.URL(t)
		driver, address = "postgres", o.URL
	}
	db, err := sql.Open(driver, address)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(string(text)); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	s := mustServe(t, o)
	ctx, sys := t.Context(), relay.System()
	page, err := s.Events(ctx, sys, relay.Filter{Alias: "hooks", Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	states, ids := map[string]string{}, map[string]relay.ID{}
	for _, e := range page.Events {
		name := strings.TrimPrefix(string(e.Target), "/")
		states[name], ids[name] = e.State, e.ID
	}
	if diff := cmp.Diff(fixturePath, states); diff != "" {
		t.Fatal(diff)
	}
	e, err := s.Event(ctx, sys, ids["small"], 100)
	if err != nil {
		t.Fatal(err)
	}
	a := e.Attempts[0]
	if string(e.Request.Body.Data) != "body" || !bytes.HasPrefix(e.Request.Head, []byte("POST /small ")) || string(a.Response.Body.Data) != "ok" ||
		a.Status != 200 || a.Timing.Wait != time.Second || len(a.Interim) != 1 || string(a.SentHead) != "sent" {
		t.Errorf("read back: %+v", e)
	}
	if part, err := s.BodyPart(ctx, ids["large"], 0, 1); err != nil || string(part) != "part" {
		t.Errorf("part: %q, %v", part, err)
	}
	alias, err := s.Alias(ctx, sys, "hooks")
	if err != nil || alias.Settings.OfflineStatus != 503 || alias.Settings.Retention == nil || !alias.Settings.Forwarded {
		t.Fatalf("alias: %+v, %v", alias, err)
	}
	shares, err := s.Shares(ctx, sys, ids["shared"])
	if err != nil || len(shares) != 1 || !shares[0].View {
		t.Errorf("shares: %+v, %v", shares, err)
	}
	checkOldMarks(t, s, file, ids["shared"])
	tokens, err := s.Tokens(ctx, sys, "bob")
	if err != nil || len(tokens) != 1 || tokens[0].Name != "ci" {
		t.Errorf("tokens: %+v, %v", tokens, err)
	}
	if log, err := s.Audit(ctx, sys, 100); err != nil || len(log) < 5 {
		t.Errorf("audit log: %d rows, %v", len(log), err)
	}
	mayClaim(t, s)
	next, err := s.Next(relay.NextClaim{Alias: alias.ID, Auto: true})
	if err != nil || next == nil || next.Event.ID != ids["queued"] {
		t.Fatalf("out of the queue: %+v, %v", next, err)
	}
	replay, err := s.BeginReplay(ctx, sys, ids["failed"], true)
	if err != nil || replay.N != 2 {
		t.Fatalf("replay: %+v, %v", replay, err)
	}
	for _, c := range []*relay.Claim{next, replay} {
		kept(t, s.Finish(c.Event.ID, &relay.Attempt{N: c.N, State: relay.StateDelivered, EndedAt: time.Now(), HasResponse: true, Status: 200}, ""))
	}
	if _, err := capture(s, alias.ID); err != nil {
		t.Error(err)
	}
	if n, err := s.Retain(ctx, time.Now().Add(100*365*24*time.Hour)); err != nil || n < len(states)-1 {
		t.Errorf("retention removed %d events, %v", n, err)
	}
}

// checkOldMarks checks the mark of an event and the saved search of bob. Stores have both since schema 6.
func checkOldMarks(t *testing.T, s *store.Store, file string, marked relay.ID) {
	t.Helper()
	var version int
	if _, err := fmt.Sscanf(filepath.Base(file), "store-v%d.", &version); err != nil {
		t.Fatal(err)
	}
	if version < 6 {
		return
	}
	want := relay.Mark{Pinned: true, Label: "july", Note: "of the fixture"}
	if e, err := s.Event(t.Context(), relay.System(), marked, 100); err != nil || e.Mark != want {
		t.Errorf("mark: %+v, %v", e, err)
	}
	bob, err := s.AccountByName(t.Context(), "bob")
	if err != nil {
		t.Fatal(err)
	}
	searches, err := s.SavedSearches(t.Context(), relay.Actor{Kind: relay.ActorUser, Account: bob.ID, AccountName: bob.Name, Admin: true}, "hooks")
	if diff := cmp.Diff([]relay.SavedSearch{{Name: "errors", Words: "status:5xx"}}, searches); err != nil || diff != "" {
		t.Errorf("searches: %v %s", err, diff)
	}
}

// writeFixture fills a store with fillOldStore and writes it to the file of the fixture as SQL.
func writeFixture(t *testing.T, engine string) {
	t.Helper()
	o := store.Options{DataDir: t.TempDir()}
	if engine == "postgres" {
		o.URL = pgtest.URL(t)
	}
	s := mustServe(t, o)
	if have, _, err := s.Schema(t.Context()); err != nil || have != fixtureVersion {
		t.Fatalf("the schema has version %d, %v", have, err)
	}
	fillOldStore(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	dump := exec.Command("sqlite3", filepath.Join(o.DataDir, "relay.db"), ".dump")
	schema := ""
	if engine == "postgres" {
		u, err := url.Parse(o.URL)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		schema = q.Get("search_path")
		dropEmptyDays(t, o.URL)
		dump = exec.Command("pg_dump", "--inserts", "--no-owner", "--schema", schema,
			"host="+q.Get("host")+" user="+u.User.Username()+" dbname="+strings.TrimPrefix(u.Path, "/"))
	}
	dump.Stderr = os.Stderr
	out, err := dump.Output()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for line := range strings.Lines(string(out)) {
		switch {
		case engine == "postgres" && (strings.HasPrefix(line, `\`) || strings.HasPrefix(line, "--") || strings.HasPrefix(line, "SET ") ||
			strings.HasPrefix(line, "SELECT pg_catalog.set_config") || strings.HasPrefix(line, "CREATE SCHEMA") || line == "\n"):
		case schema != "":
			text.WriteString(strings.ReplaceAll(line, schema+".", ""))
		default:
			text.WriteString(line)
		}
	}
	if err := os.WriteFile(fixtureFile(engine), []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// dropEmptyDays keeps a fixture small: it drops the partitions of days without events. A start creates these
// partitions again.
func dropEmptyDays(t *testing.T, address string) {
	t.Helper()
	db, err := sql.Open("postgres", address)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query(`SELECT relname FROM pg_class WHERE relkind = 'r' AND relispartition AND relnamespace = current_schema()::regnamespace
		AND relname NOT LIKE '%_default'`)
	if err != nil {
		t.Fatal(err)
	}
	var tables []string
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			t.Fatal(err)
		}
		tables = append(tables, table)
	}
	today := time.Now().UTC().Format("_20060102")
	for _, table := range tables {
		if strings.HasSuffix(table, today) {
			continue
		}
		if _, err := db.Exec(`DROP TABLE ` + pq.QuoteIdentifier(table)); err != nil {
			t.Fatal(err)
		}
	}
}

// kept waits until the step of a ticket is stored.
func kept(t *testing.T, ticket *relay.Ticket) {
	t.Helper()
	<-ticket.Done()
	if err := ticket.Err(); err != nil {
		t.Fatal(err)
	}
}
