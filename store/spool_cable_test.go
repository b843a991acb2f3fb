//go:build unix

package store_test

import (
	"bytes"
	"cmp"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"relay"
	"relay/store"
	"relay/store/pgtest"
	"relay/store/schematest"
)

// cable forwards connections to Postgres and can be cut. relayd's ends are then closed, but Postgres does not
// notice the cut, as in a network outage.
type cable struct {
	to string
	ln net.Listener

	mu     sync.Mutex
	pulled bool
	catch  chan struct{}         // if not nil: the next statement that contains word pulls the cable and closes catch
	word   string                // see catch; "" = COMMIT
	freeze bool                  // the connection of that statement stays open but carries no more bytes
	relayd map[net.Conn]struct{} // relayd's ends of the present connections
	server []net.Conn            // Postgres' ends of all connections so far
}

func overCable(t *testing.T, address string) (string, *cable) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "relay-cut") // the path of a socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	const name = ".s.PGSQL.5432"
	q := u.Query()
	c := &cable{to: filepath.Join(q.Get("host"), name), relayd: map[net.Conn]struct{}{}}
	if c.ln, err = net.Listen("unix", filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
	go c.accept()
	t.Cleanup(func() {
		_ = c.ln.Close()
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, conn := range c.server {
			_ = conn.Close()
		}
		_ = os.RemoveAll(dir)
	})
	q.Set("host", dir)
	u.RawQuery = q.Encode()
	return u.String(), c
}

func (c *cable) accept() {
	for {
		relayd, err := c.ln.Accept()
		if err != nil {
			return
		}
		c.mu.Lock()
		server, err := net.Dial("unix", c.to)
		if c.pulled || err != nil {
			_ = relayd.Close()
		} else {
			c.relayd[relayd] = struct{}{}
			c.server = append(c.server, server)
			go c.pass(server, relayd, true)
			go c.pass(relayd, server, false)
		}
		c.mu.Unlock()
	}
}

func (c *cable) pass(to, from net.Conn, up bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		c.mu.Lock()
		if up && c.catch != nil && bytes.Contains(buf[:n], []byte(cmp.Or(c.word, "COMMIT"))) {
			close(c.catch)
			c.catch = nil
			if c.freeze {
				c.mu.Unlock()
				return
			}
			c.pull()
		}
		gone := c.pulled
		c.mu.Unlock()
		if gone {
			return
		}
		if n > 0 {
			_, _ = to.Write(buf[:n]) // an error is ignored, because the next read fails if the other end was closed
		}
		if err != nil {
			_ = to.Close()
			return
		}
	}
}

// pull cuts every connection. The caller holds the lock.
func (c *cable) pull() {
	c.pulled = true
	for conn := range c.relayd {
		_ = conn.Close()
		delete(c.relayd, conn)
	}
}

func (c *cable) plug() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pulled = false
}

// If the connection is cut during the transaction that makes partitions, the locks of this transaction must
// not block all inserts.
func TestPartitionsOverACutLine(t *testing.T) {
	t.Parallel()
	pg := pgtest.Start(t, pgtest.Options{})
	direct := pg.URL(t)
	if _, _, err := mustOpen(t, store.Options{URL: direct, DataDir: t.TempDir()}).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	address, line := overCable(t, direct)
	cut := make(chan struct{})
	line.catch, line.word = cut, "ATTACH PARTITION"
	s := mustOpen(t, store.Options{URL: address, DataDir: t.TempDir()})
	go func() { _ = s.Serve(t.Context(), deaf) }()
	<-cut
	other := mustServe(t, store.Options{URL: direct, DataDir: t.TempDir(), NodeName: "other"})
	alias := withAlias(t, other)
	eventually(t, "an event is stored", func() bool {
		_, err := capture(other, alias)
		return err == nil
	})
}

// The connection to Postgres is cut during a transaction, and Postgres does not notice. The relay continues over
// new connections.
func TestSpoolAfterACutLine(t *testing.T) {
	t.Parallel()
	pg := pgtest.Start(t, pgtest.Options{})
	address, line := overCable(t, pg.URL(t))
	s := mustServe(t, store.Options{URL: address, DataDir: t.TempDir(), SpoolLimit: 64 << 20, Log: testLog(t)})
	alias := withAlias(t, s)
	var l ledger
	if err := l.ask(s, alias); err != nil {
		t.Fatal(err)
	}
	cut := make(chan struct{})
	line.mu.Lock()
	line.catch = cut
	line.mu.Unlock()
	eventually(t, "the line is cut in the middle of a transaction", func() bool {
		if err := l.ask(s, alias); err != nil {
			t.Fatal(err)
		}
		select {
		case <-cut:
			return true
		default:
			return false
		}
	})
	for range 20 {
		if err := l.ask(s, alias); err != nil {
			t.Fatal(err)
		}
	}
	line.plug()
	took := backInService(t, s)
	if missing := l.missing(t, s); missing > 0 || l.refused > 0 {
		t.Errorf("of %d answered %d are missing, %d were refused", len(l.answered), missing, l.refused)
	}
	if _, err := s.BeginReplay(t.Context(), relay.System(), l.answered[0], false); err != nil {
		t.Error(err)
	}
	t.Logf("back in service %v after the line was back", took.Round(time.Millisecond))
}

// A node can be stopped although Postgres does not answer its LISTEN.
func TestCloseWhileAListenerWaits(t *testing.T) {
	t.Parallel()
	address := schematest.URL(t)
	direct, c := overCable(t, address)
	frozen := make(chan struct{})
	c.catch, c.word, c.freeze = frozen, "LISTEN", true
	s := mustServe(t, store.Options{URL: address, DirectURL: direct, DataDir: t.TempDir(), Log: testLog(t)})
	<-frozen
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits for an answer to LISTEN")
		c.mu.Lock()
		defer c.mu.Unlock()
		c.pull()
	}
}

// A node that was declared dead rejoins although the direct URL, which is for migrations and locks, is
// unreachable.
func TestRejoinWithoutTheDirectURL(t *testing.T) {
	t.Parallel()
	address := schematest.URL(t)
	direct, c := overCable(t, address)
	o := store.Options{URL: address, DirectURL: direct, DataDir: t.TempDir(), Log: testLog(t)}
	s := mustServe(t, o)
	c.mu.Lock()
	c.pull()
	c.mu.Unlock()
	before := s.NodeID()
	if _, err := database(t, o).Exec(`UPDATE nodes SET state = 'dead'`); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it serves as a new node", func() bool { return s.NodeID() != before })
}

// TestCommitWithoutAnAnswer: the connection is cut after the COMMIT of a queued replay was sent and before it
// was answered. The error then says that the replay may or may not have been made. A replay that never reached
// the database gets another error.
func TestCommitWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	address, line := overCable(t, schematest.URL(t))
	s := mustServe(t, store.Options{URL: address, DataDir: t.TempDir(), SpoolLimit: 64 << 20, Log: testLog(t)})
	alias := withAlias(t, s)
	id, err := capture(s, alias)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a commit is lost", func() bool {
		line.mu.Lock()
		line.catch, line.pulled = make(chan struct{}), false
		line.mu.Unlock()
		_, err := s.BeginReplay(t.Context(), relay.System(), id, false)
		if err == nil || relay.AsError(err).Code != relay.CodeStoreUnavailable {
			return false // another transaction was cut
		}
		return relay.MayBeDone(err)
	})
	line.mu.Lock()
	line.pull()
	line.mu.Unlock()
	eventually(t, "the database is known to be away", func() bool {
		_, err := s.BeginReplay(t.Context(), relay.System(), id, false)
		return err != nil && !relay.MayBeDone(err)
	})
	line.plug()
	backInService(t, s)
}
