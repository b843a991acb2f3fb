// Package events keeps events with their attempts and bytes: what their rows hold, what an
// attempt changes of its event and of the queue, and all reads of them. It also keeps what people
// made of events: shares, marks and saved searches. The journal writes new events, and retention
// removes old ones.
package events

import (
	"log/slog"
	"time"

	"relay"
	"relay/store/db"
)

// Parts are the parts of bodies that wait to be written to the database.
type Parts interface {
	// Part returns a part, nil where it does not wait.
	Part(id relay.ID, n, i int) []byte
	// MissingParts returns the numbers of the parts that do not wait.
	MissingParts(id relay.ID, n, parts int) []int
}

// Store reads and keeps events. All methods are safe for concurrent use.
type Store struct {
	db         *db.DB
	log        *slog.Logger
	heavyReads *heavyReads
	ids        idSource
	parts      Parts

	maxShareAge time.Duration
}

// New keeps events in a database. waiting are the parts of bodies that are not in it yet.
// maxShareAge is the longest life of a share that is created; 0 = no bound.
func New(db *db.DB, log *slog.Logger, waiting Parts, maxShareAge time.Duration) *Store {
	return &Store{db: db, log: log, heavyReads: newHeavyReads(db.Readers()), parts: waiting, maxShareAge: maxShareAge}
}
