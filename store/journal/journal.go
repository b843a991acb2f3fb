// Package journal makes changes of events durable: new requests, the ends of attempts, and claims of
// queued attempts. Callers enqueue steps without waiting; the committer writes all waiting steps in one
// transaction, and a ticket resolves when its step is durable. While Postgres is down, steps go to the
// spool of the data dir, and are drained from there in order.
//
// The files, in the order in which a step passes through them: step.go (the methods of callers) →
// committer.go (lanes, order, space) → commit.go (one transaction: retried, split, spooled or refused)
// → batch.go (the order of the writes in the transaction), which uses new_event.go, finish.go and claim.go; the SQL of
// inserts and ends is in statement.go, that of the event's row in package events → or, from the spool, drain.go.
package journal

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"relay"
	"relay/store/cluster"
	"relay/store/db"
	"relay/store/spool"
)

// Options connect a journal to the rest of the store.
type Options struct {
	Log *slog.Logger
	// DataDir is the folder in which an earlier process may have left a spool. SpoolID is the name of the spool
	// in the table spool_marks, which says how much of each spool is in the database.
	DataDir, SpoolID string
	// Stored gets the number of bytes that a committed transaction added to an alias.
	Stored func(alias, bytes int64)
	// Judged gets the verdict on each new request that is stored; the verdict is nil if the request has none.
	Judged func(verdict *relay.Signature, at time.Time)
	// Go runs the goroutine of StartJournal, which ends after StopJournal.
	Go func(func())
}

// Journal writes steps to the database. All methods are safe for concurrent use.
type Journal struct {
	db    *db.DB
	spool *spool.Spool
	nodes *cluster.Store
	log   *slog.Logger
	opt   Options
	meter Meter

	underWay  func() map[relay.AttemptRef]bool // attempts in progress; nil = unknown
	committer atomic.Pointer[committer]        // nil before StartJournal
}

// New returns a journal that writes nothing before StartJournal.
func New(d *db.DB, p *spool.Spool, nodes *cluster.Store, o Options) *Journal {
	j := &Journal{db: d, spool: p, nodes: nodes, log: o.Log, opt: o}
	j.meter.init()
	return j
}

// StartJournal starts the goroutine that writes; StopJournal ends it.
func (j *Journal) StartJournal(ctx context.Context) error {
	if err := j.db.Prepare(ctx, finishAttempts, oldestOnSQLite, claimOnSQLite, readClaimed); err != nil {
		return err
	}
	c := newCommitter(j)
	j.opt.Go(func() { c.run(ctx) })
	j.committer.Store(c)
	return nil
}

// StopJournal refuses new steps, makes the waiting ones durable, and waits up to closeDrain for the
// spool to be drained.
func (j *Journal) StopJournal() {
	if c := j.committer.Load(); c != nil {
		c.close()
		j.drainLast()
	}
}

// Serving reports whether the journal accepts steps, or has accepted some before it was stopped.
func (j *Journal) Serving() bool { return j.committer.Load() != nil }

// WhyAway returns the reason why steps can be stored neither in the database nor in the spool; nil if
// they can, and before StartJournal.
func (j *Journal) WhyAway() error {
	if c := j.committer.Load(); c != nil {
		return c.whyAway()
	}
	return nil
}

// QueuedSteps returns the number of steps that wait to be written or are being written.
func (j *Journal) QueuedSteps() int {
	if c := j.committer.Load(); c != nil {
		return c.length()
	}
	return 0
}

// Meter holds the counters of a journal. docs/metrics.md explains them.
type Meter struct {
	Batch  prometheus.Histogram // number of steps in each transaction
	Commit prometheus.Histogram // duration of each transaction in seconds

	Committed  atomic.Int64
	Batches    atomic.Int64 // transactions that wrote the committed steps
	Failed     atomic.Int64
	Reconciled atomic.Int64 // attempts that Reconcile ended because no process ran them
	Retried    atomic.Int64
	Spooled    atomic.Int64
}

func (m *Meter) init() {
	m.Batch = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "relay_store_batch_steps", Help: "Steps of one transaction of the journal.",
		Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 1024},
	})
	m.Commit = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "relay_store_commit_seconds", Help: "How long one transaction of the journal took, commit included.",
		Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 2.5},
	})
}

// recordBatch counts a transaction.
func (m *Meter) recordBatch(steps int, took time.Duration) {
	m.Committed.Add(int64(steps))
	m.Batches.Add(1)
	m.Batch.Observe(float64(steps))
	m.Commit.Observe(took.Seconds())
}

// Meter returns the counters.
func (j *Journal) Meter() *Meter { return &j.meter }
