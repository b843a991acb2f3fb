package store

import (
	"context"
	"sync"
	"time"

	"relay"
	"relay/store/db"
)

// outbox passes changes to the feed in the order in which they were put, in a goroutine of
// its own, so that a slow feed never blocks a transaction.
type outbox struct {
	mu      sync.Mutex
	waiting []outboxItem
	publish func([]relay.Change) // nil until Serve
	wake    chan struct{}
	ended   chan struct{}
	closing bool
}

type outboxItem struct {
	changes []relay.Change
	done    chan struct{}
}

func (o *outbox) start() {
	o.wake, o.ended = make(chan struct{}, 1), make(chan struct{})
	go o.run()
}

// put queues changes. The returned channel is closed when the feed has got them.
func (o *outbox) put(changes []relay.Change) <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.publish == nil || o.closing || len(changes) == 0 {
		return db.Published
	}
	done := make(chan struct{})
	o.waiting = append(o.waiting, outboxItem{changes, done})
	db.Signal(o.wake)
	return done
}

func (o *outbox) serve(publish func([]relay.Change)) {
	o.mu.Lock()
	o.publish = publish
	o.mu.Unlock()
}

func (o *outbox) run() {
	defer close(o.ended)
	for range o.wake { // a signal comes after what it is for was added
		o.mu.Lock()
		batch, publish, closing := o.waiting, o.publish, o.closing
		o.waiting = nil
		o.mu.Unlock()
		var all []relay.Change
		for _, b := range batch {
			all = append(all, b.changes...)
		}
		if len(all) > 0 {
			publish(all)
		}
		for _, b := range batch {
			close(b.done)
		}
		if closing {
			return
		}
	}
}

// close passes on what still waits and ends the goroutine.
func (o *outbox) close() {
	o.mu.Lock()
	o.closing = true
	o.mu.Unlock()
	db.Signal(o.wake)
	<-o.ended
}

// finishUpdate ends an update: it stores what other processes have to learn of, in the same transaction.
// After the commit committed publishes the changes.
func (s *Store) finishUpdate(c *db.Tx) (committed func() <-chan struct{}, err error) {
	s.tellFreed(c)
	written, err := s.writeRevisions(c)
	return func() <-chan struct{} {
		for alias, bytes := range c.Freed {
			s.storage.change(alias, -bytes, 0)
		}
		if c.Dialect.SeveralNodes() {
			s.noteRevision(written)
		}
		s.tellNodes(c.Changes)
		if len(c.Announced) > 0 && c.Dialect.SeveralNodes() && s.HasOtherNodes() {
			s.notices.tellRevised()
		}
		return s.outbox.put(c.Changes)
	}, err
}

// writeRevisions stores the changes that other processes have to learn of, in the same
// transaction, and returns the newest revision. On Postgres a lock makes revisions commit in the order of their numbers:
// otherwise a poll could miss a revision that commits late.
func (s *Store) writeRevisions(c *db.Tx) (written revisionMark, err error) {
	if len(c.Announced) == 0 {
		return written, nil
	}
	c.LockKey(revisionLock)
	for _, n := range c.Announced {
		var event any
		if !n.Event.IsZero() {
			event = n.Event
		}
		if c.Err == nil {
			written.at, written.origin = db.Micros(s.db.Now()), s.origin
			c.Err = c.Row(`INSERT INTO revisions (at, origin, kind, alias_id, event_id, n, account_id, credential) VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING id`,
				written.at, s.origin, string(n.Kind), n.Alias, event, n.N, n.Account, n.Credential).Scan(&written.id)
		}
	}
	return written, c.Err
}

// noteRevision notes a revision that this process has committed, if it is the newest one.
func (s *Store) noteRevision(r revisionMark) {
	for known := s.written.Load(); r.id > 0 && (known == nil || r.id > known.id); known = s.written.Load() {
		if s.written.CompareAndSwap(known, &r) {
			return
		}
	}
}

const (
	revisionLock = 0x72657673
	revisionPage = 500 // revisions that one statement reads
	// revisionLife is how long a process may be cut off from the database without missing a
	// change: nothing else tells it that a key was removed.
	revisionLife = 24 * time.Hour
)

// revisionMark names the newest revision that this process has seen. After a failover to a
// replica that lagged behind, none has its id, or another one that was written later.
type revisionMark struct {
	id, at int64
	origin string
}

func (r *revisionMark) fields() []any { return []any{&r.id, &r.at, &r.origin} }

// pollRevisions publishes what other processes changed after revision last, and returns the
// newest revision seen. A failure is logged, and the next call reads the same again.
func (s *Store) pollRevisions(ctx context.Context, last revisionMark) revisionMark {
	type revision struct {
		relay.Change
		revisionMark
		event *relay.ID // nil = none
	}
	fields := func(r *revision) []any {
		return append(r.fields(), &r.Kind, &r.Alias, &r.event, &r.N, &r.Account, &r.Credential)
	}
	written := s.written.Load()
	unread := written != nil && written.id > last.id // before the read, which has to find it
	for {
		rows, err := db.ReadRows(ctx, s.db, "poll revisions", fields, `SELECT id, at, origin, kind, alias_id, event_id, n, account_id, credential
			FROM revisions WHERE id >= ? ORDER BY id LIMIT ?`, last.id, revisionPage+1)
		if err != nil {
			if ctx.Err() == nil && !s.spool.Down.Load() {
				s.log.Warn("changes by other processes cannot be read", "err", err)
			}
			return last
		}
		more := len(rows) > revisionPage
		if last.id > 0 {
			switch there := len(rows) > 0 && rows[0].id == last.id; {
			case there && rows[0].revisionMark == last:
				rows = rows[1:]
			case there || len(rows) == 0 || !s.isOldest(ctx, rows[0].id):
				newest, err := s.lastRevision(ctx)
				if err != nil {
					return last // the next poll finds it missing too
				}
				s.startOver(newest.id)
				return newest
			} // else it was deleted because of its age, with all before it
		}
		var foreign []relay.Change
		for _, r := range rows {
			last = r.revisionMark
			unread = unread && last != *written
			if r.event != nil {
				r.Event = *r.event
			}
			switch {
			case r.origin == s.origin:
			case r.Kind == changeStorage:
				s.storage.hear(r.id, r.Credential)
			default:
				foreign = append(foreign, r.Change)
			}
		}
		s.outbox.put(foreign)
		if unread && (!more || last.id >= written.id) {
			unread = false
			s.startOver(last.id)
		}
		if !more {
			return last
		}
	}
}

// isOldest reports whether the database has no revision with a lower id.
func (s *Store) isOldest(ctx context.Context, id int64) bool {
	before, err := db.ReadRows(ctx, s.db, "look for older revisions", func(r *int64) []any { return []any{r} }, `SELECT id FROM revisions WHERE id < ? LIMIT 1`, id)
	return err == nil && len(before) == 0
}

// startOver publishes that anything may have changed. The database does not have a revision any
// more that this node has read or written: a failover has lost it, and later ones may have lower
// ids.
func (s *Store) startOver(newest int64) {
	s.log.Warn("the database has lost changes that this node has seen, as after a failover to a replica that lagged behind; this node reads everything again")
	s.written.Store(nil)
	s.storage.hearFrom(newest)
	s.outbox.put([]relay.Change{{Kind: relay.ChangeAlias}, {Kind: relay.ChangeAccount}, {Kind: relay.ChangeTunnel}, {Kind: relay.ChangeMissed}})
}

// lastRevision returns the newest revision; the zero value if there is none.
func (s *Store) lastRevision(ctx context.Context) (last revisionMark, err error) {
	rows, err := db.ReadRows(ctx, s.db, "read last revision", (*revisionMark).fields, `SELECT id, at, origin FROM revisions ORDER BY id DESC LIMIT 1`)
	if len(rows) > 0 {
		last = rows[0]
	}
	return last, err
}
