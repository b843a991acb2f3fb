package store_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"relay/store"
	"relay/store/schematest"
)

// TestOpenBesideALongTransaction: Open succeeds although another connection locks the database for longer than
// the writer waits for a lock.
func TestOpenBesideALongTransaction(t *testing.T) {
	t.Parallel()
	o := store.Options{DataDir: t.TempDir()}
	mustServe(t, o)
	conn, err := database(t, o).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.ExecContext(t.Context(), `BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	var ended sync.WaitGroup
	ended.Add(1)
	time.AfterFunc(2300*time.Millisecond, func() { // longer than the 2 s for which the writer waits
		defer ended.Done()
		if _, err := conn.ExecContext(context.WithoutCancel(t.Context()), `ROLLBACK`); err != nil {
			t.Error(err)
		}
	})
	mustOpen(t, o)
	ended.Wait()
}

// If the first connection to Postgres gets no answer, the start tries again. It would fail with any time for a login if
// it did not; a longer time is for a machine on which a login at Postgres itself takes more than a second.
func TestOpenOfABusyPostgres(t *testing.T) {
	t.Parallel()
	address, err := url.Parse(schematest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, login := range []string{"1", "2", "4"} {
		if err = openBehind(t, *address, login); err == nil {
			return
		}
	}
	t.Error(err)
}

// openBehind opens a store through a listener in front of its Postgres that never answers on the first connection. login
// is the number of seconds in which a login has to end.
func openBehind(t *testing.T, address url.URL, login string) error {
	t.Helper()
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = front.Close() }()
	q := address.Query()
	socket := filepath.Join(q.Get("host"), ".s.PGSQL.5432")
	q.Del("host")
	q.Set("connect_timeout", login)
	address.Host, address.RawQuery = front.Addr().String(), q.Encode()
	go func() {
		for n := 0; ; n++ {
			c, err := front.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
			if n > 0 {
				go carry(c, socket)
			}
		}
	}()
	s, err := store.Open(t.Context(), store.Options{URL: address.String(), DataDir: t.TempDir()})
	if err != nil {
		return err
	}
	return s.Close()
}

// carry copies bytes between a connection and a socket until one of them ends.
func carry(c net.Conn, socket string) {
	defer func() { _ = c.Close() }()
	server, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go func() {
		_, _ = io.Copy(server, c)
		_ = server.Close()
	}()
	_, _ = io.Copy(c, server)
}
