// Package people stores accounts and their data: aliases, members, keys, tokens, logins, invitations,
// waiting keys, and the audit log of their actions. Each operation is one transaction of rule, change,
// audit row and revision. The asking actor is in every WHERE, so that a forgotten check finds no rows.
package people

import (
	"context"
	"log/slog"
	"time"

	"relay/store/db"
	"relay/store/seal"
)

// Options hold the rules that apply, and functions of the rest of the store.
type Options struct {
	Log *slog.Logger
	// AliasClaim makes an account that forwards a free name its owner. MaxAliases bounds the aliases
	// of an account; 0 = no bound.
	AliasClaim bool
	MaxAliases int
	// AliasRemoved is called after an alias was removed: its events are left.
	AliasRemoved func(context.Context) error
	// NodeID is the id of this node.
	NodeID func() string
	// Keys seal and open secrets of senders. Alone reports whether no other node serves the store:
	// only then a key is made here.
	Keys  *seal.Ring
	Alone func(context.Context) (bool, error)
	// ClockDoubted reports whether the clock may be ahead by mistake; nil = it never is.
	ClockDoubted func() bool
}

// Store stores accounts and their data. All methods are safe for concurrent use.
type Store struct {
	db   *db.DB
	log  *slog.Logger
	opt  Options
	late lateWrites
}

// over returns the time before which a row counts as expired, usually at. While the clock is doubted nothing has expired:
// a name that was given to others, or a call that was made again, cannot be taken back.
func (s *Store) over(at time.Time) int64 {
	if s.opt.ClockDoubted != nil && s.opt.ClockDoubted() {
		return 0
	}
	return db.Micros(at)
}

// New returns a Store for a database.
func New(db *db.DB, o Options) *Store {
	return &Store{db: db, log: o.Log, opt: o}
}
