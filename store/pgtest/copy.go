package pgtest

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

// model is the database that Copy copies.
var model struct {
	once   sync.Once
	err    error
	create string // statement that makes a copy; its parameter is the name

	mu   sync.Mutex
	db   *sql.DB // connection for the copies, because a connection for each statement costs as much as a copy; nil without users
	used int     // number of users of db
}

// use opens the connection for the copies, or returns the open one. The last call of the function leave closes it:
// a goroutine of a connection that stays open would count as left behind by the tests of a package.
func (s *Server) use() (db *sql.DB, leave func(), err error) {
	model.mu.Lock()
	defer model.mu.Unlock()
	if model.db == nil {
		if model.db, err = sql.Open("postgres", s.address()); err != nil {
			return nil, nil, err
		}
	}
	model.used++
	return model.db, func() {
		model.mu.Lock()
		defer model.mu.Unlock()
		if model.used--; model.used == 0 {
			_ = model.db.Close()
			model.db = nil
		}
	}, nil
}

var copies atomic.Int64

// Copy returns the address of a database for the test alone, on the server of URL. It is a copy of a model, which
// fill fills from empty at the first call in a test process; every call passes the same fill. A copy of many
// tables takes a tenth of the computing that making the tables takes. The database is dropped when the test ends.
func Copy(t testing.TB, fill func(address string) error) string {
	t.Helper()
	s := shared(t, false)
	model.once.Do(func() { model.err = s.makeModel(fill) })
	if model.err != nil {
		t.Fatal(model.err)
	}
	db, leave, err := s.use()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(leave)
	own := fmt.Sprintf("t%d_copy%d", os.Getpid(), copies.Add(1))
	if _, err := db.Exec(fmt.Sprintf(model.create, own)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.Exec(`DROP DATABASE ` + own + ` WITH (FORCE)`); err != nil { // a connection of a killed relayd may still be open
			t.Error(err)
		}
	})
	return s.database(own)
}

// makeModel makes the model. The copies are copies of its files: without fsync, this takes half of the computing
// that Postgres 15 needs to write each page to its log, as it does otherwise. Postgres 14 always copies files.
func (s *Server) makeModel(fill func(address string) error) (err error) {
	name := fmt.Sprintf("t%d_model", os.Getpid())
	db, leave, err := s.use()
	if err != nil {
		return err
	}
	defer leave()
	var version int
	if err := db.QueryRow(`SHOW server_version_num`).Scan(&version); err != nil {
		return err
	}
	model.create = `CREATE DATABASE %s TEMPLATE ` + name
	if version >= 150000 {
		model.create += ` STRATEGY file_copy`
	}
	if _, err := db.Exec(`CREATE DATABASE ` + name); err != nil {
		return err
	}
	return fill(s.database(name))
}

// database returns the address of a database of this server.
func (s *Server) database(name string) string {
	u, err := url.Parse(patient(s.address()))
	if err != nil {
		panic(err) // the address is written by this package
	}
	u.Path = "/" + name
	return u.String()
}
