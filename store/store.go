// Package store stores events, attempts and their bytes, accounts and their data. It runs on SQLite (the
// default) or Postgres, with one SQL text for both and small dialect files for the differences.
//
// Events are written through a journal. Every other change is an operation: one transaction that checks whether
// the actor may make the change, and writes the change, an audit entry and a revision. The WHERE clauses of its
// queries name the actor too: even if a check is missing, a query finds no rows of other accounts.
//
// The serving process opens a Store and calls Serve. Operator commands open a Store at the same time without
// calling Serve; they may use everything except the journal and the queue.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"relay"
	"relay/store/cluster"
	"relay/store/db"
	"relay/store/events"
	"relay/store/file"
	"relay/store/journal"
	"relay/store/people"
	"relay/store/retention"
	"relay/store/seal"
	"relay/store/spool"
	"relay/store/usage"
)

// Options choose the store to open and the rules that it enforces.
type Options struct {
	// URL is a postgres:// address; empty means SQLite in DataDir.
	URL string
	// DirectURL is used for migrations and locks when URL goes through a pooler; empty means URL.
	DirectURL string
	// DataDir holds relay.db, the lock file and the id of this node. It may be empty
	// for a Postgres store.
	DataDir string
	// AliasClaim lets an account become the owner of a free name by forwarding it.
	AliasClaim bool
	// MaxShareAge is the longest life of a share that is created from now on; 0 = no bound.
	MaxShareAge time.Duration
	// MaxAliases bounds the aliases of an account; 0 = no bound.
	MaxAliases int
	// SpoolLimit bounds the spool in DataDir, in bytes; 0 = no spool. The spool keeps steps of the journal
	// while Postgres does not accept them. Unused on SQLite.
	SpoolLimit int64
	// Retention is the age at which events are deleted, unless their alias has its own
	// retention; 0 = never. MaxAliasStorage bounds the stored bytes of an alias; 0 = no bound.
	Retention       time.Duration
	MaxAliasStorage int64
	// AccountLimits turns on a limit on the bytes of all aliases of an account: the account's own limit, or
	// MaxAccountStorage for an account without its own. A limit of 0 is no bound.
	AccountLimits     bool
	MaxAccountStorage int64
	// MaxAccountQueue bounds the queued attempts of an account without a bound of its own; 0 = no bound.
	// AccountUsage returns this bound, and package delivery enforces it.
	MaxAccountQueue int
	// MinFree is the number of free bytes on the disk of a SQLite store below which new events are refused;
	// 0 = no such bound. FreeSpace returns the number of free bytes; nil = ask the file system.
	MinFree   int64
	FreeSpace func(dir string) (int64, error)
	// Now is the wall clock; nil = time.Now. Durations are never measured with it.
	Now func() time.Time
	// CorrectNow corrects Now by the clock of Postgres. If Now is nil, the clock is always corrected.
	CorrectNow bool
	// NodeName is the label of this node among the nodes of one Postgres; "" = the host name. Version is the
	// version of the program, shown to the other nodes.
	NodeName, Version string
	// MaxConns bounds the connections to Postgres, except those of a migration; 0 = 12.
	MaxConns int
	// SecretKeys encrypt and decrypt secrets of senders; the first one encrypts. If there are none, a node
	// that serves its store alone keeps a key in DataDir.
	SecretKeys []seal.Key
	// Site has the URLs of this server. They are needed to verify signatures of senders that also sign the URL.
	Site relay.Site
	// NoCreate makes Open fail if there is no store yet.
	NoCreate bool
	// VFS is the file system of SQLite; "" = that of the operating system.
	VFS string
	// Log gets messages for operators; nil = no log.
	Log *slog.Logger
}

// Names for the types that Store embeds. Store has the methods of these types, but the embedded fields are
// not exported, because their names begin with a lower-case letter.
type (
	peopleStore = people.Store
	eventStore  = events.Store

	clusterStore = cluster.Store
	eventJournal = journal.Journal

	eventRetention = retention.Retention
)

// Store stores everything that has to outlive the process. All methods are safe for concurrent use.
type Store struct {
	*peopleStore
	*eventStore
	*clusterStore
	*eventJournal
	*eventRetention

	opt   Options
	log   *slog.Logger
	db    *db.DB
	spool *spool.Spool

	usage *usage.Usage
	jumps jumpWatch

	stop context.CancelFunc // ends the goroutines of Serve
	wait sync.WaitGroup

	closing  sync.Once
	closed   chan struct{} // closed when Shutdown is complete
	closeErr error
}

// Open opens the store. On SQLite it creates an empty file; Migrate makes the schema. It
// fails on a schema that is newer than this program.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{opt: o, log: o.Log, closed: make(chan struct{})}
	spooling := o.URL != "" && !o.NoCreate && o.DataDir != ""
	if !spooling {
		o.SpoolLimit = 0
	}
	s.spool = spool.New(spool.Options{Dir: o.DataDir, Database: db.PlaceOf(o.URL, o.DataDir), Limit: o.SpoolLimit, Claimant: func() (string, string) { return s.Claimant() }, Log: o.Log})
	var err error
	s.db, err = db.Open(ctx, db.Options{
		URL: o.URL, DirectURL: o.DirectURL, DataDir: o.DataDir, MinFree: o.MinFree, FreeSpace: o.FreeSpace, Now: o.Now, MaxConns: o.MaxConns,
		NoCreate: o.NoCreate, VFS: o.VFS, Log: o.Log,
	})
	s.db.Away, s.db.Finish = s.away, s.finish
	s.clusterStore = cluster.New(s.db, cluster.Options{
		Log: o.Log, DataDir: o.DataDir, NodeName: o.NodeName, Version: o.Version, CorrectClock: o.Now == nil || o.CorrectNow,
		SpoolSteps: s.spool.Waiting.Load, Go: s.wait.Go,
		Heard: func(kind relay.ChangeKind, revision int64, text string) bool {
			return s.heardAct(kind, text) || s.usage.Heard(kind, revision, text)
		},
		Lost: func(newest int64) { s.usage.Lost(newest) },
	})
	s.usage = usage.New(s.db, usage.Options{
		Log: o.Log, AliasLimit: o.MaxAliasStorage, AccountLimits: o.AccountLimits, AccountLimit: o.MaxAccountStorage, AccountQueue: o.MaxAccountQueue, Process: s.ProcessName(), Go: s.wait.Go,
	})
	s.eventRetention = retention.New(s.db, s.spool, s.usage, retention.Options{Log: o.Log, Age: o.Retention})
	s.eventStore = events.New(s.db, o.Log, s.spool, o.MaxShareAge)
	s.peopleStore = people.New(s.db, people.Options{
		Log: o.Log, AliasClaim: o.AliasClaim, MaxAliases: o.MaxAliases, AliasRemoved: s.AliasRemoved, NodeID: s.NodeID,
		Keys: seal.NewRing(o.SecretKeys, secretKeyFile(o.DataDir)), Alone: s.servesAlone,
		CheckClock: func() (time.Time, bool) { return s.jumps.check(s.db.Now) },
	})
	spoolID := ""
	if err == nil {
		spoolID, err = s.loadSpoolID()
	}
	s.eventJournal = journal.New(s.db, s.spool, s.clusterStore, journal.Options{
		Log: o.Log, DataDir: o.DataDir, SpoolID: spoolID, Stored: s.usage.Add, Judged: s.NoteValid, Go: s.wait.Go,
	})
	if err != nil && spooling && spool.Left(o.DataDir) {
		err = fmt.Errorf("%w; events wait in the spool in %s and are stored once it is back: leave it there", err, o.DataDir)
	}
	if err == nil && o.NoCreate {
		err = s.CheckServedFile()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// SecretKeyFile is the file in the data dir with the keys of a node that has no keys in its settings.
const SecretKeyFile = "secret.key"

func secretKeyFile(dir string) string {
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, SecretKeyFile)
}

// servesAlone reports whether this process serves the store and no other node does. On SQLite it is always
// true.
func (s *Store) servesAlone(ctx context.Context) (bool, error) {
	if !s.db.Dialect.SeveralNodes() {
		return true, nil
	}
	nodes, err := s.Nodes(ctx)
	others := slices.ContainsFunc(nodes, func(n relay.Node) bool { return !n.Self && n.State != relay.NodeDead })
	return s.Serving() && !others, err
}

// loadSpoolID reads the id of the data dir, and creates it if it does not exist.
func (s *Store) loadSpoolID() (string, error) {
	if s.opt.DataDir == "" {
		return people.NewSecret("node_"), nil
	}
	path := filepath.Join(s.opt.DataDir, "node-id")
	b, err := os.ReadFile(path)
	if id := strings.TrimSpace(string(b)); err == nil && id != "" {
		return id, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read the id of the data dir: %w", err)
	}
	id := people.NewSecret("node_")
	if s.opt.NoCreate {
		return id, nil // an operator command needs no lasting id, because it claims no attempts
	}
	if err := os.MkdirAll(s.opt.DataDir, 0o700); err != nil {
		return "", fmt.Errorf("make data dir: %w", err)
	}
	if err := file.Write(path, []byte(id+"\n")); err != nil {
		return "", fmt.Errorf("store the id of the data dir: %w", err)
	}
	return id, nil
}

// closeLimit bounds Close, so that a frozen database or a disk that hangs cannot delay a stop forever.
const closeLimit = time.Minute

// Close is Shutdown with a limit of one minute.
func (s *Store) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	return s.Shutdown(ctx)
}

// Shutdown makes enqueued steps durable, stops the goroutines of Serve and closes the database. Steps that
// are enqueued later fail. If ctx ends first, Shutdown returns an error that says so; the remaining work
// continues in the background until the process ends. A repeated call waits for the same work and returns the
// same error.
func (s *Store) Shutdown(ctx context.Context) error {
	s.closing.Do(func() {
		go func() {
			defer close(s.closed)
			s.closeErr = s.close()
		}()
	})
	select {
	case <-s.closed:
		return s.closeErr
	case <-ctx.Done():
		return fmt.Errorf("the store has not ended: %w", context.Cause(ctx))
	}
}

// close is Shutdown without a bound.
func (s *Store) close() error {
	s.StopJournal()
	if s.Serving() && s.WhyAway() == nil && !s.spool.Active.Load() {
		s.WriteLate(context.Background())
	}
	if s.stop != nil {
		s.stop()
	}
	s.wait.Wait()
	err := s.LeaveNodes()
	err = errors.Join(err, s.spool.Close())
	err = errors.Join(err, s.CloseNode())
	err = errors.Join(err, s.db.Close())
	err = errors.Join(err, db.UnlessAway(s.UnlockDataDir()))
	return err
}

// StoreFirst reports whether a request has to be stored before a byte of it is forwarded, because the spool
// is nearly full. A request that cannot be stored must not reach a local server. StoreFirst does no I/O.
func (s *Store) StoreFirst() bool { return s.spool.NearlyFull() }

// Health returns a nil error if new events can be stored. degraded means that new events go to the spool
// because Postgres does not accept them. Health returns within 2 s.
func (s *Store) Health(ctx context.Context) (degraded bool, err error) {
	if !s.spool.Enabled() || !s.Serving() {
		return false, s.health(ctx)
	}
	if s.spool.IntakeClosed.Load() || s.spool.AdmitsTypical() != nil {
		return true, spool.ErrUnready
	}
	if s.spool.Active.Load() {
		return true, s.spool.CheckWritable()
	}
	err = s.health(ctx)
	if err != nil && s.ShouldSpool(err) {
		return true, s.spool.CheckWritable() // nil means that new events go to the spool
	}
	return false, err
}

// health returns nil if the database accepts new events. It waits for the database for at most 2 s.
func (s *Store) health(ctx context.Context) error {
	if err := s.WhyAway(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	s.db.Disk.Refresh()
	if e := s.db.Disk.Low(); e != nil {
		return fmt.Errorf("disk: %w; free some space there, or set a shorter --retention, a lower --max-alias-storage or --min-free", e.Cause)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := s.db.Ping(ctx); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// Stats are figures for the admin page.
type Stats struct {
	Committed   int64 // steps made durable
	Batches     int64 // transactions that wrote the committed steps
	QueuedSteps int   // steps that wait or are being written
	SpoolBytes  int64 // bytes in the spool that are not in Postgres yet
	SpoolFull   int64 // steps that were refused because the spool was full
}

// Stats returns the figures since Serve.
func (s *Store) Stats() Stats {
	m := s.Meter()
	return Stats{
		Committed: m.Committed.Load(), Batches: m.Batches.Load(), QueuedSteps: s.QueuedSteps(),
		SpoolBytes: s.spool.Undrained.Load(), SpoolFull: s.spool.Refused.Load(),
	}
}

// Describe names the engine and the location of the data, without secrets.
func (s *Store) Describe() string { return s.db.Describe() }

// Schema returns the version of the schema in the database and the one that this program needs; have
// is 0 in an empty database. It changes nothing.
func (s *Store) Schema(ctx context.Context) (have, want int64, err error) { return s.db.Schema(ctx) }

// ErrUsePgDump is the error of Backup for a Postgres store, because Postgres has its own backup tools.
var ErrUsePgDump = db.ErrUsePgDump

// Backup writes a consistent copy of a SQLite store to a new file with mode 0600. A server may write
// to the store during the copy. The file appears complete and synced, or not at all. An existing file
// is not changed.
func (s *Store) Backup(ctx context.Context, path string) error { return s.db.Backup(ctx, path) }

// errAway is the error of operations that fail at once because Postgres does not respond.
var errAway = fmt.Errorf("postgres does not answer: %w", sql.ErrConnDone)

// away returns an error while the database does not respond.
func (s *Store) away() error {
	if s.spool.Away.Load() {
		return errAway
	}
	return nil
}

// finish is the function Finish of db.DB: each update calls it before the commit, and calls its result
// committed afterwards.
func (s *Store) finish(c *db.Tx) (committed func() <-chan struct{}, err error) {
	s.usage.TellFreed(c)
	s.tellActs(c)
	published, err := s.FinishUpdate(c)
	return func() <-chan struct{} {
		s.usage.Committed(c)
		s.logActs(c)
		return published()
	}, err
}

// AccountUsage returns, by the id of the account, the stored bytes and the number of queued attempts of each
// account, with their limits; for admins.
func (s *Store) AccountUsage(ctx context.Context, who relay.Actor) (map[int64]relay.AccountUsage, error) {
	return s.usage.AccountUsage(ctx, who)
}
