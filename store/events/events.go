// Package events stores events with their attempts and bytes: the content of their rows, the effect of
// an attempt on its event and on the queue, and all reads of events. It also stores what users add to
// events: shares, marks and saved searches. Package journal writes new events, and package retention removes
// old ones.
package events

import (
	"log/slog"
	"time"

	"relay"
	"relay/store/db"
)

// Parts holds the parts of bodies that wait to be written to the database.
type Parts interface {
	// Part returns a part that waits to be written; nil if it does not.
	Part(id relay.ID, n, i int) []byte
	// MissingParts returns the numbers of those parts of a body that do not wait to be written.
	MissingParts(id relay.ID, n, parts int) []int
}

// Store reads and stores events. All methods are safe for concurrent use.
type Store struct {
	db         *db.DB
	log        *slog.Logger
	heavyReads heavyReads
	ids        idSource
	parts      Parts

	maxShareAge time.Duration
}

// New returns a Store for a database. waiting holds the parts of bodies that are not in the database
// yet. maxShareAge is the longest life of a new share; 0 = no bound.
func New(db *db.DB, log *slog.Logger, waiting Parts, maxShareAge time.Duration) *Store {
	return &Store{db: db, log: log, heavyReads: newHeavyReads(db.Readers()), parts: waiting, maxShareAge: maxShareAge}
}
