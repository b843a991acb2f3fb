package store_test

import (
	"bytes"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"relay"
	"relay/relaytest"
	"relay/store"
	"relay/store/schematest"
)

var system = relay.System()

// onEngines runs a test on each engine.
func onEngines(t *testing.T, test func(t *testing.T, o store.Options)) {
	t.Helper()
	t.Parallel()
	for name, o := range engines(t) {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, o) })
	}
}

// idAt returns an id of an event with the given arrival time.
func idAt(s *store.Store, at time.Time) relay.ID {
	id, ms := s.NewID(), at.UnixMilli()
	binary.BigEndian.PutUint32(id[0:], uint32(ms>>16))
	binary.BigEndian.PutUint16(id[4:], uint16(ms))
	return id
}

// eventAt returns an event with the given arrival time and first attempt in the given state.
func eventAt(s *store.Store, alias int64, at time.Time, state, body string) *relay.Event {
	return &relay.Event{
		ID: idAt(s, at), AliasID: alias, ReceivedAt: at, State: state, Method: "POST", Target: []byte("/"),
		Request: relay.Message{
			Head: []byte("POST / HTTP/1.1\r\nHost: hooks.localhost\r\n\r\n"), Framing: relay.FramingLength,
			Body: relay.Body{Data: []byte(body), Size: int64(len(body)), State: relay.BodyComplete},
		},
		Attempts: []relay.Attempt{{N: 1, Kind: relay.KindOriginal, State: state, ReceivedAt: at}},
	}
}

func settled(t testing.TB, tickets ...*relay.Ticket) {
	t.Helper()
	for _, ticket := range tickets {
		select {
		case <-ticket.Done():
		case <-time.After(time.Minute):
			t.Fatal("a ticket was never resolved")
		}
		if err := ticket.Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// stored stores an event and, if its state is delivering, the end of its attempt.
func stored(t testing.TB, s *store.Store, e *relay.Event) relay.ID {
	t.Helper()
	tickets := []*relay.Ticket{s.Accept(e)}
	if e.State == relay.StateDelivering {
		tickets = append(tickets, s.Finish(e.ID, answered(1, "ok"), ""))
	}
	settled(t, tickets...)
	return e.ID
}

func answered(n int, body string) *relay.Attempt {
	return &relay.Attempt{
		N: n, State: relay.StateDelivered, EndedAt: time.Now(), Status: 200, HasResponse: true, ResponseState: relay.ResponseComplete,
		Response: relay.Message{
			Head: []byte("HTTP/1.1 200 OK\r\n\r\n"),
			Body: relay.Body{Data: []byte(body), Size: int64(len(body)), State: relay.BodyComplete},
		},
	}
}

func there(t testing.TB, s *store.Store, id relay.ID) bool {
	t.Helper()
	_, err := s.Event(t.Context(), system, id, 0)
	if err != nil && !errors.Is(err, relay.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

func retain(t testing.TB, s *store.Store, now time.Time, want int) {
	t.Helper()
	if n, err := s.Retain(t.Context(), now); err != nil || n != want {
		t.Errorf("retention removed %d, want %d (%v)", n, want, err)
	}
}

// database opens the database outside the store.
func database(t testing.TB, o store.Options) *sql.DB {
	t.Helper()
	driver, dsn := "sqlite", "file:"+filepath.Join(o.DataDir, "relay.db")+"?_pragma=busy_timeout(30000)"
	if o.URL != "" {
		driver, dsn = "postgres", o.URL
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func count(t testing.TB, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRow(query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// An event is deleted at most 5 s after its retention has ended, and never earlier.
func TestRetentionIsNotLate(t *testing.T) {
	t.Parallel()
	const age = 2 * time.Second
	s := mustServe(t, store.Options{DataDir: t.TempDir(), Log: testLog(t), Retention: age})
	begun := time.Now()
	id := stored(t, s, eventAt(s, withAlias(t, s), begun, relay.StateDelivering, "short"))
	if !relaytest.Poll(90*time.Second, func() bool { return !there(t, s, id) }) {
		t.Fatal("the event is still there")
	}
	if took := time.Since(begun); took < age || took > age+relaytest.Limit(5*time.Second, begun) {
		t.Errorf("deleted after %v", took)
	}
}

// Events older than the retention of their alias are removed with all their rows; queued, delivering,
// shared and pinned events stay.
func TestRetentionByAge(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		// All events must be stored before the first of them expires, so the retention is set to a day
		// only at the end.
		o.Retention = 1000 * time.Hour
		s := mustServe(t, o)
		alias, now := withAlias(t, s), time.Now()
		old, young := now.Add(-25*time.Hour), now.Add(-20*time.Hour)
		plain := stored(t, s, eventAt(s, alias, old, relay.StateDelivering, "plain"))
		fresh := stored(t, s, eventAt(s, alias, young, relay.StateDelivering, "fresh"))
		waiting := stored(t, s, eventAt(s, alias, old, relay.StateQueued, "waiting"))
		underWay := eventAt(s, alias, old, relay.StateDelivering, "under way")
		settled(t, s.Accept(underWay))
		shared := stored(t, s, eventAt(s, alias, old, relay.StateDelivering, "shared"))
		pinned := stored(t, s, eventAt(s, alias, old, relay.StateDelivering, "pinned"))
		labelled := stored(t, s, eventAt(s, alias, old, relay.StateDelivering, "labelled"))
		mark := func(id relay.ID, m relay.Mark) {
			t.Helper()
			if err := s.MarkEvent(t.Context(), system, id, func(to *relay.Mark) { *to = m }); err != nil {
				t.Fatal(err)
			}
		}
		mark(pinned, relay.Mark{Pinned: true})
		mark(labelled, relay.Mark{Label: "only a label"})
		lapsed := stored(t, s, eventAt(s, alias, old, relay.StateDelivering, "lapsed"))
		replayed := stored(t, s, eventAt(s, alias, old, relay.StateDelivering, "replayed"))
		share, _, err := s.CreateShare(t.Context(), system, shared, relay.Share{})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.CreateShare(t.Context(), system, lapsed, relay.Share{ExpiresAt: now.Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.BeginReplay(t.Context(), system, replayed, false); err != nil {
			t.Fatal(err)
		}
		day := 24 * time.Hour
		if _, err := s.SetAlias(t.Context(), system, "hooks", func(set *relay.Settings) error { set.Retention = &day; return nil }); err != nil {
			t.Fatal(err)
		}
		later := now.Add(time.Hour + time.Second) // one second after the share of the event lapsed has expired
		eventually(t, "the loop removed what was due", func() bool { return !there(t, s, plain) })
		if _, err := s.Retain(t.Context(), later); err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			id   relay.ID
			stay bool
		}{
			"plain": {plain, false}, "fresh": {fresh, true}, "waiting": {waiting, true}, "under way": {underWay.ID, true},
			"shared": {shared, true}, "pinned": {pinned, true}, "labelled": {labelled, false}, "lapsed": {lapsed, false}, "replayed": {replayed, true},
		} {
			if there(t, s, c.id) != c.stay {
				t.Errorf("%s: there is %v", name, !c.stay)
			}
		}
		db := database(t, o)
		for _, table := range []string{"attempts", "payloads", "shares", "event_marks"} {
			if n := count(t, db, `SELECT COUNT(*) FROM `+table+` x WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.id = x.event_id)`); n > 0 {
				t.Errorf("%d rows are left in %s", n, table)
			}
		}

		settled(t, s.Finish(underWay.ID, answered(1, "late"), ""))
		if err := s.RemoveShare(t.Context(), system, shared, share.ID); err != nil {
			t.Fatal(err)
		}
		mark(pinned, relay.Mark{Note: "not pinned any more"})
		if err := s.Cancel(t.Context(), system, replayed); err != nil {
			t.Fatal(err)
		}
		eventually(t, "what is free now goes too", func() bool {
			_, err := s.Retain(t.Context(), later)
			return err == nil && !there(t, s, underWay.ID) && !there(t, s, shared) && !there(t, s, pinned) && !there(t, s, replayed)
		})
		if st := s.Retention(); st.Expired != 7 {
			t.Errorf("counted %d events", st.Expired)
		}
	})
}

// An alias' own retention takes precedence over the server's, whether it is longer or shorter. Without
// either, events stay forever.
func TestRetentionOfAlias(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		s := mustServe(t, o)
		alias, now := withAlias(t, s), time.Now()
		id := stored(t, s, eventAt(s, alias, now.Add(-time.Hour), relay.StateDelivering, "x"))
		retain(t, s, now.AddDate(9, 0, 0), 0)
		set := func(span time.Duration) {
			t.Helper()
			if _, err := s.SetAlias(t.Context(), system, "hooks", func(set *relay.Settings) error { set.Retention = &span; return nil }); err != nil {
				t.Fatal(err)
			}
		}
		set(2 * time.Hour)
		retain(t, s, now, 0)
		set(time.Minute)
		eventually(t, "the shorter retention holds", func() bool { return !there(t, s, id) })
	})
}

// Large bodies are removed in pieces, with their parts; orphaned parts are removed later.
func TestRetentionOfLargeBodies(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		o.Retention = 1000 * time.Hour
		s := mustServe(t, o)
		alias, now := withAlias(t, s), time.Now()
		part := bytes.Repeat([]byte("0123456789abcdef"), relay.BodyPart/16)
		for range 2 {
			e := eventAt(s, alias, now.Add(-time.Hour), relay.StateDelivering, "")
			for i := range 8 {
				settled(t, s.Chunk(e.ID, 0, i, part))
			}
			e.Request.Body = relay.Body{Parts: 8, Stored: 8 * relay.BodyPart, Size: 8 * relay.BodyPart, State: relay.BodyComplete}
			id := stored(t, s, e)
			for n := 2; n < 20; n++ { // these responses are stored in rows and have too many bytes for one transaction
				if _, err := s.BeginReplay(t.Context(), system, id, true); err != nil {
					t.Fatal(err)
				}
				settled(t, s.Finish(id, answered(n, string(part[:200<<10])), ""))
			}
		}
		retain(t, s, now.Add(2000*time.Hour), 2)
		db := database(t, o)
		for _, table := range []string{"events", "attempts", "payloads", "body_chunks"} {
			if n := count(t, db, `SELECT COUNT(*) FROM `+table); n > 0 {
				t.Errorf("%d rows are left in %s", n, table)
			}
		}
		t.Logf("longest hold of the writer: %v", s.Retention().LongestHold)

		young, old := idAt(s, now.Add(-23*time.Hour)), idAt(s, now.Add(-25*time.Hour))
		if err := s.Close(); err != nil { // the sweep of the server could otherwise remove the parts below
			t.Fatal(err)
		}
		for _, left := range []struct {
			id relay.ID
			i  int
		}{{young, 0}, {old, 0}, {old, 1}} {
			id := fmt.Sprintf("'%x'", left.id[:])
			if o.URL == "" {
				id = "x" + id
			}
			if _, err := db.Exec(fmt.Sprintf(`INSERT INTO body_chunks (event_id, n, i, data) VALUES (%s, 0, %d, $1)`, id, left.i), part); err != nil {
				t.Fatal(err)
			}
		}
		beside := besides(t, o)
		sweep := func(want int) {
			t.Helper()
			if n, err := beside.SweepOrphans(t.Context(), now); err != nil || n != want {
				t.Errorf("swept %d, want %d (%v)", n, want, err)
			}
		}
		sweep(1)
		sweep(0)
		if n := count(t, db, `SELECT COUNT(*) FROM body_chunks`); n != 1 {
			t.Errorf("%d parts are left, want the young one", n)
		}
	})
}

const dropAgain = time.Minute // wait before a partition that was in use is tried again, as in package retention

// servedWithDays serves a store on Postgres that has the partitions of all days. If a start on a busy
// machine times out before it has made them, the test continues with another database, because the
// store tries again only a minute later.
func servedWithDays(t *testing.T, o store.Options) (s *store.Store, db *sql.DB) {
	t.Helper()
	for range 5 {
		o.URL, o.DataDir = schematest.URL(t), t.TempDir()
		s, db = mustServe(t, o), database(t, o)
		if count(t, db, `SELECT count(*) FROM pg_inherits WHERE inhparent = to_regclass('events')`) >= 6 {
			break
		}
	}
	return s, db
}

// A whole day is removed by dropping its partition, unless an event in it must stay.
func TestRetentionDropsDays(t *testing.T) {
	t.Parallel()
	s, db := servedWithDays(t, store.Options{Retention: 24 * time.Hour})
	alias, now := withAlias(t, s), time.Now()
	var list []relay.ID
	for range 20 {
		list = append(list, stored(t, s, eventAt(s, alias, now, relay.StateDelivering, "x")))
	}
	if _, _, err := s.CreateShare(t.Context(), system, list[0], relay.Share{}); err != nil {
		t.Fatal(err)
	}
	day := func() int {
		return count(t, db, fmt.Sprintf(`SELECT COUNT(*) FROM pg_class WHERE oid = to_regclass('events_%s')`, now.UTC().Format("20060102")))
	}
	retain(t, s, now.Add(72*time.Hour), 19)
	if day() != 1 || !there(t, s, list[0]) {
		t.Error("a day with a shared event was dropped")
	}
	more := stored(t, s, eventAt(s, alias, now, relay.StateDelivering, "x"))
	if shares, err := s.Shares(t.Context(), system, list[0]); err != nil {
		t.Fatal(err)
	} else if err := s.RemoveShare(t.Context(), system, list[0], shares[0].ID); err != nil {
		t.Fatal(err)
	}
	gone, at := 0, now.Add(74*time.Hour)
	eventually(t, "the day is dropped", func() bool {
		at = at.Add(2 * dropAgain) // later than the next try to drop a partition that was in use
		n, err := s.Retain(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		gone += n
		return day() == 0
	})
	if gone != 2 || there(t, s, more) {
		t.Errorf("%d events went with the day", gone)
	}
	if st := s.Retention(); st.DroppedDays < 1 || st.Expired != 21 {
		t.Errorf("counted %+v", st)
	}
	if again := stored(t, s, eventAt(s, alias, now, relay.StateDelivering, "x")); !there(t, s, again) {
		t.Error("nothing can be stored after a drop")
	}
}

// A day that cannot be dropped does not prevent the removal of other events.
func TestRetentionGoesOnBesideADayThatStays(t *testing.T) {
	t.Parallel()
	s, db := servedWithDays(t, store.Options{Retention: 24 * time.Hour})
	alias, now := withAlias(t, s), time.Now()
	old := stored(t, s, eventAt(s, alias, now, relay.StateDelivering, "x"))
	if _, err := db.Exec(fmt.Sprintf(`DROP TABLE payloads_%s`, now.UTC().AddDate(0, 0, -1).Format("20060102"))); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Retain(t.Context(), now.Add(72*time.Hour)); err == nil || n != 1 {
		t.Errorf("removed %d, %v", n, err)
	}
	if there(t, s, old) {
		t.Error("an old event stays beside a day that cannot be dropped")
	}
}
