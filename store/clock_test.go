package store

import (
	"bytes"
	"cmp"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"relay"
	"relay/store/db"
)

// A clock that is set far ahead is doubted for jumpWait, and trusted at once when it is corrected.
func TestLeapsAreDoubted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l clockJumps
		offset := time.Duration(0)
		doubtful := func(want bool) {
			t.Helper()
			time.Sleep(time.Second)
			if got := l.recentJump(time.Now().Round(0).Add(offset)); got != want {
				t.Errorf("doubtful is %v", got)
			}
		}
		doubtful(false)
		doubtful(false)
		offset = time.Hour
		doubtful(true)
		doubtful(true)
		offset = 0
		doubtful(false)
		offset = -time.Hour
		doubtful(false)
		offset = time.Hour
		doubtful(true)
		time.Sleep(jumpWait)
		doubtful(false)
	})
}

// On a node whose clock differs from that of Postgres by an hour, an attempt starts after its event was
// received, and ends after its start.
func TestAttemptOfANodeWithAnotherClock(t *testing.T) {
	for _, offset := range []time.Duration{time.Hour, -time.Hour} {
		s := openMigrated(t, Options{DataDir: t.TempDir()})
		if err := s.Serve(t.Context(), func([]relay.Change) {}); err != nil {
			t.Fatal(err)
		}
		system := relay.System()
		if _, err := s.CreateAccount(t.Context(), system, "alice", false); err != nil {
			t.Fatal(err)
		}
		alias, err := s.CreateAlias(t.Context(), system, "hooks", "alice")
		if err != nil {
			t.Fatal(err)
		}
		s.db.Clock.Offset.Store(int64(offset)) // sets the offset without measuring: this test needs no Postgres
		for _, how := range []string{"in one batch", "in two batches", "from the queue"} {
			now := time.Now()
			e := &relay.Event{
				ID: s.NewID(), AliasID: alias.ID, ReceivedAt: now, State: relay.StateDelivering, Request: relay.Message{Body: relay.Body{State: relay.BodyComplete}},
				Attempts: []relay.Attempt{{N: 1, Kind: relay.KindOriginal, State: relay.StateDelivering, ReceivedAt: now, StartedAt: time.Now()}},
			}
			a := &relay.Attempt{N: 1, StartedAt: time.Now()}
			if how == "from the queue" {
				e.State, e.Attempts[0].State, e.Attempts[0].StartedAt = relay.StateQueued, relay.StateQueued, time.Time{}
			}
			accept := s.Accept(e)
			if how != "in one batch" {
				if err := wait(accept); err != nil {
					t.Fatal(err)
				}
			}
			if how == "from the queue" {
				c, err := s.Next(relay.NextClaim{Alias: alias.ID, Auto: true})
				if err != nil || c == nil {
					t.Fatal(c, err)
				}
				a = &c.Event.Attempts[0]
			}
			a.State, a.EndedAt = relay.StateDelivered, time.Now()
			if err := wait(s.Finish(e.ID, a, "")); err != nil {
				t.Fatal(err)
			}
			got, err := s.Event(t.Context(), system, e.ID, 0)
			if err != nil {
				t.Fatal(err)
			}
			a = &got.Attempts[0]
			if a.StartedAt.Before(got.ReceivedAt) || a.EndedAt.Before(a.StartedAt) || a.EndedAt.Sub(now.Add(offset)).Abs() > time.Minute {
				t.Errorf("%v, %s: received at %v, started at %v, ended at %v", offset, how, got.ReceivedAt, a.StartedAt, a.EndedAt)
			}
		}
	}
}

// A server that starts logs a warning if its clock is two days behind the newest entry of the store, or a week
// ahead of it. Doctor compares the clock with that entry too.
func TestStartWithAWrongClock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var offset time.Duration
	var log bytes.Buffer
	start := func() (said string, clock relay.Finding) {
		t.Helper()
		log.Reset()
		s := openMigrated(t, Options{
			DataDir: dir, Now: func() time.Time { return time.Now().Round(0).Add(offset) }, Retention: 24 * time.Hour,
			Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err := s.Serve(t.Context(), func([]relay.Change) {}); err != nil {
			t.Fatal(err)
		}
		if offset == 0 {
			if _, err := s.CreateAccount(t.Context(), relay.System(), "alice", false); err != nil && relay.AsError(err).Code != relay.CodeConflict {
				t.Fatal(err)
			}
		}
		for _, f := range s.Examine(t.Context()) {
			if f.Check == "clock" {
				clock = f
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return log.String(), clock
	}
	for _, c := range []struct {
		offset                 time.Duration
		said, verdict, finding string
	}{
		{0, "", relay.VerdictOK, "newest entry"},
		{-48 * time.Hour, "the clock is behind", relay.VerdictWarn, "(48h|47h5).* ahead of the clock"},
		{7 * 24 * time.Hour, "or its clock is ahead: old events are not deleted", relay.VerdictOK, "newest entry of the store is 168h"},
	} {
		offset = c.offset
		said, clock := start()
		if c.said == "" && strings.Contains(said, "clock") || !strings.Contains(said, c.said) {
			t.Errorf("by %v: the log says %s", c.offset, said)
		}
		if clock.Verdict != c.verdict || !regexp.MustCompile(c.finding).MatchString(clock.Reason) {
			t.Errorf("by %v: doctor says %+v", c.offset, clock)
		}
	}
}

// TestClockAtStartAfterWrongEntries: entries were stored while the clock was a month ahead. A later start with
// the same wrong clock doubts it if, after the clock was corrected, a server stored the right time.
func TestClockAtStartAfterWrongEntries(t *testing.T) {
	t.Parallel()
	const month = 31 * 24 * time.Hour
	began := time.Now()
	for _, c := range []struct {
		name    string
		noted   time.Duration // the right time that a server stored, minus the time of the newest entry; positive = no server stored a time
		clock   time.Duration // clock at the start, relative to the right time
		doubted bool
	}{
		{"the same wrong clock", -month, month, true},
		{"the right clock", -month, 0, false},
		{"a server that was killed an hour after its note", -time.Hour, month, false},
		{"a store without a note", 1, month, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := openMigrated(t, Options{DataDir: t.TempDir(), Now: func() time.Time { return began.Add(c.clock) }})
			ctx, newest := t.Context(), began.Add(month)
			err := s.db.Execute(ctx, "", `INSERT INTO revisions (at, origin, kind, alias_id, n, account_id, credential) VALUES (?, 'other', 'alias', 1, 0, 0, '')`, db.Micros(newest))
			if err == nil && c.noted < 0 {
				err = s.db.Execute(ctx, "", `INSERT INTO meta (name, value) VALUES ('last_seen_us', ?)`, strconv.FormatInt(db.Micros(newest.Add(c.noted)), 10))
			}
			if err = cmp.Or(err, s.judgeClock(ctx)); err != nil {
				t.Fatal(err)
			}
			if _, got := s.jumps.check(s.db.Now); got != c.doubted {
				t.Errorf("doubted is %v", got)
			}
		})
	}
}
