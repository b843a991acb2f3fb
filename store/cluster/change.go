package cluster

import (
	"context"
	"sync"
	"time"

	"relay"
	"relay/store/db"
)

// outbox passes changes to the feed in the order in which they were put, in its own goroutine, so that
// a slow feed never blocks a transaction.
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

// put queues changes. The returned channel is closed when the feed has received them.
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
	for range o.wake { // put adds changes before it sends the signal, so the changes of a signal are in waiting now
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

// close passes on the remaining changes and ends the goroutine.
func (o *outbox) close() {
	o.mu.Lock()
	o.closing = true
	o.mu.Unlock()
	db.Signal(o.wake)
	<-o.ended
}

// FinishUpdate ends an update. Before the commit it stores the changes that other processes must learn. The
// caller calls the returned function committed after the commit; it publishes the changes.
func (s *Store) FinishUpdate(c *db.Tx) (committed func() <-chan struct{}, err error) {
	written, err := s.writeRevisions(c)
	return func() <-chan struct{} {
		if c.Dialect.SeveralNodes() {
			s.noteRevision(written)
		}
		s.tellNodes(c.Changes)
		if len(c.Announced) > 0 && s.HasOtherNodes() {
			s.notices.tellRevised()
		}
		return s.outbox.put(c.Changes)
	}, err
}

// writeRevisions stores the changes that other processes must learn, in the same transaction, and returns the newest
// revision. On Postgres a lock makes revisions commit in the order of their numbers; otherwise a poll could miss a
// revision that commits late.
func (s *Store) writeRevisions(c *db.Tx) (written RevisionMark, err error) {
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
				written.at, s.origin, string(n.Kind), n.Alias, event, n.N, n.Account, n.Credential).Scan(&written.ID)
		}
	}
	return written, c.Err
}

// noteRevision notes a revision that this process has committed, if it is the newest one.
func (s *Store) noteRevision(r RevisionMark) {
	for known := s.written.Load(); r.ID > 0 && (known == nil || r.ID > known.ID); known = s.written.Load() {
		if s.written.CompareAndSwap(known, &r) {
			return
		}
	}
}

const (
	revisionLock = 0x72657673
	revisionPage = 500 // revisions that one statement reads
	// RevisionLife is the longest time for which a process may be cut off from the database without missing a
	// change. Revisions are kept for as long, because they are the only sign that, for example, a key was
	// removed.
	RevisionLife = 24 * time.Hour
)

// RevisionMark names the newest revision that this process has seen. After a failover to a replica that
// lagged behind, the revision with this id is missing, or another process has written it later. This shows
// the failover to the process.
type RevisionMark struct {
	ID, at int64
	origin string
}

func (r *RevisionMark) fields() []any { return []any{&r.ID, &r.at, &r.origin} }

// PollRevisions publishes the changes that other processes made after revision last, and returns the
// newest revision seen. It logs a failure; the next call reads the same revisions again.
func (s *Store) PollRevisions(ctx context.Context, last RevisionMark) RevisionMark {
	type revision struct {
		relay.Change
		RevisionMark
		event *relay.ID // nil = none
	}
	fields := func(r *revision) []any {
		return append(r.fields(), &r.Kind, &r.Alias, &r.event, &r.N, &r.Account, &r.Credential)
	}
	written := s.written.Load()
	unread := written != nil && written.ID > last.ID // this poll has to find the newest revision that this process has written
	for {
		rows, err := db.ReadRows(ctx, s.db, "poll revisions", fields, `SELECT id, at, origin, kind, alias_id, event_id, n, account_id, credential
			FROM revisions WHERE id >= ? ORDER BY id LIMIT ?`, last.ID, revisionPage+1)
		if err != nil {
			if ctx.Err() == nil && s.db.Away() == nil {
				s.log.Warn("changes by other processes cannot be read", "err", err)
			}
			return last
		}
		more := len(rows) > revisionPage
		if last.ID > 0 {
			switch there := len(rows) > 0 && rows[0].ID == last.ID; {
			case there && rows[0].RevisionMark == last:
				rows = rows[1:]
			case there || len(rows) == 0 || !s.isOldest(ctx, rows[0].ID):
				newest, err := s.LastRevision(ctx)
				if err != nil {
					return last // the next poll will find the revision missing too
				}
				s.startOver(newest.ID)
				return newest
			} // otherwise the revision last and all before it were deleted because of their age
		}
		var foreign []relay.Change
		for _, r := range rows {
			last = r.RevisionMark
			unread = unread && last != *written
			if r.event != nil {
				r.Event = *r.event
			}
			switch {
			case r.origin == s.origin:
			case s.opt.Heard(r.Kind, r.ID, r.Credential):
			default:
				foreign = append(foreign, r.Change)
			}
		}
		s.outbox.put(foreign)
		if unread && (!more || last.ID >= written.ID) {
			unread = false
			s.startOver(last.ID)
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

// startOver publishes that anything may have changed. It is called when the database lacks a revision that this
// node has read or written, because a failover has lost it. New revisions may get lower ids than the lost one.
func (s *Store) startOver(newest int64) {
	s.log.Warn("the database has lost changes that this node has seen, as after a failover to a replica that lagged behind; this node reads everything again")
	s.written.Store(nil)
	s.opt.Lost(newest)
	s.outbox.put([]relay.Change{{Kind: relay.ChangeAlias}, {Kind: relay.ChangeAccount}, {Kind: relay.ChangeTunnel}, {Kind: relay.ChangeMissed}})
}

// LastRevision returns the newest revision; the zero value if there is none.
func (s *Store) LastRevision(ctx context.Context) (last RevisionMark, err error) {
	rows, err := db.ReadRows(ctx, s.db, "read last revision", (*RevisionMark).fields, `SELECT id, at, origin FROM revisions ORDER BY id DESC LIMIT 1`)
	if len(rows) > 0 {
		last = rows[0]
	}
	return last, err
}
