// Package store is the cellar of the relay: events, attempts and their bytes,
// accounts and what they own, on SQLite (the default) or Postgres, with one SQL
// text for both and small dialect files where they differ.
//
// Events are written through a journal: steps are handed over without waiting, one
// committer (two on Postgres) takes what waits into one transaction, and a ticket
// tells when a step is durable. Everything else is an operation: rule, change,
// audit row and revision in one transaction, with the asking actor in every WHERE,
// so that a forgotten check finds nothing.
//
// A Store is opened by the one serving process, which calls Serve, and by operator
// commands beside it, which do not: they may use everything but the journal and
// the queue.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"
)

// Options say which store to open and the rules that it holds.
type Options struct {
	// URL is a postgres:// address; empty means SQLite in DataDir.
	URL string
	// DirectURL is used for migrations and locks when URL goes through a pooler;
	// empty means URL.
	DirectURL string
	// DataDir holds relay.db, the lock file and the id of this node. Only a Postgres
	// store can do without it.
	DataDir string
	// AliasClaim lets an account become the owner of a free name by forwarding it.
	AliasClaim bool
	// MaxAliases bounds the aliases of an account; 0 = no bound.
	MaxAliases int
	// SpoolLimit bounds, in bytes, what DataDir keeps of the journal while Postgres
	// does not take it; 0 = nothing is kept. Without meaning on SQLite.
	SpoolLimit int64
	// Retention is the age at which events go, unless their alias says otherwise; 0 =
	// never. MaxAliasStorage bounds what an alias has stored, in bytes; 0 = no bound.
	Retention       time.Duration
	MaxAliasStorage int64
	// MinFree is how many bytes stay free on the disk of a SQLite store: with less,
	// nothing new is taken; 0 = no matter. FreeSpace says how many bytes are free; nil =
	// the file system.
	MinFree   int64
	FreeSpace func(dir string) (int64, error)
	// Now is the clock on the wall; nil = time.Now. How long something takes is never
	// measured by it.
	Now func() time.Time
	// NoCreate makes Open fail where there is no store yet.
	NoCreate bool
	// Log gets what operators should know; nil means none.
	Log *slog.Logger
}

// Store keeps everything that outlives the process. All methods are safe for
// concurrent use.
type Store struct {
	opt    Options
	log    *slog.Logger
	d      dialect
	write  *sqlx.DB
	read   *sqlx.DB
	direct *sqlx.DB // Postgres: for migrations, past a pooler; else the same as write
	locks  *sqlx.DB // Postgres: for the serve lock, past a pooler
	pooled bool     // write, read and journal go through a pooler

	journal *sqlx.DB    // of the committers; on SQLite the same as write
	spool   *spool      // nil = none
	unsure  atomic.Bool // the committers have a new connection: is the serve lock still ours?
	pen     penman      // of the committers; set by Serve
	locking sync.Mutex  // guards lock after Serve

	// order keeps commits and what is published about them in one order where
	// there is one writer (SQLite).
	order sync.Mutex

	node     string
	origin   string // of this process, in revisions
	boot     int64  // of this start; set by Serve
	lock     *serveLock
	ids      idSource
	out      outbox
	used     usage
	notes    notes
	meter    meter
	broken   repairs
	late     lateEnds
	prepared prepared // journal statements of SQLite
	remover  remover
	mover    mover
	stock    stock
	disk     disk
	clock    clock
	gone     gone

	retaining sync.Mutex
	daysTried time.Time // when partitions were last looked at
	sweeping  sync.Mutex
	orphans   orphans

	serving    atomic.Bool // committers run
	committers []*committer
	committed  atomic.Int64
	batches    atomic.Int64
	standby    atomic.Bool
	fenced     atomic.Bool // another server took the serve lock

	stop   context.CancelFunc // of the goroutines of Serve
	wait   sync.WaitGroup
	clean  chan struct{} // wakes the removal of what removed aliases left
	closed sync.Once
}

// Open opens the store, creating an empty SQLite file or nothing on Postgres; the
// schema is made by Migrate. It fails on a schema newer than this program.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{opt: o, log: o.Log, clean: make(chan struct{}, 1)}
	s.clock.start(o.Now)
	s.meter.init()
	s.out.start()
	if o.URL != "" && !o.NoCreate {
		s.spool = newSpool(o, s.place())
	}
	var err error
	switch {
	case o.URL == "":
		err = s.openSQLite(ctx)
	case strings.HasPrefix(o.URL, "postgres://"), strings.HasPrefix(o.URL, "postgresql://"):
		err = s.openPostgres(ctx)
	default:
		err = errors.New("the database URL must start with postgres://; leave it empty for sqlite in the data dir")
	}
	if err == nil {
		err = s.checkSchema(ctx)
	}
	if err == nil {
		s.origin, _ = newSecret("")
		s.node, err = s.nodeID()
	}
	if err != nil {
		return nil, errors.Join(s.spoolWaits(err), s.Close())
	}
	return s, nil
}

// checkSchema refuses what this program does not understand.
func (s *Store) checkSchema(ctx context.Context) error {
	have, want, err := s.Schema(ctx)
	if err != nil {
		return err
	}
	if have > want {
		return fmt.Errorf("the database schema is version %d, made by a newer relayd; this one knows %d: run the newer program", have, want)
	}
	if have == 0 && s.opt.NoCreate {
		return fmt.Errorf("no relay data in %s; start relayd serve there first", s.place())
	}
	return nil
}

// nodeID reads the id of this node from the data dir, making it when absent.
func (s *Store) nodeID() (string, error) {
	if s.opt.DataDir == "" {
		return newSecret("node_")
	}
	file := filepath.Join(s.opt.DataDir, "node-id")
	b, err := os.ReadFile(file)
	if id := strings.TrimSpace(string(b)); err == nil && id != "" {
		return id, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read node id: %w", err)
	}
	id, err := newSecret("node_")
	if err != nil {
		return "", err
	}
	if s.opt.NoCreate {
		return id, nil // an operator command: nothing is claimed under it
	}
	if err := os.MkdirAll(s.opt.DataDir, 0o700); err != nil {
		return "", fmt.Errorf("make data dir: %w", err)
	}
	if err := os.WriteFile(file, []byte(id+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keep node id: %w", err)
	}
	return id, nil
}

// Close hands over what is still queued, stops the goroutines of Serve and closes
// the database. Steps handed over later fail. More than one call is fine.
func (s *Store) Close() error {
	var err error
	s.closed.Do(func() {
		for _, c := range s.committers {
			c.close()
		}
		s.drainLast()
		s.noteLast()
		if s.stop != nil {
			s.stop()
		}
		s.wait.Wait()
		err = s.spool.close()
		s.out.close()
		if s.lock != nil {
			err = errors.Join(err, unlessAway(s.lock.release()))
		}
		for _, db := range []*sqlx.DB{s.mover.db, s.read, s.write, s.direct, s.locks, s.journal} {
			if db != nil {
				err = errors.Join(err, unlessAway(db.Close())) // closing one twice is fine
			}
		}
	})
	return err
}

// unlessAway drops the error of taking leave of a database that is gone.
func unlessAway(err error) error {
	if unavailable(err) != "" {
		return nil
	}
	return err
}

// Ready is nil when new events can be stored: see Health.
func (s *Store) Ready(ctx context.Context) error {
	_, err := s.Health(ctx)
	return err
}

// health is nil when the database takes new events: it answers a write-side query
// within 2 s, this process serves, and nobody took its place.
func (s *Store) health(ctx context.Context) error {
	switch {
	case s.fenced.Load():
		return errors.New("another relayd took over this database")
	case s.standby.Load():
		return errors.New("standby: another relayd serves this database")
	}
	for _, c := range s.running() {
		if err := c.down(); err != nil {
			return fmt.Errorf("store: %w", err)
		}
	}
	s.disk.look(s)
	if err := s.disk.reason(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var one int
	if err := s.read.GetContext(ctx, &one, `SELECT 1`); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// Standby tells whether Serve waits for another relayd on the same Postgres to end.
func (s *Store) Standby() bool { return s.standby.Load() }

// Stats are figures for the admin page.
type Stats struct {
	Committed   int64 // steps made durable
	Batches     int64 // transactions that did it
	QueuedSteps int   // steps that wait or are under way
	SpoolBytes  int64 // of steps that wait in the spool for Postgres
	SpoolFull   int64 // steps that were refused because the spool took no more
}

// Stats gives the figures since Serve.
func (s *Store) Stats() Stats {
	st := Stats{Committed: s.committed.Load(), Batches: s.batches.Load(), SpoolBytes: s.spool.size()}
	if s.spool != nil {
		st.SpoolFull = s.spool.refused.Load()
	}
	for _, c := range s.running() {
		st.QueuedSteps += c.length()
	}
	return st
}

// Describe names the engine and where the data is, without secrets.
func (s *Store) Describe() string { return s.d.name + " " + s.place() }
