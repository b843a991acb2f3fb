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
	drainPause = 100 * time.Millisecond // before the database is tried again
	closeDrain = 5 * time.Second        // for draining the spool at a stop
	closeStuck = time.Second            // of that, without progress

	drainLogInterval = 10 * time.Second
)

// writeTarget says over which handle, and in whose name, steps are written.
type writeTarget struct {
	db           *sqlx.DB
	node, former string // ids of the node; former is that before its last rejoin, or the same
	// replaying is set for steps from the spool. Some of them may be in the database
	// already, and another server may have swept their attempts.
	replaying bool
	// notifyPeers announces the changes to other processes, because another one serves.
	notifyPeers bool
}

// errLockUncertain refuses a commit while this process may have lost the serve lock. The
// steps go to the spool until it holds the lock again.
var errLockUncertain = fmt.Errorf("the serve lock has to be taken again: %w", sql.ErrConnDone)

// errDatabaseDown fails operations at once while the database is known not to answer.
var errDatabaseDown = fmt.Errorf("postgres does not answer: %w", sql.ErrConnDone)

var errCatchingUp = &relay.Error{
	Code: relay.CodeStoreUnavailable, RetryAfter: 2 * time.Second,
	Detail: "the relay's storage is away or catching up with what came meanwhile; try again in a moment",
}

// reachable returns an error while the database is known not to answer.
func (s *Store) reachable() error {
	if s.spool.databaseDown() {
		return errDatabaseDown
	}
	return nil
}

// caughtUp returns an error while steps wait in the spool. A claim made now could overtake
// one of them, or be changed by one that is written twice.
func (s *Store) caughtUp() error {
	if s.spool.active() {
		return errCatchingUp
	}
	return nil
}

// finishReplayed is finishAttempts for steps from the spool. Another server may have taken
// over and swept an attempt whose caller already had the answer. An attempt from the queue
// stays interrupted, because it was queued again.
var finishReplayed = statement{
	casts: finishAttempts.casts, tail: finishAttempts.tail,
	text: strings.Replace(finishAttempts.text, `AND (state = 1 OR`,
		`AND (state = 1 OR state = 4 AND error_code = '`+interruptedFault.Code+`' AND from_queue = 0 OR`, 1),
}

// requeueReplayedSQL is requeueAttemptSQL for steps from the spool, unless another attempt
// was made since: the caller was told that the event is queued.
var requeueReplayedSQL = strings.Replace(strings.Replace(requeueAttemptSQL, `claim_node = ''`,
	`claim_node = '', ended_at = 0, error_code = '', error_message = ''`, 1), `AND state = 1`,
	`AND (state = 1 OR state = 4 AND error_code = '`+interruptedFault.Code+`' AND from_queue = 0
		AND NOT EXISTS (SELECT 1 FROM events e WHERE e.id = attempts.event_id AND e.attempts > attempts.n))`, 1)

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

// mayDrain reports whether this process may write its spool: it holds the serve lock, or
// another server took over; the claims of the steps then decide what they may change.
func (s *Store) mayDrain(ctx context.Context) bool {
	return s.holdLock(ctx) || s.fenced.Load()
}

// drain writes the spool to the database, in order, until it is empty or ctx ends. It calls
// may before the first step and after each failure.
func (s *Store) drain(ctx context.Context, p *spool, may func(context.Context) bool) error {
	d := drainer{s: s, p: p, limit: drainSteps, aliases: map[int64]bool{}, foreignEvents: map[relay.ID]bool{}}
	allowed := false
	for ctx.Err() == nil {
		if !allowed {
			allowed = may(ctx)
			p.down.Store(!allowed)
		}
		done, err := false, error(nil)
		if allowed {
			done, err = d.round(ctx)
		}
		switch {
		case done:
			d.publishQueues()
			d.removeOffsets(ctx)
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
	s             *Store
	p             *spool
	limit         int               // steps of one batch
	aliases       map[int64]bool    // aliases whose queues changed
	foreignEvents map[relay.ID]bool // events of other databases, see splitForeign

	loggedAt time.Time
}

// drainBatch is steps of one file that are written together.
type drainBatch struct {
	steps []*step
	from  *segment
	to    int64 // where they end
}

// round writes one batch. A batch that fails is tried again with fewer steps, because it may
// be too large for a slow database. That also isolates a step that the database refuses,
// which is quarantined.
func (d *drainer) round(ctx context.Context) (done bool, err error) {
	steps, from, to, err := d.p.peek(d.limit, drainBytes)
	if err != nil {
		d.logThrottled("the spool cannot be read; what is in it waits", err)
		return false, err
	}
	if len(steps) == 0 {
		if err := d.s.reconnect(ctx); err != nil {
			return false, err
		}
		return d.p.markEmpty(), nil
	}
	strange, err := d.write(ctx, drainBatch{steps, from, to})
	switch {
	case err == nil:
		d.limit = min(drainSteps, 2*d.limit)
	case len(steps) > 1:
		d.limit = len(steps) / 2
		if isDataError(err) {
			return false, nil
		}
		return false, d.logServerError(err)
	case !isDataError(err):
		return false, d.logServerError(err)
	default:
		d.p.log.Error("a step of the spool cannot be stored; it stays in the data dir", "event", steps[0].id.String(), "err", err)
		strange = steps
	}
	if len(strange) > 0 {
		if err := d.p.quarantine(strange); err != nil {
			d.logThrottled("what cannot be stored of the spool cannot be kept aside either", err)
			return false, err
		}
	}
	d.p.advance(from, to)
	return false, nil
}

// isDataError reports whether the database refuses a step because of its data. Other errors,
// such as a refused login or a missing table, can be repaired by somebody: the steps wait.
func isDataError(err error) bool { return unavailable(err) == "" }

// logServerError logs err if the server returned it, for the operator. It returns err.
func (d *drainer) logServerError(err error) error {
	var e *pq.Error
	if errors.As(err, &e) {
		d.logThrottled("postgres does not take what waits in the spool; it is tried again until it does", err)
	}
	return err
}

// logThrottled logs why the spool is not drained, at most once in drainLogInterval.
func (d *drainer) logThrottled(what string, err error) {
	if !d.loggedAt.IsZero() && time.Since(d.loggedAt) < drainLogInterval {
		return
	}
	d.loggedAt = time.Now()
	d.p.log.Error(what, "dir", d.p.dir, "err", err)
}

// write makes a batch durable over two connections, as the committers do: steps of different
// events do not depend on each other. When one half fails, all of it is written again; the
// stored half does not change by that. It returns the steps to quarantine.
func (d *drainer) write(ctx context.Context, some drainBatch) (strange []*step, err error) {
	began := time.Now()
	try, cancel := context.WithTimeout(context.WithoutCancel(ctx), tryLimit)
	defer cancel()
	steps, strange, err := d.splitForeign(try, some)
	if err != nil {
		return nil, err
	}
	workers := make([]drainWorker, drainWorkers)
	for i := range workers {
		workers[i].offsetName, workers[i].to = some.from.offsetName(i), some.to
	}
	for _, st := range steps {
		w := &workers[int(st.id[15])%drainWorkers]
		if st.kind == stepChunk {
			w.chunks = append(w.chunks, st)
		} else {
			w.rows = append(w.rows, st)
		}
	}
	target := &writeTarget{db: d.s.write, node: some.from.claimant.nodeID(), former: some.from.claimant.nodeID(), replaying: true, notifyPeers: d.s.fenced.Load() || d.s.standby.Load()}
	var busy sync.WaitGroup
	for i := range workers {
		busy.Go(func() { workers[i].write(try, d.s, target) })
	}
	busy.Wait()
	for i := range workers {
		if err := workers[i].err; err != nil {
			return nil, err
		}
	}
	for i := range workers {
		d.s.outbox.put(d.holdQueueChanges(workers[i].changes))
		d.logIneffective(workers[i].rows)
	}
	d.s.recordBatch(len(steps), time.Since(began))
	return strange, nil
}

// logIneffective logs steps that should have changed something and did not.
func (d *drainer) logIneffective(rows []*step) {
	for _, st := range rows {
		if st.err != nil && !errors.Is(st.err, relay.ErrFenced) {
			d.s.log.Warn("a step of the spool had no effect", "event", st.id.String(), "kind", st.kind, "err", st.err)
		}
	}
}

// holdQueueChanges removes the changes of queues, which are published at the end: a count
// would miss the steps that are still in the spool.
func (d *drainer) holdQueueChanges(changes []relay.Change) []relay.Change {
	return slices.DeleteFunc(changes, func(c relay.Change) bool {
		if c.Kind == relay.ChangeQueue {
			d.aliases[c.Alias] = true
		}
		return c.Kind == relay.ChangeQueue
	})
}

// publishQueues publishes that the queues changed, now that the spool is empty.
func (d *drainer) publishQueues() {
	var changes []relay.Change
	for id := range d.aliases {
		changes = append(changes, relay.Change{Kind: relay.ChangeQueue, Alias: id})
	}
	d.s.outbox.put(changes)
}

// throttle delays a committer that has put bytes into the spool while the spool is being
// drained, until a multiple of them is drained, for throttleLimit at most. Otherwise callers
// that are faster than the database would keep the spool from ever becoming empty.
func (p *spool) throttle(bytes int64) {
	late := time.NewTimer(throttleLimit)
	defer late.Stop()
	p.mu.Lock()
	goal := p.drained.Load() + throttleRatio*bytes
	for p.filling.Load() && !p.down.Load() && !p.blocked() && p.drained.Load() < goal {
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

// drainWorkers is the number of connections that write the spool.
const drainWorkers = 2

// drainWorker writes a share of a batch over one connection.
type drainWorker struct {
	chunks, rows []*step
	offsetName   string // name of its row in meta, see segment.offsetName
	to           int64
	changes      []relay.Change
	err          error
}

// write makes the parts of bodies durable first, as the committers do.
func (l *drainWorker) write(ctx context.Context, s *Store, target *writeTarget) {
	if len(l.chunks) > 0 {
		_, l.err = s.inBatch(ctx, target, func(w *writer) error {
			steps, _, err := w.skipStored(l, l.chunks)
			if err != nil || len(steps) == 0 {
				return err
			}
			return w.putChunks(steps)
		})
	}
	if len(l.rows) > 0 && l.err == nil {
		l.changes, l.err = s.inBatch(ctx, target, func(w *writer) error {
			steps, there, err := w.skipStored(l, l.rows)
			if err == nil {
				err = w.republish(there)
			}
			if err != nil || len(steps) == 0 {
				return err
			}
			if err := s.putRows(w, steps); err != nil {
				return err
			}
			return w.saveOffset(l)
		})
	}
}
