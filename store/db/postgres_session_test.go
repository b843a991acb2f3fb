package db

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"relay/store/pgtest"
)

// openTest opens a database for a test.
func openTest(t *testing.T, o Options) *DB {
	t.Helper()
	s, err := Open(t.Context(), o)
	t.Cleanup(func() { _ = s.Close() })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A session stops waiting for a lock before its caller gives up, so that waiting sessions do not pile up. A
// shorter limit that the operator has set is kept. Sessions behind a pooler keep the timeouts that they have.
func TestSessionSettings(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	for name, c := range map[string]struct {
		more, lock, statement string
		by                    dialer
	}{
		"usual":      {"", "1800ms", "4500ms", dialer{readTimeout: readTimeout}},
		"shorter":    {"&lock_timeout=100ms&statement_timeout=200", "100ms", "200ms", dialer{readTimeout: readTimeout}},
		"longer":     {"&lock_timeout=1h&statement_timeout=2d", "1800ms", "4500ms", dialer{readTimeout: readTimeout}},
		"direct":     {"", "0", "0", dialer{readTimeout: directReadTimeout}},
		"migrations": {"", "300ms", "0", dialer{readTimeout: directReadTimeout, lockTimeout: TableWait}},
		"pooled":     {"", "0", "0", dialer{readTimeout: readTimeout, shared: true}},
	} {
		db, err := openPool(t.Context(), address+c.more, 1, &c.by)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		for setting, want := range map[string]string{"lock_timeout": c.lock, "statement_timeout": c.statement} {
			var got string
			if err := db.Get(&got, `SHOW `+setting); err != nil || got != want {
				t.Errorf("%s: %s is %s, not %s; %v", name, setting, got, want, err)
			}
		}
	}
}

// Behind a pooler each transaction sets the settings that relayd needs. Afterwards the session has its own
// lock_timeout again; synchronous_commit stays on.
func TestTransactionSettings(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t) + "&synchronous_commit=off"
	s := openTest(t, Options{URL: address, DirectURL: address + "&application_name=direct", DataDir: t.TempDir()})
	s.Write.SetMaxOpenConns(1)
	read := func(q Query) (lock string) {
		if err := q.Get(&lock, `SELECT current_setting('lock_timeout') || ' ' || current_setting('synchronous_commit')`); err != nil {
			t.Error(err)
		}
		return lock
	}
	if err := s.Update(t.Context(), "", func(c *Tx) error {
		if got := read(c.Query); got != "1800ms on" {
			t.Errorf("in a transaction: %s", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.View(t.Context(), "", func(q Query) error {
		if got := read(q); got != "0 on" { // synchronous_commit stays on, which does not harm other clients
			t.Errorf("behind it: %s", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// After a statement failed because of a setting, the next statement gets a new session, because an operator
// may have reverted the setting. A refused row does not end the session.
func TestSettingThatWasTakenBack(t *testing.T) {
	t.Parallel()
	db, err := openPool(t.Context(), pgtest.URL(t), 1, &dialer{readTimeout: readTimeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	backend := func() (pid int) {
		t.Helper()
		if err := db.Get(&pid, `SELECT pg_backend_pid()`); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	first := backend()
	for statement, renews := range map[string]bool{
		`SELECT 1/0`: false, `SELECT 1 FROM nowhere`: true, `SET statement_timeout = 10; SELECT pg_sleep(1)`: true,
	} {
		if _, err := db.Exec(statement); err == nil {
			t.Errorf("%s: no error", statement)
		}
		now := backend()
		if (now != first) != renews {
			t.Errorf("%s: session %d, then %d", statement, first, now)
		}
		first = now
	}
}

// When the context of a statement ends, no cancel request is sent through a pooler: pgbouncer 1.18 may crash
// when the connection of such a request is closed early.
func TestPoolerIsSentNoCancel(t *testing.T) {
	t.Parallel()
	front := newFront(t)
	s := openTest(t, Options{URL: front.address, DirectURL: pgtest.URL(t), DataDir: t.TempDir()})
	for range 3 {
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, leave)
		_ = s.View(ctx, "", func(q Query) error {
			var none []string
			return q.All(&none, `SELECT pg_sleep(0.2)::text`)
		})
		leave()
	}
	if err := s.View(t.Context(), "", func(q Query) error {
		var one int
		return q.Get(&one, `SELECT 1`)
	}); err != nil {
		t.Error(err)
	}
	if n := front.cancels.Load(); n > 0 {
		t.Errorf("%d statements were called off", n)
	}
}

// front is a TCP proxy before Postgres that counts cancel requests.
type front struct {
	address string
	cancels atomic.Int32
}

func newFront(t *testing.T) *front {
	t.Helper()
	u, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	q := u.Query()
	socket := filepath.Join(q.Get("host"), ".s.PGSQL.5432")
	q.Del("host")
	u.Host, u.RawQuery = ln.Addr().String(), q.Encode()
	f := &front{address: u.String()}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go f.carry(c, socket)
		}
	}()
	return f
}

func (f *front) carry(near net.Conn, socket string) {
	defer near.Close()
	first := make([]byte, 8)
	if _, err := io.ReadFull(near, first); err != nil {
		return
	}
	const cancelRequest = 80877102
	if binary.BigEndian.Uint32(first[4:]) == cancelRequest {
		f.cancels.Add(1)
	}
	far, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer far.Close()
	if _, err := far.Write(first); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(far, near)
		_ = far.Close()
	}()
	_, _ = io.Copy(near, far)
}

// A statement of the journal fails if Postgres takes too long, because callers wait for it. A statement on
// the handle Slow may take longer.
func TestJournalWaitsForOneSecond(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{URL: pgtest.URL(t)})
	if _, err := s.Journal.ExecContext(t.Context(), `SELECT pg_sleep(3.5)`); err == nil {
		t.Error("the journal has waited for 3.5 s")
	}
	if _, err := s.Slow.ExecContext(t.Context(), `SELECT pg_sleep(1.8)`); err != nil {
		t.Error(err)
	}
}
