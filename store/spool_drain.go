package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"relay"
)

const (
	drainSteps = 1024
	drainBytes = 4 << 20
	drainPause = 100 * time.Millisecond // before the database is asked again
	closeDrain = 5 * time.Second        // of a stop, for what the spool holds
	closeStuck = time.Second            // of that, while the database takes nothing

	lamentEvery = 10 * time.Second
)

// penman writes steps: over which handle, and in whose name.
type penman struct {
	db *sqlx.DB
	owner
	// late is set for steps that waited in the spool: some of them, or all, may be
	// in the database already, the attempts of a live request may have been swept.
	late bool
	// tell other processes, because this one is not the one that serves.
	announce bool
}

// errLockUnsure keeps steps from a database whose serve lock this process may have
// lost; they wait in the spool until it has it again.
var errLockUnsure = fmt.Errorf("the serve lock has to be taken again: %w", sql.ErrConnDone)

// errDeserted answers at once while the database is known to be away.
var errDeserted = fmt.Errorf("postgres does not answer: %w", sql.ErrConnDone)

var errCatchingUp = &relay.Error{
	Code: relay.CodeStoreUnavailable, RetryAfter: 2 * time.Second,
	Detail: "the relay's storage is away or catching up with what came meanwhile; try again in a moment",
}

// reachable fails while it is known that the database does not answer.
func (s *Store) reachable() error {
	if s.spool.deserted() {
		return errDeserted
	}
	return nil
}

// caughtUp fails while steps wait in the spool: what is claimed now could be older
// than they are, or be changed by one of them that is written twice.
func (s *Store) caughtUp() error {
	if s.spool.active() {
		return errCatchingUp
	}
	return nil
}

// finishLate is finishAttempts for steps of the spool: another server may have
// taken over meanwhile and swept an attempt whose caller already had the answer.
// One that was taken from the queue stays interrupted: it was queued again.
var finishLate = statement{
	casts: finishAttempts.casts, tail: finishAttempts.tail,
	text: strings.Replace(finishAttempts.text, `AND (state = 1 OR`,
		`AND (state = 1 OR state = 4 AND error_code = '`+interruptedFault.Code+`' AND from_queue = 0 OR`, 1),
}

// giveBackLate is giveBack in the same way, while nobody has asked for another attempt:
// a caller was told that the event is queued.
var giveBackLate = strings.Replace(strings.Replace(giveBack, `claim_boot = 0`,
	`claim_boot = 0, ended_at = 0, error_code = '', error_message = ''`, 1), `AND state = 1`,
	`AND (state = 1 OR state = 4 AND error_code = '`+interruptedFault.Code+`' AND from_queue = 0
		AND NOT EXISTS (SELECT 1 FROM events e WHERE e.id = attempts.event_id AND e.attempts > attempts.n))`, 1)

var insertEventsLate = statement{width: insertEvents.width, text: insertEvents.text + ` RETURNING id`}

// insertEvents stores rows of events and gives those that were there before: steps
// that come late may be in the database already, by a commit whose answer was lost.
func (w *writer) insertEvents(rows [][]any) (there map[relay.ID]bool, err error) {
	if !w.by.late || len(rows) == 0 {
		return nil, w.run(&insertEvents, rows)
	}
	var stored []relay.ID
	if err := w.tx.SelectContext(w.ctx, &stored, insertEventsLate.many(len(rows)), flat(rows)...); err != nil {
		return nil, err
	}
	there = make(map[relay.ID]bool)
	for _, row := range rows {
		there[row[0].(relay.ID)] = true
	}
	for _, id := range stored {
		delete(there, id)
	}
	return there, nil
}

// drainLoop writes the spool to the database whenever something is in it.
func (s *Store) drainLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.spool.wake:
		}
		if s.spool.active() {
			_ = s.drain(ctx, s.spool, s.mayDrain) // ctx ended: the rest waits for the next start
		}
	}
}

// mayDrain tells whether this process may write: it holds the serve lock, or
// another server took over, which the claims of what is in the spool allow for.
func (s *Store) mayDrain(ctx context.Context) bool {
	return s.holdLock(ctx) || s.fenced.Load()
}

// drain writes what is in the spool to the database, in order, until it is empty or
// ctx ends. may is asked before the first step and again after each failure.
func (s *Store) drain(ctx context.Context, p *spool, may func(context.Context) bool) error {
	d := drainer{s: s, p: p, limit: drainSteps, aliases: map[int64]bool{}, foreign: map[relay.ID]bool{}}
	allowed := false
	for ctx.Err() == nil {
		if !allowed {
			allowed = may(ctx)
			p.away.Store(!allowed)
		}
		done, err := false, error(nil)
		if allowed {
			done, err = d.round(ctx)
		}
		switch {
		case done:
			d.tell()
			d.tidyMarks(ctx)
			return nil
		case !allowed, err != nil:
			allowed = false
			select {
			case <-ctx.Done():
			case <-time.After(drainPause):
			}
		}
	}
	return ctx.Err()
}

// drainer is one run of drain.
type drainer struct {
	s       *Store
	p       *spool
	limit   int               // steps of a portion
	aliases map[int64]bool    // whose queues changed
	foreign map[relay.ID]bool // events that were left out, see known

	lamented time.Time
}

// portion is what is written together, of one file.
type portion struct {
	steps []*step
	from  *segment
	to    int64 // where they end
}

// round writes one portion. One that fails is tried again with fewer steps: it may be
// too much for a slow database. A step for which the database refuses it is found that
// way, and kept aside.
func (d *drainer) round(ctx context.Context) (done bool, err error) {
	steps, from, to, err := d.p.peek(d.limit, drainBytes)
	if err != nil {
		d.lament("the spool cannot be read; what is in it waits", err)
		return false, err
	}
	if len(steps) == 0 {
		if err := d.s.warm(ctx); err != nil {
			return false, err
		}
		return d.p.finish(), nil
	}
	strange, err := d.write(ctx, portion{steps, from, to})
	switch {
	case err == nil:
		d.limit = min(drainSteps, 2*d.limit)
	case len(steps) > 1:
		d.limit = len(steps) / 2
		if poison(err) {
			return false, nil
		}
		return false, d.told(err)
	case !poison(err):
		return false, d.told(err)
	default:
		d.p.log.Error("a step of the spool cannot be stored; it stays in the data dir", "event", steps[0].id.String(), "err", err)
		strange = steps
	}
	if len(strange) > 0 {
		if err := d.p.setAside(strange); err != nil {
			d.lament("what cannot be stored of the spool cannot be kept aside either", err)
			return false, err
		}
	}
	d.p.advance(from, to)
	return false, nil
}

// poison tells whether the database refuses a step for what is in it. Whatever else it
// says, as that somebody may not log in any more or that a table is not there, passes
// when somebody has seen to it: the steps wait.
func poison(err error) bool { return unavailable(err) == "" }

// told logs an error that the server gave, so that somebody can see to it, and gives it
// back.
func (d *drainer) told(err error) error {
	var e *pq.Error
	if errors.As(err, &e) {
		d.lament("postgres does not take what waits in the spool; it is tried again until it does", err)
	}
	return err
}

// lament logs now and then why the spool stays as it is.
func (d *drainer) lament(what string, err error) {
	if !d.lamented.IsZero() && time.Since(d.lamented) < lamentEvery {
		return
	}
	d.lamented = time.Now()
	d.p.log.Error(what, "dir", d.p.dir, "err", err)
}

// write makes a portion durable, over two connections as the committers do: steps of
// different events do not depend on each other. When one half fails all of it is
// written again, which leaves the other one as it is. It gives what is to be kept
// aside.
func (d *drainer) write(ctx context.Context, some portion) (strange []*step, err error) {
	began := time.Now()
	try, cancel := context.WithTimeout(context.WithoutCancel(ctx), tryLimit)
	defer cancel()
	steps, strange, err := d.known(try, some)
	if err != nil {
		return nil, err
	}
	lanes := make([]lane, drainLanes)
	for i := range lanes {
		lanes[i].mark, lanes[i].to = some.from.mark(i), some.to
	}
	for _, st := range steps {
		l := &lanes[int(st.id[15])%drainLanes]
		if st.kind == stepChunk {
			l.chunks = append(l.chunks, st)
		} else {
			l.rows = append(l.rows, st)
		}
	}
	pen := &penman{db: d.s.write, owner: some.from.by, late: true, announce: d.s.fenced.Load() || d.s.standby.Load()}
	var busy sync.WaitGroup
	for i := range lanes {
		busy.Go(func() { lanes[i].write(try, d.s, pen) })
	}
	busy.Wait()
	for i := range lanes {
		if err := lanes[i].err; err != nil {
			return nil, err
		}
	}
	for i := range lanes {
		d.s.out.put(d.hold(lanes[i].changes))
		d.complain(lanes[i].rows)
	}
	d.s.wrote(len(steps), time.Since(began))
	return strange, nil
}

// complain logs steps that changed nothing although they should have.
func (d *drainer) complain(rows []*step) {
	for _, st := range rows {
		if st.err != nil && !errors.Is(st.err, relay.ErrFenced) {
			d.s.log.Warn("a step of the spool had no effect", "event", st.id.String(), "kind", st.kind, "err", st.err)
		}
	}
}

// hold keeps back that queues changed: a count would miss what is still in the
// spool.
func (d *drainer) hold(changes []relay.Change) []relay.Change {
	return slices.DeleteFunc(changes, func(c relay.Change) bool {
		if c.Kind == relay.ChangeQueue {
			d.aliases[c.Alias] = true
		}
		return c.Kind == relay.ChangeQueue
	})
}

// tell has the queues counted now that the spool is empty.
func (d *drainer) tell() {
	var changes []relay.Change
	for id := range d.aliases {
		changes = append(changes, relay.Change{Kind: relay.ChangeQueue, Alias: id})
	}
	d.s.out.put(changes)
}

// keepPace holds a committer that has put bytes into the spool back, while the
// database is taking what is there, until that has taken a multiple, for
// keepPaceLimit at most: or callers that are quicker than the database would keep
// the spool from ever getting empty.
func (p *spool) keepPace(bytes int64) {
	late := time.NewTimer(keepPaceLimit)
	defer late.Stop()
	p.mu.Lock()
	goal := p.drained + keepPaceRatio*bytes
	for p.filling.Load() && !p.away.Load() && p.full == nil && p.drained < goal {
		if p.moved == nil {
			p.moved = make(chan struct{})
		}
		moved := p.moved
		p.mu.Unlock()
		select {
		case <-moved:
		case <-late.C:
			return
		}
		p.mu.Lock()
	}
	p.mu.Unlock()
}
