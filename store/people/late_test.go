package people

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"maps"
	"testing"
	"time"

	"relay"
	"relay/store/db"
)

// openPeople opens an empty store of people on SQLite.
func openPeople(t *testing.T) *Store {
	t.Helper()
	d, err := db.Open(t.Context(), db.Options{DataDir: t.TempDir()})
	t.Cleanup(func() { _ = d.Close() })
	if err == nil {
		_, _, err = d.Migrate(t.Context())
	}
	if err == nil {
		err = d.Execute(t.Context(), "", `INSERT INTO nodes (id, name, peer_addr, peer_key, version, schema_version, started_at, seen_at, beat, state, spool_steps, clock_offset_us, feed, unreachable)
			VALUES ('node', 'node', '', '', '', 1, 0, 0, 0, 'serving', 0, 0, '', '')`)
	}
	if err != nil {
		t.Fatal(err)
	}
	return New(d, Options{
		Log: slog.New(slog.DiscardHandler), NodeID: func() string { return "node" }, AliasRemoved: func(context.Context) error { return nil },
	})
}

// If the end of a call with an Idempotency-Key could not be stored, its response is stored once the database
// is available, so that the call does not count as in progress any more. A call counts as never made if the
// database did not answer when it began.
func TestLostEndOfACall(t *testing.T) {
	t.Parallel()
	ctx, who := context.Background(), relay.Actor{Credential: "tok_1"}
	s := openPeople(t)
	away := false
	s.db.Away = func() error {
		if away {
			return sql.ErrConnDone
		}
		return nil
	}
	begin := func(key string) (int, string, error) {
		status, body, err := s.BeginIdempotent(ctx, who, key, "POST /a")
		return status, string(body), err
	}
	for _, key := range []string{"answered", "failed", "other"} {
		if status, _, err := begin(key); status != 0 || err != nil {
			t.Fatal(status, err)
		}
	}
	away = true // from now on the database does not answer
	for key, status := range map[string]int{"answered": 202, "failed": 0} {
		if err := s.EndIdempotent(ctx, who, key, status, []byte("{}")); err == nil || relay.AsError(err).Code != relay.CodeStoreUnavailable {
			t.Fatal(err)
		}
	}
	if _, _, err := begin("answered"); err == nil || relay.AsError(err).Code != relay.CodeStoreUnavailable {
		t.Errorf("while the database is away: %v", err)
	}
	away = false
	if status, body, err := begin("answered"); status != 202 || body != "{}" || err != nil {
		t.Errorf("the same call: %d %q %v", status, body, err)
	}
	if status, _, err := begin("failed"); status != 0 || err != nil {
		t.Errorf("a call that failed, again: %d %v", status, err)
	}
	var at int64
	if err := s.db.Read.Get(&at, `SELECT created_at FROM idempotency WHERE key = 'other'`); err != nil {
		t.Fatal(err)
	}
	lost := &relay.Error{Code: relay.CodeStoreUnavailable}
	s.endLater(callEnd{node: s.opt.NodeID(), credential: who.Credential, key: "other", begun: at - 1}, lost)
	if _, _, err := begin("other"); err == nil || relay.AsError(err).Code != relay.CodeConflict {
		t.Errorf("beside a call that runs: %v", err)
	}
	s.endLater(callEnd{node: s.opt.NodeID(), credential: who.Credential, key: "other", begun: at}, lost)
	if s.WriteLate(ctx); len(s.late.waiting) > 0 || s.late.count[&lateEnds] != 0 {
		t.Errorf("%d ends wait still", len(s.late.waiting))
	}
	if status, _, err := begin("other"); status != 0 || err != nil {
		t.Errorf("a call whose begin was not answered, again: %d %v", status, err)
	}
}

// The number of waiting late writes of each kind is bounded. A write that the database refuses does not
// block the others.
func TestLateWritesAreBounded(t *testing.T) {
	t.Parallel()
	s := openPeople(t)
	for i := range 2 * lateRefused.most {
		s.NoteRefusedForward(1, relay.RefusedForward{Bind: fmt.Sprint(i)})
		s.NoteAllowedForward(2, fmt.Sprint(i))
	}
	if n := len(s.late.waiting); n != lateRefused.most {
		t.Errorf("%d wait", n)
	}
	s = openPeople(t)
	for i := range 5 {
		s.late.putOnce(fmt.Sprint(i), time.Hour, func(c *db.Tx) error {
			if i == 2 {
				c.Do(`INSERT INTO links (hash, account_id, kind, created_at, expires_at) VALUES (NULL, NULL, NULL, NULL, NULL)`)
			}
			c.Do(`INSERT INTO meta (name, value) VALUES (?, '')`, fmt.Sprint("late", i))
			return c.Err
		})
	}
	s.WriteLate(t.Context())
	var names []string
	if err := s.db.Read.Select(&names, `SELECT name FROM meta WHERE name LIKE 'late%' ORDER BY name`); err != nil || fmt.Sprint(names) != "[late0 late1 late3 late4]" {
		t.Errorf("written: %v, %v", names, err)
	}
	if len(s.late.waiting) > 0 {
		t.Errorf("%d wait still", len(s.late.waiting))
	}
}

// A node that was cut off gets another id. A call may begin under the former id, because the node rejoins while
// the end of an earlier call is written. The call that begins must not count as never made, because it could
// then be made twice.
func TestCallBegunWhileTheNodeRejoins(t *testing.T) {
	t.Parallel()
	ctx, who := context.Background(), relay.Actor{Credential: "tok_1"}
	s := openPeople(t)
	id := "before"
	s.opt.NodeID = func() string { return id }
	s.late.put(callEnd{credential: who.Credential, key: "k"}.late(), func(lateWrite) lateWrite {
		return lateFunc(func(*db.Tx) error {
			id = "node"
			return nil
		})
	})
	if _, _, err := s.BeginIdempotent(ctx, who, "k", "POST /a"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.BeginIdempotent(ctx, who, "k", "POST /a"); relay.AsError(err) == nil || relay.AsError(err).Code != relay.CodeConflict {
		t.Errorf("the same call begins again: %v", err)
	}
}

// A write of refused forwards fails because the database is unavailable, and more forwards are refused
// in the meantime. The next write must store old and new refusals, but no refusal that an allowed forward
// has ended.
func TestRefusedForwardWhileAWriteFails(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := openPeople(t)
	a, err := s.CreateAccount(ctx, relay.System(), "alice", false)
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(bind, code string) {
		s.NoteRefusedForward(a.ID, relay.RefusedForward{Bind: bind, Code: code})
	}
	refuse("allowed", "old")
	s.WriteLate(ctx)
	s.NoteAllowedForward(a.ID, "allowed")
	refuse("refused", "same")
	refuse("refused", "other")
	present := s.db.Away
	s.db.Away = func() error {
		refuse("allowed", "new")
		refuse("refused", "same")
		return sql.ErrConnDone
	}
	s.WriteLate(ctx)
	s.db.Away = present
	s.WriteLate(ctx)
	list, err := s.RefusedForwards(ctx, a.ID)
	got := map[string]int{}
	for _, x := range list {
		got[x.Bind+" "+x.Code] = x.Times
	}
	if want := map[string]int{"allowed new": 1, "refused same": 2, "refused other": 1}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}
