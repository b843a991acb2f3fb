// Package migrations holds the schema of the store as embedded SQL for goose: in the folder both what is the
// same for both engines, and in a folder for each engine what differs. Each version has one file in both, or one
// in each of the other two. There are no migrations backwards, and the content of a released file is never
// changed, because old and new servers may use the same database.
//
// Shared conventions: times are microseconds since 1970 as integers, 0 = none; flags are 0 or 1; event
// ids are the 16 bytes of a UUIDv7; data from callers and local servers is stored as bytes, never as
// text. Codes of states: 0 queued, 1 delivering, 2 delivered, 3 failed, 4 interrupted, 5 canceled, 6
// rejected, 7 incomplete, 8 answered. Codes of attempt kinds: 0 original, 1 replay. A number in the folder both
// has the type INTEGER, which has four bytes in Postgres.
package migrations

import (
	"cmp"
	"embed"
	"io/fs"
	"slices"
)

//go:embed both/*.sql sqlite/*.sql postgres/*.sql
var files embed.FS

// SQLite returns the migrations for SQLite.
func SQLite() fs.FS { return engine("sqlite") }

// Postgres returns the migrations for Postgres 14 or newer.
func Postgres() fs.FS { return engine("postgres") }

// engine is the name of the folder of an engine. As a file system it has the files of that folder and those of the
// folder both.
type engine string

// Open implements fs.FS.
func (e engine) Open(name string) (fs.File, error) {
	if f, err := files.Open(string(e) + "/" + name); err == nil {
		return f, nil
	}
	return files.Open("both/" + name)
}

// ReadDir implements fs.ReadDirFS.
func (e engine) ReadDir(string) ([]fs.DirEntry, error) {
	own, err := files.ReadDir(string(e))
	if err != nil {
		return nil, err
	}
	both, err := files.ReadDir("both")
	all := append(own, both...)
	slices.SortFunc(all, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return all, err
}
