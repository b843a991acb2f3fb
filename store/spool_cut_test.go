//go:build unix

package store_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay"
	"relay/store"
	"relay/store/pgtest"
)

// cuttingProxy is a proxy in front of Postgres that cuts connections. It cuts at any byte in either direction,
// or between a COMMIT and its answer.
type cuttingProxy struct {
	to   string
	ln   net.Listener
	calm atomic.Bool
	cuts atomic.Int64
	lost atomic.Int64

	mu   sync.Mutex
	rng  *rand.Rand
	wait sync.WaitGroup
}

// behindCuttingProxy returns the address of a database that is reached through a cutting proxy.
func behindCuttingProxy(t *testing.T, address string, rng *rand.Rand) (string, *cuttingProxy) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "relay-cut") // the path of a socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	const name = ".s.PGSQL.5432"
	q := u.Query()
	c := &cuttingProxy{to: filepath.Join(q.Get("host"), name), rng: rng}
	if c.ln, err = net.Listen("unix", filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
	c.wait.Go(c.accept)
	t.Cleanup(func() { _ = c.ln.Close(); c.wait.Wait() })
	q.Set("host", dir)
	u.RawQuery = q.Encode()
	return u.String(), c
}

func (c *cuttingProxy) chance(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n)
}

func (c *cuttingProxy) accept() {
	for {
		relayd, err := c.ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", c.to)
		if err != nil {
			_ = relayd.Close()
			continue
		}
		cut := sync.OnceFunc(func() {
			c.cuts.Add(1)
			if !c.calm.Load() && c.chance(20) == 0 {
				_ = server.Close() // pass closes the relay's end a moment later
				return
			}
			_, _ = relayd.Close(), server.Close()
		})
		c.wait.Go(func() { c.pass(server, relayd, 200+c.chance(2_000_000), true, cut) })
		c.wait.Go(func() { c.pass(relayd, server, 200+c.chance(100_000), false, cut) })
	}
}

// pass copies bytes in one direction until it has copied bytesLeft bytes, and then cuts the connection. If the
// proxy is calm, it cuts nothing.
func (c *cuttingProxy) pass(to, from net.Conn, bytesLeft int, up bool, cut func()) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		calm := c.calm.Load()
		if bytesLeft -= n; bytesLeft < 0 && !calm {
			_, _ = to.Write(buf[:c.chance(n+1)])
			cut()
			return
		}
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				return
			}
		}
		if up && !calm && bytes.Contains(buf[:n], []byte("COMMIT")) && c.chance(12) == 0 {
			c.lost.Add(1)
			_ = from.Close()                                    // the relay loses its connection, but the server carries out the COMMIT
			_ = to.SetReadDeadline(time.Now().Add(time.Second)) // the goroutine of the other direction may still read an answer, and then ends
			_, _ = io.Copy(io.Discard, to)
			return
		}
		if err != nil {
			return
		}
	}
}

// told records the results that the store reported for the steps of one event.
type told struct {
	id                relay.ID
	body              []byte
	parts             int
	accept, end       error
	requeued, amended bool
}

// run enqueues the steps of one event in the order of a request, and records their results.
func (c *told) run(s *store.Store, alias int64, rng *rand.Rand) {
	c.id = s.NewID()
	size := rng.IntN(2000)
	if rng.IntN(12) == 0 {
		c.parts = 1 + rng.IntN(2)
		size = c.parts * relay.BodyPart
	}
	c.body = bytes.Repeat([]byte(c.id.String()), size/len(c.id.String())+1)[:size]
	now := time.Now() // package delivery, too, gives an event and its first attempt the same time
	e := &relay.Event{
		ID: c.id, AliasID: alias, Alias: "hooks", ReceivedAt: now, State: relay.StateDelivering, Method: "POST", Target: []byte("/" + c.id.String()),
		Request:  relay.Message{Head: []byte("POST / HTTP/1.1\r\n\r\n"), Body: relay.Body{Data: c.body, Size: int64(size), State: relay.BodyComplete}},
		Attempts: []relay.Attempt{{N: 1, Kind: relay.KindOriginal, State: relay.StateDelivering, ReceivedAt: now}},
	}
	for i := range c.parts {
		t := s.Chunk(c.id, 0, i, c.body[i*relay.BodyPart:(i+1)*relay.BodyPart])
		<-t.Done()
		if c.accept = t.Err(); c.accept != nil {
			return
		}
	}
	if c.parts > 0 {
		e.Request.Body.Parts, e.Request.Body.Stored, e.Request.Body.Data = c.parts, int64(size), nil
	}
	whole := *e
	if c.amended = c.parts == 0 && rng.IntN(4) == 0; c.amended {
		e.Request.Body = relay.Body{Data: []byte("a part"), Size: 6, State: relay.BodyReceiving}
	}
	steps := []*relay.Ticket{s.Accept(e)}
	if rng.IntN(2) == 0 {
		<-steps[0].Done()
	}
	if c.amended {
		steps = append(steps, s.Amend(&whole))
	}
	if c.requeued = rng.IntN(3) == 0; c.requeued {
		steps = append(steps, s.Requeue(c.id, 1))
	} else {
		steps = append(steps, s.Finish(c.id, &relay.Attempt{
			N: 1, State: relay.StateDelivered, EndedAt: time.Now(), HasResponse: true, Status: 200,
			Response: relay.Message{Head: []byte("HTTP/1.1 200 OK\r\n\r\n"), Body: relay.Body{Data: c.body[:min(len(c.body), 300)], Size: int64(min(len(c.body), 300))}},
		}, ""))
	}
	for i, t := range steps {
		<-t.Done()
		if i == 0 {
			c.accept = t.Err()
		} else if c.end == nil {
			c.end = t.Err()
		}
	}
}

// wrong returns a text with the difference between the database and the recorded results, or "".
func (c *told) wrong(t *testing.T, s *store.Store) string {
	if c.accept != nil {
		return ""
	}
	e, err := s.Event(t.Context(), relay.System(), c.id, 1<<20)
	if err != nil {
		return err.Error()
	}
	want := relay.StateDelivered
	if c.requeued {
		want = relay.StateQueued
	}
	switch {
	case len(e.Attempts) != 1:
		return fmt.Sprintf("%d attempts", len(e.Attempts))
	case c.end == nil && e.State != want:
		return fmt.Sprintf("is %s, not %s", e.State, want)
	case c.end == nil && !bytes.Equal(e.Request.Body.Data, c.body):
		return fmt.Sprintf("has %d bytes, not its %d", len(e.Request.Body.Data), len(c.body))
	case c.end == nil && !c.requeued && !bytes.Equal(e.Attempts[0].Response.Body.Data, c.body[:min(len(c.body), 300)]):
		return "has another response"
	}
	return ""
}

// Connections to Postgres are cut at random, also between a COMMIT and its answer. Afterwards every
// step that the store confirmed is in the database once, with its bytes, and the queue has the order
// of arrival.
func TestSpoolOfCutConnections(t *testing.T) {
	t.Parallel()
	const seed = 1 // the seed repeats the operations; the places of the cuts still differ between runs
	rng := rand.New(rand.NewPCG(seed, 1))
	pg := pgtest.Start(t, pgtest.Options{})
	direct := pg.URL(t)
	address, cut := behindCuttingProxy(t, direct, rng)
	cut.calm.Store(true)
	s := mustServe(t, store.Options{URL: address, DataDir: t.TempDir(), SpoolLimit: 512 << 20, Log: testLog(t)})
	alias := withAlias(t, s)
	cut.calm.Store(false)
	var mu sync.Mutex
	var all []*told
	var callers sync.WaitGroup
	over := time.Now().Add(3 * time.Second)
	for i := range 8 {
		own := rand.New(rand.NewPCG(seed, uint64(i+2)))
		callers.Go(func() {
			for time.Now().Before(over) {
				c := &told{}
				c.run(s, alias, own)
				mu.Lock()
				all = append(all, c)
				mu.Unlock()
				<-time.After(10 * time.Millisecond) // the pause limits the number of events
			}
		})
	}
	callers.Wait()
	cut.calm.Store(true)
	backInService(t, s)
	wrong, refused := 0, 0
	for _, c := range all {
		if c.accept != nil || c.end != nil {
			refused++
		}
		if what := c.wrong(t, s); what != "" {
			if wrong++; wrong < 10 {
				t.Errorf("%s (parts %d, amended %v, requeued %v) %s", c.id, c.parts, c.amended, c.requeued, what)
			}
		}
	}
	st := s.Stats()
	t.Logf("%d events, %d refused, %d wrong; %d cuts, %d answers of a COMMIT lost, %d batches", len(all), refused, wrong, cut.cuts.Load(), cut.lost.Load(), st.Batches)
	if refused > 0 {
		t.Errorf("%d were refused although the spool has room", refused)
	}
	var last time.Time
	for range all {
		mayClaim(t, s)
		c, err := s.Next(relay.NextClaim{Alias: alias, Auto: true})
		if err != nil {
			t.Fatal(err)
		}
		if c == nil {
			break
		}
		if at := c.Event.ReceivedAt; at.Before(last) {
			t.Errorf("%s goes out behind a later one", c.Event.ID)
		} else {
			last = at
		}
		kept(t, s.Finish(c.Event.ID, &relay.Attempt{N: c.N, State: relay.StateDelivered, EndedAt: time.Now()}, ""))
	}
}
