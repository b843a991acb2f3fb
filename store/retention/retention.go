// Package retention removes data that need not be kept. These are events that are too old or exceed the
// limit of an alias or an account, events of removed aliases, bodies without an event, and expired rows.
// It deletes in short transactions, so that the journal gets most of the time of SQLite's only writer.
//
// The store runs the work in loops; see loops.go there for the intervals. Every removal of events ends in
// remove (removal.go), which gets the oldest removable events from candidate.go.
package retention

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"relay/store/db"
	"relay/store/spool"
	"relay/store/usage"
)

// Options hold the rules of retention.
type Options struct {
	Log *slog.Logger
	// Age is the age at which events are deleted, unless their alias has its own retention; 0 = never.
	Age time.Duration
}

// Retention removes data that need not be kept. All methods are safe for concurrent use.
type Retention struct {
	db     *db.DB
	spool  *spool.Spool
	usage  *usage.Usage
	log    *slog.Logger
	opt    Options
	counts Counts
	pace   pace
	wake   chan struct{} // wakes the deletion of events of removed aliases

	retaining sync.Mutex
	schedule  schedule
	daysTried time.Time

	givenBack atomic.Int64 // the count Evicted when free pages were last returned to the file system
}

// New returns a Retention. It removes nothing until a method is called.
func New(d *db.DB, p *spool.Spool, u *usage.Usage, o Options) *Retention {
	return &Retention{db: d, spool: p, usage: u, log: o.Log, opt: o, wake: make(chan struct{}, 1), schedule: schedule{}, pace: pace{turn: make(chan struct{}, 1)}}
}

// Counts holds what was deleted since the start of the process. Expired and Evicted count events, by the
// reason of their removal.
type Counts struct {
	Expired atomic.Int64
	Evicted atomic.Int64 // events removed because their alias or its owner exceeded its storage limit
	Days    atomic.Int64 // days whose partitions were dropped as a whole (Postgres)
	Orphans atomic.Int64 // bodies without an event that were deleted
	Bytes   atomic.Int64 // request and response bytes deleted with the events
	Longest atomic.Int64 // longest transaction, in ns
}

// RetentionCounts returns the counts.
func (r *Retention) RetentionCounts() *Counts { return &r.counts }

// RemovedAliases returns a channel that gets a signal when an alias was removed and
// DeleteRemovedAliases has work.
func (r *Retention) RemovedAliases() <-chan struct{} { return r.wake }
