package db

import (
	"io/fs"

	"github.com/pressly/goose/v3"

	"relay"
)

// Dialect holds the differences between the two engines. All other code is shared, and uses ? as placeholders.
type Dialect interface {
	// name is the name of the engine.
	name() string
	// SeveralNodes reports whether several processes may serve one database. If not, there is
	// also only one connection that writes, so rows need not be locked.
	SeveralNodes() bool
	// Remote reports whether the database is reached over a network. If so, the answer to a transaction may
	// be lost although the database works, and the next transaction may succeed.
	Remote() bool
	// ForUpdate is the suffix of a query that locks its rows. ForShare is the suffix of a query
	// that only prevents changes to them. SkipLocked is ForUpdate without the rows that are locked already.
	ForUpdate() string
	ForShare() string
	SkipLocked() string
	// DatabaseTime is an expression for the time of the database in microseconds.
	DatabaseTime() string

	placeholders() int
	migrations() (goose.Dialect, fs.FS)
	hasSchema() string // query that returns a row if the version table exists
	wrapCommit(error) error
	one(st *Statement, row []any) (text string, args []any)
	run(b *Batch, st *Statement, rows [][]any) error
	examineDurability(s *DB, q Query) relay.Finding
	examineDisk(s *DB) relay.Finding
	examinePages(q Query) relay.Finding
	insert(b *Batch, g *Group, rows [][][]any) (map[relay.ID]bool, error)
}
