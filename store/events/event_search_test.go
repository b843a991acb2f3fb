package events

import (
	"errors"
	"testing"
	"time"

	"relay"
	"relay/store/db"
)

// If more events match than one query of a search reads, the search finds all of them.
func TestSearchPassesNothingOver(t *testing.T) {
	t.Parallel()
	const n = 40
	s := openEvents(t, n)
	if err := s.db.Update(t.Context(), "", func(c *db.Tx) error {
		_, err := c.Exec(`UPDATE events SET target = CAST('/needle' AS BLOB)`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	who := relay.Actor{Account: 1, AccountName: "alice", Kind: relay.ActorUser, Scopes: relay.AllScopes}
	for _, search := range []int{1, 3, n - 1, n, n + 1} {
		var page relay.Page
		err := s.db.View(t.Context(), "", func(q db.Query) error {
			l, err := newListing(q, who, relay.Filter{Texts: []relay.TextFilter{{Text: "needle"}}, Limit: 100, Budget: time.Minute})
			if err != nil {
				return err
			}
			l.search = search
			page, err = l.run()
			return err
		})
		if err != nil || len(page.Events) != n {
			t.Errorf("%d at once: %d of %d are found, %v", search, len(page.Events), n, err)
		}
	}
}

// A text that occurs only in responses is found in each of them, however few events one query of the search
// reads.
func TestSearchInResponses(t *testing.T) {
	t.Parallel()
	const n = 5
	s := openEvents(t, n)
	if err := s.db.Update(t.Context(), "", func(c *db.Tx) error {
		_, err := c.Exec(`INSERT INTO payloads (` + PayloadColumns + `)
			SELECT id, 1, CAST('needle' AS BLOB), NULL, 0, 0, NULL, 0, 0, 0, NULL, '', NULL, NULL FROM events`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	who := relay.Actor{Account: 1, AccountName: "alice", Kind: relay.ActorUser, Scopes: relay.AllScopes}
	for _, search := range []int{1, 2, n} {
		page, err := db.Read(t.Context(), s.db, "", func(q db.Query) (relay.Page, error) {
			l, err := newListing(q, who, relay.Filter{Texts: []relay.TextFilter{{Text: "needle"}}, Limit: 100, Budget: time.Minute})
			if err != nil {
				return relay.Page{}, err
			}
			l.search = search
			return l.run()
		})
		if err != nil || len(page.Events) != n {
			t.Errorf("%d at once: %d of %d are found, %v", search, len(page.Events), n, err)
		}
	}
}

// Even if the time budget is used up, each page of a list still searches one event. The search of one event ends
// with errSearchTime when its own time is used up.
func TestSearchInLargeBodies(t *testing.T) {
	t.Parallel()
	s := openEvents(t, 3)
	var page relay.Page
	err := s.db.Update(t.Context(), "", func(c *db.Tx) error {
		for _, n := range []int{0, 1} {
			if _, err := c.Exec(`INSERT INTO payloads (`+PayloadColumns+`) SELECT id, ?, NULL, NULL, 0, 0, NULL, 2, 10, 10, NULL, '', NULL, NULL FROM events`, n); err != nil {
				return err
			}
			for i, part := range []string{"no nee", "dle?"} {
				if _, err := c.Exec(`INSERT INTO body_chunks (event_id, n, i, data) SELECT id, ?, ?, CAST(? AS BLOB) FROM events`, n, i, part[n:]); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	who := relay.Actor{Account: 1, AccountName: "alice", Kind: relay.ActorUser, Scopes: relay.AllScopes}
	f := relay.Filter{Texts: []relay.TextFilter{{Text: "needle"}}, Budget: time.Nanosecond}
	for found := 0; found < 3; found++ {
		if page, err = s.Events(t.Context(), who, f); err != nil || len(page.Events) != 1 || page.Next == "" {
			t.Fatalf("page %d: %+v, %v", found, page, err)
		}
		f.Cursor = page.Next
	}
	err = s.db.View(t.Context(), "", func(q db.Query) error {
		l, err := newListing(q, who, f)
		if err != nil {
			return err
		}
		e := &page.Events[0]
		byEvent, n, err := l.contents([]relay.Event{{ID: e.ID}})
		if err != nil || n != 1 {
			t.Fatalf("%d events, %v", n, err)
		}
		if fits, err := l.matches(e, byEvent[e.ID], time.Now().Add(-time.Second)); fits || !errors.Is(err, errSearchTime) {
			t.Errorf("out of time: %v, %v", fits, err)
		}
		if fits, err := l.matches(e, byEvent[e.ID], time.Now().Add(time.Minute)); !fits || err != nil {
			t.Errorf("in time: %v, %v", fits, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A text in one response of thousands is found: a search reads the responses in slices.
func TestSearchInManyAttempts(t *testing.T) {
	t.Parallel()
	const n, attempts = 3, 3 * searchRows
	s := openEvents(t, n)
	if err := s.db.Update(t.Context(), "", func(c *db.Tx) error {
		_, err := c.Exec(`WITH RECURSIVE k (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM k WHERE n < ?)
			INSERT INTO payloads (`+PayloadColumns+`) SELECT (SELECT id FROM events ORDER BY id LIMIT 1 OFFSET 1), n, CAST('head' AS BLOB), NULL, 0, 0,
			CASE n WHEN ? THEN CAST('the needle' AS BLOB) ELSE zeroblob(2000) END, 0, 10, 10, NULL, '', NULL, NULL FROM k`, attempts, attempts-5)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	who := relay.Actor{Account: 1, AccountName: "alice", Kind: relay.ActorUser, Scopes: relay.AllScopes}
	for text, want := range map[string]int{"needle": 1, "absent": 0} {
		page, err := s.Events(t.Context(), who, relay.Filter{Texts: []relay.TextFilter{{Text: text}}, Limit: 100, Budget: time.Minute})
		if err != nil || len(page.Events) != want || page.Next != "" {
			t.Errorf("%s: %d events, next %q, %v", text, len(page.Events), page.Next, err)
		}
	}
	// If there is no time for the event, the list skips it and the page ends soon.
	page, err := s.Events(t.Context(), who, relay.Filter{Texts: []relay.TextFilter{{Text: "absent"}}, Limit: 100, Budget: time.Nanosecond})
	if err != nil || page.Next == "" {
		t.Errorf("without time: next %q, %v", page.Next, err)
	}
}
