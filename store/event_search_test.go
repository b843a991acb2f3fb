package store

import (
	"testing"
	"time"

	"relay"
)

// Where more events fit than are searched in at once, none is passed over.
func TestSearchPassesNothingOver(t *testing.T) {
	t.Parallel()
	const n = 40
	s := figured(t, n)
	if err := s.update(t.Context(), "", func(c *change) error {
		_, err := c.exec(`UPDATE events SET target = CAST('/needle' AS BLOB)`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	who := relay.Actor{Account: 1, AccountName: "alice", Kind: relay.ActorUser, Scopes: relay.AllScopes}
	for _, search := range []int{1, 3, n - 1, n, n + 1} {
		var page relay.Page
		err := s.view(t.Context(), "", func(q session) error {
			l, err := q.newListing(who, relay.Filter{Text: "needle", Limit: 100, Budget: time.Minute})
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
