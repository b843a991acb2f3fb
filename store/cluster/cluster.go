// Package cluster makes a process one of the nodes that serve a store. It contains the node's heartbeat, the
// tunnels of each node, the messages between nodes, the work that one node does for all nodes, and the end of
// dead nodes. On SQLite there is one node.
package cluster

import (
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"relay"
	"relay/store/db"
	"relay/store/people"
)

// Options has the name of the node and the functions that connect it to the rest of the store.
type Options struct {
	Log *slog.Logger
	// DataDir contains the lock file of the process; "" = none.
	DataDir string
	// NodeName is the label of this node; "" = the host name. Version is the version of the program.
	NodeName, Version string
	// CorrectClock turns on the correction of this node's clock by the clock of Postgres.
	CorrectClock bool
	// SpoolSteps returns the number of steps in the spool of this node.
	SpoolSteps func() int64
	// Heard gets a revision of another process, and reports whether only the store itself needs it. Lost is
	// called after the database has lost revisions; newest is the id of the newest revision that it still has.
	Heard func(kind relay.ChangeKind, revision int64, text string) bool
	Lost  func(newest int64)
	// Go runs a goroutine that ends with the context of Serve.
	Go func(func())
}

// Store is this process as one of the nodes of a store. All methods are safe for concurrent use.
type Store struct {
	db            *db.DB
	log           *slog.Logger
	opt           Options
	origin        string                       // name of this process in revisions
	written       atomic.Pointer[RevisionMark] // newest revision that this process has written; nil = none
	membership    membership
	leases        leases
	lock          *os.File // serve.lock of the data dir while this process has the lock
	outbox        outbox
	notices       notices
	noticeChannel string       // channel of NOTIFY, set by StartNotices
	roundsDone    atomic.Int64 // result of Rounds
}

// New returns the Store of this process, which becomes a node with Join.
func New(db *db.DB, o Options) *Store {
	s := &Store{db: db, log: o.Log, opt: o, origin: people.NewSecret("")}
	s.outbox.start()
	s.notices.init()
	return s
}

// Publish passes committed changes to the feed of this process, and notifies the other nodes. The channel
// is closed when the feed has received them.
func (s *Store) Publish(changes []relay.Change) <-chan struct{} {
	if len(changes) == 0 {
		return db.Published
	}
	s.tellNodes(changes)
	return s.outbox.put(changes)
}

// SetFeed sets the function that gets all further changes, in the order of their commits, from one goroutine.
func (s *Store) SetFeed(publish func([]relay.Change)) { s.outbox.serve(publish) }

// RevisionsWritten returns a channel that gets a signal when another node has written revisions.
func (s *Store) RevisionsWritten() <-chan struct{} { return s.notices.poll }

// ProcessName returns the name of this process in revisions.
func (s *Store) ProcessName() string { return s.origin }

// CloseNode passes on the changes that still wait to be published, and closes the connection of the heartbeat.
func (s *Store) CloseNode() error {
	s.outbox.close()
	if s.membership.db == nil {
		return nil
	}
	return db.UnlessAway(s.membership.db.Close())
}

// NodeStats holds figures about the nodes.
type NodeStats struct {
	Nodes   int           // nodes that serve and are not dead, including this one; 0 before Serve
	BeatAge time.Duration // time since the last renewal; 0 on SQLite
	Swept   int64         // dead nodes that this node swept
	Ended   int64         // attempts of dead nodes that this node marked interrupted
}

// NodeStats returns figures about the nodes, from memory.
func (s *Store) NodeStats() NodeStats {
	nodes, age := s.membership.figures()
	return NodeStats{nodes, age, s.membership.swept.Load(), s.membership.interrupted.Load()}
}
