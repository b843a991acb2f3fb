// Package migrations holds the schema of the store as embedded SQL for goose, in one folder for each
// engine, with equal version numbers. There are no migrations backwards, and a released file is never
// changed, because old and new servers may use the same database.
//
// Shared conventions: times are microseconds since 1970 as integers, 0 = none; flags are 0 or 1; event
// ids are the 16 bytes of a UUIDv7; data from callers and local servers is stored as bytes, never as
// text. Codes of states: 0 queued, 1 delivering, 2 delivered, 3 failed, 4 interrupted, 5 canceled, 6
// rejected, 7 incomplete, 8 answered. Codes of attempt kinds: 0 original, 1 replay.
package migrations

import (
	"embed"
	"io/fs"
)

//go:embed sqlite/*.sql postgres/*.sql
var files embed.FS

// SQLite returns the migrations for SQLite.
func SQLite() fs.FS { return folder("sqlite") }

// Postgres returns the migrations for Postgres 14 or newer.
func Postgres() fs.FS { return folder("postgres") }

func folder(name string) fs.FS {
	sub, err := fs.Sub(files, name)
	if err != nil {
		panic(err) // the folder is embedded, so only a broken build can fail here
	}
	return sub
}
