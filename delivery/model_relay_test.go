package delivery_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"math/rand"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"relay"
	"relay/delivery"
	"relay/store"
)

// model is the state of a model test: one relay after another on the same store, with
// the local server (site) behind their tunnels.
type model struct {
	t    *testing.T
	rnd  *rand.Rand
	site *site

	dirs      string // the directory that holds the data dirs
	runs      int
	dir       string
	db        *sql.DB // a second connection to the database file, to read it and to make writes fail
	real      *store.Store
	slowStore *slowStore
	d         *delivery.Delivery
	alias     *relay.Alias
	ended     chan struct{} // closed when the current relay has ended
	links     []*link       // the last link has the alias, unless the alias is offline
	off       bool
	busy      sync.WaitGroup // goroutines that wait for a result

	mu       sync.Mutex
	last     int
	log      []string
	wrong    []string
	promises []promise
	deleted  map[int]bool
	numbers  map[relay.ID]int // numbers of the events
}

// promise is something that a caller or user was told, and that must stay true.
type promise struct {
	what   string
	number int
	n      int // number of the attempt
	holds  func(e *eventRow, a *attemptRow) bool
}

func (w *model) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

func (w *model) fault(format string, args ...any) {
	w.say("WRONG "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// must ends the test with a list of all steps if err is not nil. It panics, because in a bubble of synctest the
// goroutines that still run would hide a plain failure.
func (w *model) must(err error) {
	if err != nil {
		panic(strings.Join(w.log, "\n") + "\n" + err.Error())
	}
}

// newTemplate makes a data dir with one alias, to be copied.
func newTemplate(t *testing.T) string {
	ctx, dir := context.Background(), t.TempDir()
	s, err := store.Open(ctx, store.Options{DataDir: dir})
	must(t, err)
	_, _, err = s.Migrate(ctx)
	must(t, err)
	_, err = s.CreateAccount(ctx, relay.System(), "alice", false)
	must(t, err)
	_, err = s.CreateAlias(ctx, relay.System(), "hook", "alice")
	must(t, err)
	must(t, s.Close())
	return dir
}

// copyDir returns a new data dir with the current files of another one.
func (w *model) copyDir(from string) string {
	w.runs++
	to := filepath.Join(w.dirs, fmt.Sprint(w.runs))
	w.must(os.MkdirAll(to, 0o700))
	files, err := filepath.Glob(filepath.Join(from, "*"))
	w.must(err)
	for _, name := range files {
		if filepath.Ext(name) == ".db-shm" {
			continue
		}
		in, err := os.Open(name)
		w.must(err)
		out, err := os.Create(filepath.Join(to, filepath.Base(name)))
		w.must(err)
		_, err = io.Copy(out, in)
		w.must(err)
		w.must(in.Close())
		w.must(out.Close())
	}
	return to
}

// start starts a relay on the data dir.
func (w *model) start() {
	ctx := context.Background()
	var err error
	w.db, err = sql.Open("sqlite", "file:"+filepath.Join(w.dir, "relay.db")+"?_pragma=busy_timeout(5000)")
	w.must(err)
	// The relay does not start on a failing database.
	w.heal()
	w.real, err = store.Open(ctx, store.Options{DataDir: w.dir})
	w.must(err)
	w.slowStore = &slowStore{Store: w.real, w: w}
	w.ended, w.links, w.off = make(chan struct{}), nil, true
	w.d = delivery.New(delivery.Options{
		Store: w.slowStore, MaxHead: 128 << 10, MaxBody: 32 << 20, MaxResponseCapture: 32 << 20,
		ResponseTimeout: 20 * time.Second, QueueLimit: 10000, QueueBytes: 1 << 30,
	})
	w.real.SetRunning(w.d.Running)
	w.must(w.real.Serve(ctx, w.d.Publish))
	w.must(w.d.Start(ctx))
	w.alias, err = w.real.Alias(ctx, relay.System(), "hook")
	w.must(err)
}

// stop stops the relay. It cuts requests that have not ended within the time drain.
func (w *model) stop(drain time.Duration) {
	ctx, cancel := timeout(drain)
	defer cancel()
	if drain == 0 {
		cancel()
	}
	_ = w.d.Close(ctx)
	w.end()
}

// kill ends the relay like kill -9: the next relay gets the files as they are now.
func (w *model) kill() {
	// After Wait, no step of the store is half written.
	synctest.Wait()
	w.slowStore.kill()
	for _, l := range w.links {
		l.lose()
	}
	dir := w.copyDir(w.dir)
	w.stop(0)
	w.dir = dir
}

func (w *model) end() {
	for _, l := range w.links {
		l.lose()
		l.hold.Detach(false)
	}
	close(w.ended)
	w.busy.Wait()
	for _, l := range w.links {
		l.wg.Wait()
	}
	w.slowStore.flush()
	w.must(w.real.Close())
	w.must(w.db.Close())
}

// attach makes a new tunnel, which takes over the alias from an existing one.
func (w *model) attach(lazy bool) {
	l := newLink(w, lazy)
	w.links, w.off = append(w.links, l), false
	l.hold = w.d.Attach(w.alias, l)
}

// link returns the tunnel that has the alias, nil if there is none.
func (w *model) link() *link {
	if w.off {
		return nil
	}
	return w.links[len(w.links)-1]
}

// send makes a caller send one request.
func (w *model) send(size int) {
	w.last++
	number := w.last
	head := request(number, size)
	c := newCaller(head[len(head)-size:])
	in := &relay.Inbound{
		From: netip.MustParseAddrPort("203.0.113.9:5201"), Arrived: time.Now(), Head: []byte(head[:len(head)-size]), Caller: c,
	}
	in.Alias, _ = w.d.Alias("hook")
	d := w.d
	leave := time.AfterFunc(40*time.Second, func() { c.in.finish(io.EOF) })
	w.busy.Go(func() {
		defer leave.Stop()
		out := d.Capture(context.Background(), in)
		w.say("event %d: answered %s %.20q", number, code(out), c.answer())
		w.promised(number, out, c)
	})
}

// fail makes every statement of one kind fail on a table; how is the kind, such as UPDATE.
func (w *model) fail(table, how string) {
	// The store has to be idle: in a bubble, a goroutine that waits for a lock of the database delays all others.
	synctest.Wait()
	_, err := w.db.Exec(`CREATE TRIGGER IF NOT EXISTS broken_` + table + how + ` BEFORE ` + how + ` ON ` + table + ` BEGIN SELECT RAISE(ABORT, 'broken'); END`)
	w.must(err)
}

func (w *model) heal() {
	synctest.Wait()
	var names []string
	rows, err := w.db.Query(`SELECT name FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'broken_%'`)
	w.must(err)
	for rows.Next() {
		var name string
		w.must(rows.Scan(&name))
		names = append(names, name)
	}
	w.must(rows.Err())
	for _, name := range names {
		_, err := w.db.Exec(`DROP TRIGGER ` + name)
		w.must(err)
	}
}
