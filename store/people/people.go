// Package people stores accounts and their data: aliases, members, keys, tokens, logins, invitations, waiting
// keys, and the audit log of their actions. Each operation checks that the actor may do it, and writes the
// change, its audit entry and its revision in one transaction. Every WHERE names the actor of the call: even
// if a check is missing, the query finds no rows of other accounts.
package people

import (
	"context"
	"log/slog"
	"time"

	"relay/store/db"
	"relay/store/seal"
)

// Options hold the rules for accounts and aliases, and functions of the rest of the store.
type Options struct {
	Log *slog.Logger
	// AliasClaim lets an account become the owner of a free name by forwarding it. MaxAliases bounds the
	// aliases of an account; 0 = no bound.
	AliasClaim bool
	MaxAliases int
	// AliasRemoved is called after an alias was removed, to delete its events.
	AliasRemoved func(context.Context) error
	// NodeID returns the id of this node.
	NodeID func() string
	// Keys encrypt and decrypt secrets of senders. Alone reports whether no other node serves the store,
	// because only then this node may make a key.
	Keys  *seal.Ring
	Alone func(context.Context) (bool, error)
	// CheckClock returns the time, and whether it may be ahead by mistake; nil = it never is.
	CheckClock func() (now time.Time, doubted bool)
}

// Store stores accounts and their data. All methods are safe for concurrent use.
type Store struct {
	db   *db.DB
	log  *slog.Logger
	opt  Options
	late lateWrites
}

// over returns the time, in microseconds, before which a row that lives for the time life counts as expired, or 0
// while the clock is doubted. With 0 no row counts as expired, because two mistakes could not be undone: giving a
// reserved name to another account, and running a call twice.
func (s *Store) over(life time.Duration) int64 {
	if s.opt.CheckClock == nil {
		return db.Micros(s.db.Now().Add(-life))
	}
	now, doubted := s.opt.CheckClock()
	if doubted {
		return 0
	}
	return db.Micros(now.Add(-life))
}

// New returns a Store for a database.
func New(db *db.DB, o Options) *Store {
	return &Store{db: db, log: o.Log, opt: o}
}
