package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lib/pq"

	"relay"
	"relay/relaytest"
	"relay/store"
	"relay/store/pgtest"
)

// A node sends notices of its changes to other nodes, and publishes the changes that it finds in the notices of
// others. After a notice that it cannot read, it publishes a resync.
func TestNoticesBetweenNodes(t *testing.T) {
	t.Parallel()
	o := store.Options{URL: pgtest.URL(t), DataDir: t.TempDir(), Log: testLog(t), NodeName: "eu west"}
	s := mustOpen(t, o)
	if _, _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	published := make(chan relay.Change, 1024)
	if err := s.Serve(t.Context(), func(list []relay.Change) {
		for _, c := range list {
			published <- c
		}
	}); err != nil {
		t.Fatal(err)
	}
	alias, db := withAlias(t, s), database(t, o)
	until := func(what string, ok func() bool) {
		t.Helper()
		for began := time.Now(); !ok(); time.Sleep(10 * time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatalf("never happened: %s", what)
			}
		}
	}
	until("it listens", func() bool {
		for _, n := range nodesByName(t, s) {
			return n.Feed == "listening"
		}
		return false
	})
	addNode(t, o, "other", "other", time.Now())
	alive := time.NewTicker(200 * time.Millisecond)
	defer alive.Stop()
	go func() {
		for range alive.C {
			if _, err := db.Exec(`UPDATE nodes SET beat = beat + 1 WHERE id = 'other'`); err != nil {
				return
			}
		}
	}()
	until("it sees the other", s.HasOtherNodes)
	var schema string
	if err := db.QueryRow(`SELECT current_schema()`).Scan(&schema); err != nil {
		t.Fatal(err)
	}
	l := pq.NewListener(o.URL, time.Second, time.Second, nil)
	defer l.Close()
	if err := l.Listen("relay_" + schema); err != nil {
		t.Fatal(err)
	}

	e := eventAt(s, alias, time.Now(), relay.StateQueued, "x")
	settled(t, s.Accept(e))
	told := ""
	until("the event is told", func() bool {
		select {
		case n := <-l.Notify:
			told += n.Extra + "\n"
		default:
		}
		return strings.Contains(told, fmt.Sprintf("%s e%d/%s/0 q%d", s.NodeID(), alias, e.ID, alias))
	})

	tell := func(text string) {
		t.Helper()
		if _, err := db.Exec(`SELECT pg_notify($1, $2)`, "relay_"+schema, text); err != nil {
			t.Fatal(err)
		}
	}
	hears := func(want relay.Change) {
		t.Helper()
		late := time.After(time.Minute)
		for {
			select {
			case c := <-published:
				if c.Kind == want.Kind && c.Alias == want.Alias && c.Event == want.Event && c.N == want.N && c.Snapshot == nil {
					return
				}
			case <-late:
				t.Fatalf("%+v was not published", want)
			}
		}
	}
	id := s.NewID()
	tell(fmt.Sprintf("other a%d/%s/3 q%d", alias, id, alias))
	hears(relay.Change{Kind: relay.ChangeAttempt, Alias: alias, Event: id, N: 3})
	hears(relay.Change{Kind: relay.ChangeQueue, Alias: alias})
	for _, strange := range []string{"*", "e1", "x9/" + id.String() + "/1", "e1/evt_nonsense/1", "q1/" + id.String(), "e99999999999999999999/" + id.String() + "/1"} {
		tell("other " + strange)
		hears(relay.Change{Kind: relay.ChangeMissed})
	}

	if _, err := s.CreateAlias(t.Context(), relay.System(), "second", "alice"); err != nil {
		t.Fatal(err)
	}
	told = ""
	until("the revision is announced", func() bool {
		select {
		case n := <-l.Notify:
			told += n.Extra + "\n"
		default:
		}
		return strings.Contains(told, s.NodeID()+" r")
	})
	began := time.Now()
	for i := range 10 { // without notices, the poll once a second takes ten seconds for ten changes
		if _, err := db.Exec(`INSERT INTO revisions (at, origin, kind, alias_id, n, account_id, credential) VALUES (0, 'other', 'tunnel', $1, 0, 0, '')`, i); err != nil {
			t.Fatal(err)
		}
		tell("other r")
		hears(relay.Change{Kind: relay.ChangeTunnel, Alias: int64(i)})
	}
	if took := time.Since(began); took > relaytest.Limit(2500*time.Millisecond, began) {
		t.Errorf("ten revisions that were announced took %v", took)
	}

	told = ""
	var sent time.Time
	until("many changes are told in one word", func() bool {
		if time.Since(sent) > 5*time.Second { // a busy machine may split the changes over several notices
			var tickets []*relay.Ticket
			for range 400 {
				tickets = append(tickets, s.Accept(eventAt(s, alias, time.Now(), relay.StateQueued, "x")))
			}
			settled(t, tickets...)
			sent = time.Now()
		}
		select {
		case n := <-l.Notify:
			told += n.Extra + "\n"
			if len(n.Extra) >= 8000 {
				t.Errorf("a notice of %d bytes", len(n.Extra))
			}
		default:
		}
		return strings.Contains(told, s.NodeID()+" *")
	})
}
