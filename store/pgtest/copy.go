package pgtest

import (
	"fmt"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

// model is the database that Copy copies.
var model struct {
	once sync.Once
	err  error
}

var copies atomic.Int64

// Copy returns the address of a database for the test alone, on the server of URL. It is a copy of a model, which
// fill fills from empty at the first call in a test process; every call passes the same fill. A copy of many
// tables takes a tenth of the computing that making the tables takes. The database is dropped when the test ends.
func Copy(t testing.TB, fill func(address string) error) string {
	t.Helper()
	s := shared(t, false)
	name := fmt.Sprintf("t%d_model", os.Getpid())
	model.once.Do(func() {
		model.err = s.exec(`CREATE DATABASE ` + name)
		if model.err == nil {
			model.err = fill(s.database(name))
		}
	})
	if model.err != nil {
		t.Fatal(model.err)
	}
	own := fmt.Sprintf("t%d_copy%d", os.Getpid(), copies.Add(1))
	if err := s.exec(`CREATE DATABASE ` + own + ` TEMPLATE ` + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.exec(`DROP DATABASE ` + own + ` WITH (FORCE)`); err != nil { // a connection of a killed relayd may still be open
			t.Error(err)
		}
	})
	return s.database(own)
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
