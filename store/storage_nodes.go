package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	counterPeriod  = time.Hour        // after it a node begins new counters
	counterLife    = 2 * time.Hour    // since the last update
	counterOverlap = 15 * time.Second // a row may be committed this long after its updated_at
	counterBatch   = 500              // rows in one transaction
	counterPause   = 10 * time.Second // between two reads of a node that stores nothing
)

// storageCounters tells the other nodes of a Postgres what this node added to the storage of
// each alias, and learns the same from them. A counter is cumulative, so it may be read more
// than once; it starts anew each hour under another name, so that old rows can expire while
// the node lives. What a node stored in the second before it was killed is not counted by the
// others, and one that starts may count the last second of the others twice; the next start
// counts anew. Only one goroutine at a time uses it.
type storageCounters struct {
	period  int64           // number of the counterPeriod of own
	own     map[int64]int64 // by alias
	unsent  map[int64]bool  // aliases in own that were not written yet
	foreign map[counterKey]counterRow
	newest  int64     // greatest updated_at in foreign
	readAt  time.Time // when foreign was last read
}

type counterKey struct {
	node  string
	alias int64
}

type counterRow struct {
	Node      string `db:"node"`
	Alias     int64  `db:"alias_id"`
	Bytes     int64  `db:"bytes"`
	UpdatedAt int64  `db:"updated_at"`
}

// take moves what this node has stored since the last call into its counters.
func (n *storageCounters) take(k *storageUsage, period int64) {
	if n.own == nil || period != n.period && len(n.unsent) == 0 {
		n.period, n.own, n.unsent = period, map[int64]int64{}, map[int64]bool{}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for alias, bytes := range k.changed {
		n.own[alias] += bytes
		n.unsent[alias] = true
	}
	k.changed = map[int64]int64{}
}

// merge remembers rows of other nodes, and returns what they added since the last call.
func (n *storageCounters) merge(rows []counterRow, self string) map[int64]int64 {
	if n.foreign == nil {
		n.foreign = map[counterKey]counterRow{}
	}
	added := map[int64]int64{}
	for _, r := range rows {
		n.newest = max(n.newest, r.UpdatedAt)
		if key := (counterKey{r.Node, r.Alias}); !strings.HasPrefix(r.Node, self) {
			added[r.Alias] += r.Bytes - n.foreign[key].Bytes
			n.foreign[key] = r
		}
	}
	return added
}

// forget drops rows that have expired.
func (n *storageCounters) forget() {
	old := n.newest - counterLife.Microseconds()
	maps.DeleteFunc(n.foreign, func(_ counterKey, r counterRow) bool { return r.UpdatedAt < old })
}

func (q session) storageCounters(after int64) (rows []counterRow, err error) {
	err = q.all(&rows, `SELECT node, alias_id, bytes, updated_at FROM storage_counters WHERE updated_at > ?`, after)
	return rows, err
}

// shareStorage writes the counters of this node that have changed and, if there were any or
// counterPause has passed, counts what other nodes have stored: a node that does nothing asks
// little of Postgres. SQLite has no other nodes.
func (s *Store) shareStorage(ctx context.Context) {
	if s.storage.limit <= 0 || !s.d.isPostgres {
		return
	}
	n := &s.storageCounters
	n.take(&s.storage, s.now().Unix()/int64(counterPeriod.Seconds()))
	read := len(n.unsent) > 0 || time.Since(n.readAt) > counterPause
	name := fmt.Sprintf("%s/%d", s.origin, n.period)
	for batch := range slices.Chunk(slices.Sorted(maps.Keys(n.unsent)), counterBatch) {
		err := s.update(ctx, "write storage counters", func(c *writeTx) error {
			for _, alias := range batch {
				if _, err := c.exec(`INSERT INTO storage_counters (node, alias_id, bytes, updated_at) VALUES (?, ?, ?, `+c.d.micros+`)
					ON CONFLICT (node, alias_id) DO UPDATE SET bytes = excluded.bytes, updated_at = excluded.updated_at`, name, alias, n.own[alias]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return // the next call writes them
		}
		for _, alias := range batch {
			delete(n.unsent, alias)
		}
	}
	if !read || !s.storage.isCounted() {
		return
	}
	var rows []counterRow
	err := s.view(ctx, "read storage counters", func(q session) (err error) {
		rows, err = q.storageCounters(n.newest - counterOverlap.Microseconds())
		return err
	})
	if err != nil {
		return // the next call reads them
	}
	n.readAt = time.Now()
	for alias, bytes := range n.merge(rows, s.origin) {
		s.storage.addForeign(alias, bytes)
	}
	n.forget()
}
