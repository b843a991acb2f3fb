// Package spool keeps the steps of the store's journal in a file while Postgres is down. The file is bounded,
// synced and in order, and parts of bodies can be read from it. Package journal moves the steps from the spool
// to the database.
package spool

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"
	"golang.org/x/time/rate"

	"relay"
	"relay/store/file"
)

const (
	retryAfter  = 5 * time.Second
	probeEvery  = 250 * time.Millisecond // time between two tests of the disk
	logInterval = 10 * time.Second       // time between two log lines about the same problem

	throttleLimit = 300 * time.Millisecond
	throttlePause = 2 * time.Millisecond
	throttleRatio = 4

	// A quarter of the spool is reserved for the ends of accepted events. Otherwise later requests could fill
	// the spool, and the response to a request that was already forwarded would be refused.
	reservedForEnds = 4
	reopenShare     = 8        // after a refusal, 1/8 of the space must be free before new events are accepted
	smallSpool      = 64 << 20 // a spool with a smaller limit counts as nearly full from its first step on
	maxRejected     = 10_000   // number of ids of refused events that are remembered
	typicalRequest  = 4 << 10  // bytes of a request of usual size
)

// Options describe a spool.
type Options struct {
	Dir      string // data dir
	Database string // name of the database in messages
	Limit    int64  // maximum size of the file in bytes; 0 = no spool
	VFS      string // file system of SQLite; "" = that of the operating system
	// Claimant returns the ids of the node that writes steps: its present id, and those before it
	// rejoined, separated by spaces.
	Claimant func() (node, former string)
	Log      *slog.Logger
}

// State holds the values of a spool that can be read at any time without waiting for its disk.
type State struct {
	Active       atomic.Bool // the spool has steps: new steps have to be appended to it
	Away         atomic.Bool // the database did not answer the last try to drain the spool
	IntakeClosed atomic.Bool
	Undrained    atomic.Int64 // bytes of steps that are not in the database yet
	Waiting      atomic.Int64 // number of steps that are not in the database yet
	Drained      atomic.Int64 // bytes of steps that reached the database since the start
	Refused      atomic.Int64
}

// Spool keeps the steps of the journal in a SQLite file of the data dir while Postgres does not accept them.
// While the spool is not empty, every further step is appended to it, to keep the order, until all steps are
// in the database. A spool whose limit is 0 is never used. Methods are safe for concurrent use.
type Spool struct {
	Options
	State
	Wake chan struct{}

	used atomic.Int64 // bytes of the file that hold steps
	// table is nil while the spool is empty. Readers of parts, metrics and readiness use table and the
	// state without mu, because mu is held while the file is written and synced.
	table atomic.Pointer[table]

	mu       sync.Mutex
	last     int64 // number of the newest step
	stored   int64 // number of the newest step that is in the database
	rejected map[relay.ID]bool
	since    time.Time // when the first step was put into the empty spool
	steps    int64     // number of steps that were put into the spool since then, including the first
	often    rate.Sometimes

	probeMu    sync.Mutex
	probed     time.Time // when the disk was last tested
	writeError error     // error of that test
}

// New returns the spool of a data dir. It does not open the file.
func New(o Options) *Spool {
	return &Spool{Options: o, Wake: make(chan struct{}, 1), often: rate.Sometimes{Interval: logInterval}}
}

// Enabled reports whether the spool is used at all.
func (p *Spool) Enabled() bool { return p.Limit > 0 }

// logThrottled logs an error at most once in logInterval.
func (p *Spool) logThrottled(what string, args ...any) {
	p.often.Do(func() { p.Log.Error(what, args...) })
}

var errFull = &relay.Error{
	Code: relay.CodeStoreUnavailable, RetryAfter: retryAfter,
	Detail: "the relay's database is unavailable and its spool is full; try again in a moment",
}

// ErrCatchingUp is the error of operations that have to wait until the steps in the spool are stored.
var ErrCatchingUp = &relay.Error{
	Code: relay.CodeStoreUnavailable, RetryAfter: 2 * time.Second,
	Detail: "the relay's database is unavailable or its spool is being stored; try again in a moment",
}

// CaughtUp returns an error while steps wait in the spool. A claim made during that time could
// overtake one of these steps, or be changed by a step that is written twice.
func (p *Spool) CaughtUp() error {
	if p.Active.Load() {
		return ErrCatchingUp
	}
	return nil
}

// ErrUnready is the error of a full spool, with advice for the operator.
var ErrUnready = errors.New("store: postgres is unavailable and the spool is full; bring postgres back, or raise --spool-limit")

// intakeLimit returns the number of bytes of the file that new events may fill.
func (p *Spool) intakeLimit() int64 { return Intake(p.Limit) }

// Intake returns the number of bytes that new events may fill in a spool with the given limit.
func Intake(limit int64) int64 {
	space := limit - walLimit(limit)
	return space - space/reservedForEnds
}

// Admits returns nil if a new event fits into the spool, or goes to the database instead. need is the
// approximate size of the event in bytes. Admits answers from memory and never waits for the disk.
func (p *Spool) Admits(need int64) *relay.Error {
	if p.Active.Load() && (p.IntakeClosed.Load() || p.used.Load()+need+pageSize > p.intakeLimit()) {
		return errFull
	}
	return nil
}

// AdmitsTypical returns nil while an event of usual size would be accepted. Readiness uses it in addition to
// IntakeClosed: Admits refuses requests that do not fit before any of their steps reaches the spool, and only a
// refused step sets IntakeClosed.
func (p *Spool) AdmitsTypical() *relay.Error { return p.Admits(min(typicalRequest, p.intakeLimit()/8)) }

// NearlyFull reports whether the space for new events is so small that concurrent requests could fill it.
func (p *Spool) NearlyFull() bool {
	return p.Active.Load() && (p.Limit < smallSpool || p.used.Load() > p.intakeLimit()/2)
}

// CheckWritable returns nil if the disk of the spool accepts data. It writes a small test file, because a fault
// would otherwise show only with the next event. If the last test was less than probeEvery ago, CheckWritable
// returns its result.
func (p *Spool) CheckWritable() error {
	p.probeMu.Lock()
	defer p.probeMu.Unlock()
	if time.Since(p.probed) < probeEvery {
		return p.writeError
	}
	path := filepath.Join(p.Dir, ".spool-test")
	err := file.Write(path, make([]byte, typicalRequest))
	if err == nil {
		err = os.Remove(path)
	}
	if p.writeError, p.probed = nil, time.Now(); err != nil {
		p.writeError = fmt.Errorf("store: postgres is unavailable and the spool cannot be written: %w; make room in the data dir, or bring postgres back", err)
	}
	return p.writeError
}

// open opens the file if it is not open yet. Call it with the lock held.
func (p *Spool) open() (*table, error) {
	if t := p.table.Load(); t != nil {
		return t, nil
	}
	t, c, err := openTable(p.Dir, p.Limit, p.stored, p.VFS)
	if file.Damaged(err) {
		if err = p.setAside(t, err); err == nil {
			t, c, err = openTable(p.Dir, p.Limit, p.stored, p.VFS)
		}
	}
	if err != nil {
		return nil, err
	}
	p.last = max(p.last, c.Last)
	p.Undrained.Store(c.Bytes)
	p.Waiting.Store(c.Steps)
	p.table.Store(t)
	p.updateUsed(t)
	return t, nil
}

// setAside renames a file that SQLite cannot read. A power loss does not damage a file, but a faulty
// disk may. Call it with the lock held.
func (p *Spool) setAside(t *table, cause error) error {
	p.table.Store(nil)
	err := t.close()
	name := fmt.Sprintf("spool-%d%s", time.Now().UnixNano(), damagedSuffix)
	for _, suffix := range []string{"", "-wal"} {
		if moved := os.Rename(t.path+suffix, filepath.Join(p.Dir, name+suffix)); !errors.Is(moved, os.ErrNotExist) {
			err = errors.Join(err, moved)
		}
	}
	p.Log.Error("the spool file is damaged; its unstored steps stay in the data dir: keep the file, sqlite3 may recover them", "file", name, "err", cause)
	p.Undrained.Store(0)
	p.Waiting.Store(0)
	p.used.Store(0)
	p.stored = p.last // the steps in the damaged file no longer count as waiting
	return errors.Join(err, file.SyncDir(p.Dir))
}

// updateUsed reads the number of used bytes of the file; free pages are reused, so they do not count.
// Call it with the lock held.
func (p *Spool) updateUsed(t *table) {
	var pages int64
	if err := t.pages.QueryRow().Scan(&pages); err == nil {
		p.used.Store(pages * pageSize)
	}
}

// LoadLeft opens the file that an earlier process of this data dir left, if there is one.
func (p *Spool) LoadLeft() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old, _ := filepath.Glob(filepath.Join(p.Dir, oldFiles)); len(old) > 0 {
		return fmt.Errorf("requests that are not in the database wait in %s, which an earlier version of relayd wrote: "+
			"start that version with this data dir until the file is gone, or move the file away to give the requests up", old[0])
	}
	if _, err := os.Stat(filepath.Join(p.Dir, fileName)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if _, err := p.open(); err != nil {
		return fmt.Errorf("%w; events wait in it: make sure that relayd may read and write it", err)
	}
	p.markActive(nil) // the file may have no steps, but the drainer then removes it
	return nil
}

func (p *Spool) markActive(why error) {
	if p.Active.Load() {
		return
	}
	p.since, p.steps = time.Now(), 0
	p.Active.Store(true)
	if why != nil {
		p.Log.Warn("postgres is not accepting events; spooling to the data dir until it recovers (do not touch spool.db)",
			"database", p.Database, "dir", p.Dir, "limit", p.Limit, "err", why)
	}
	select {
	case p.Wake <- struct{}{}:
	default:
	}
}

// Put makes steps durable in the spool because the database did not accept them. The parameter why is the
// reason, nil if the spool is already active. It returns the steps that did not fit, the number of bytes of
// the stored steps, and the reason of the refusals. If the space for new events is used up, it refuses new
// events and further steps of refused events; the ends of other events may still fill the reserved space.
// After a refusal no new event is accepted until an eighth of the space for new events is free.
func (p *Spool) Put(steps []*Step, why error) (refused []*Step, bytes int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	node, former := p.Claimant()
	rows, size := newRows(steps, node, former)
	if len(p.rejected) > 0 || p.IntakeClosed.Load() || p.used.Load()+size+pageSize > p.intakeLimit() {
		if steps, refused = p.reject(steps, rows); len(refused) > 0 {
			rows, size = newRows(steps, node, former)
			err = errFull
		}
	}
	if p.Refused.Add(int64(len(refused))); len(steps) == 0 {
		return refused, 0, err
	}
	if p.used.Load()+size+pageSize > p.Limit-walLimit(p.Limit) {
		p.Refused.Add(int64(len(steps)))
		p.closeIntake()
		return append(refused, steps...), 0, errFull
	}
	if err := p.append(rows); err != nil {
		p.Refused.Add(int64(len(steps)))
		p.logThrottled("the spool cannot be written; callers get 503: make room in the data dir, or bring postgres back", "dir", p.Dir, "err", err)
		return append(refused, steps...), 0, &relay.Error{
			Code: relay.CodeStoreUnavailable, RetryAfter: retryAfter, Detail: errFull.Detail, Cause: err,
		}
	}
	p.Undrained.Add(size)
	p.Waiting.Add(int64(len(steps)))
	p.markActive(why)
	p.steps += int64(len(steps))
	return refused, size, err
}

// append makes rows durable. Call it with the lock held.
func (p *Spool) append(rows []Row) error {
	t, err := p.open()
	if err != nil {
		return err
	}
	err = t.transact(func(tx *sqlx.Tx) error {
		insert := tx.Stmt(t.insert)
		for i := range rows {
			r := &rows[i]
			r.Seq = p.last + 1 + int64(i)
			if _, err := insert.Exec(r.Seq, r.Node, r.Former, r.Part, int64(r.Sum), r.Data); err != nil {
				return err
			}
		}
		return nil
	})
	if file.Damaged(err) {
		return errors.Join(err, p.setAside(t, err)) // the next steps go to a new file
	}
	if err != nil {
		return err
	}
	p.last += int64(len(rows))
	p.updateUsed(t)
	return nil
}

// closeIntake refuses new events until there is space again. Call it with the lock held.
func (p *Spool) closeIntake() {
	if p.Waiting.Load() > 0 { // without waiting steps, nothing is drained, and no space becomes free
		p.IntakeClosed.Store(true)
	}
	p.logThrottled("the spool is full; callers get 503 until postgres is back: bring it back, or raise --spool-limit",
		"database", p.Database, "limit", p.Limit)
}

// reject splits steps into those to store and those to refuse. It refuses new events if there is no space,
// and all further steps of a refused event. rows are the encoded steps.
func (p *Spool) reject(steps []*Step, rows []Row) (on, away []*Step) {
	size := p.used.Load() + pageSize
	for i, st := range steps {
		if !p.rejected[st.ID] {
			size += rows[i].size()
		}
	}
	space := !p.IntakeClosed.Load() && size <= p.intakeLimit()
	gone := map[relay.ID]bool{}
	for _, st := range steps {
		begins := st.Kind == Accept || st.Kind == Chunk && st.N == 0 // a Chunk with N = 0 is a part of a request
		if p.rejected[st.ID] || gone[st.ID] || !space && begins {
			gone[st.ID] = true
			away = append(away, st)
		} else {
			on = append(on, st)
		}
	}
	for id := range gone {
		if p.rejected == nil {
			p.rejected = map[relay.ID]bool{}
		}
		if len(p.rejected) < maxRejected {
			p.rejected[id] = true
		}
	}
	if !space && len(away) > 0 {
		p.closeIntake()
	}
	return on, away
}

// Next reads the oldest steps that are not in the database, in order: steps of one node, at most as many as
// limit and bytes (their total size) allow, but at least one. It returns no rows if there are no such steps.
func (p *Spool) Next(limit int, bytes int64) ([]Row, error) {
	p.mu.Lock()
	t, stored := p.table.Load(), p.stored
	p.mu.Unlock()
	if t == nil {
		return nil, nil
	}
	rows, err := t.next(stored, limit, bytes)
	if file.Damaged(err) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return nil, p.setAside(t, err)
	}
	return rows, err
}

// Advance notes that rows are in the database, and deletes them. If they cannot be deleted, they stay until the
// file is removed, and spool_marks in the database says that they are stored.
func (p *Spool) Advance(rows []Row) {
	var bytes int64
	for i := range rows {
		bytes += rows[i].size()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Drained.Add(bytes)
	last := rows[len(rows)-1].Seq
	if last <= p.stored { // the file of these steps was set aside meanwhile, so they no longer count
		return
	}
	p.stored = last
	if t := p.table.Load(); t != nil {
		if _, err := t.write.Exec(`DELETE FROM steps WHERE seq <= ?`, p.stored); err != nil {
			p.logThrottled("steps that are in postgres cannot be deleted from the spool file; its space becomes free when all steps are stored", "dir", p.Dir, "err", err)
		}
		p.updateUsed(t)
	}
	p.Undrained.Add(-bytes)
	p.Waiting.Add(-int64(len(rows)))
	if p.used.Load() <= p.intakeLimit()-p.intakeLimit()/reopenShare {
		p.IntakeClosed.Store(false)
	}
}

// MarkEmpty makes the spool inactive and removes its file if all steps are in the database; otherwise empty is
// false. After an error, the file may still exist, or exist again after a power loss. The rows of spool_marks,
// which say that the steps of the file are in the database, then have to stay.
func (p *Spool) MarkEmpty() (empty bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Waiting.Load() > 0 {
		return false, nil
	}
	if t := p.table.Swap(nil); t != nil {
		if err = t.remove(); err != nil {
			p.Log.Warn("the spool file cannot be removed; its steps are in postgres, and are not stored twice", "err", err)
		}
	}
	p.used.Store(0)
	p.Undrained.Store(0)
	p.IntakeClosed.Store(false)
	p.rejected = nil
	p.Active.Store(false)
	p.Log.Info("the spool is empty: all its steps are stored in postgres", "steps", p.steps, "after", time.Since(p.since).Round(time.Millisecond))
	return true, err
}

// Throttle delays a committer that has put bytes into the spool while the spool is being drained. It waits
// until a multiple of these bytes is drained, at most for throttleLimit. Without this delay, callers that are
// faster than the database keep the spool from ever becoming empty.
func (p *Spool) Throttle(bytes int64) {
	goal, late := p.Drained.Load()+throttleRatio*bytes, time.Now().Add(throttleLimit)
	for p.Active.Load() && !p.Away.Load() && !p.IntakeClosed.Load() && p.Drained.Load() < goal && time.Now().Before(late) {
		time.Sleep(throttlePause)
	}
}

// Part reads part i of a stored body from the spool. It returns nil if the spool does not have the
// part, or cannot read it; the part may be in the database. n = 0 is the request, n = k the response
// of attempt k.
func (p *Spool) Part(id relay.ID, n, i int) []byte {
	var rows []Row
	p.readParts(&rows, `SELECT seq, sum, data FROM steps WHERE part = ? LIMIT 1`, partKey{id, n, i}.bytes())
	if len(rows) == 0 {
		return nil
	}
	st, err := rows[0].Step()
	if err != nil {
		return nil
	}
	return st.Data
}

// MissingParts returns the numbers of the parts of a body that are not in the spool.
func (p *Spool) MissingParts(id relay.ID, n, parts int) (missing []int) {
	var there [][]byte
	if parts > 0 {
		p.readParts(&there, `SELECT part FROM steps WHERE part BETWEEN ? AND ?`, partKey{id, n, 0}.bytes(), partKey{id, n, -1}.bytes())
	}
	for i := range parts {
		if !slices.ContainsFunc(there, func(key []byte) bool { return bytes.Equal(key, partKey{id, n, i}.bytes()) }) {
			missing = append(missing, i)
		}
	}
	return missing
}

// readParts reads rows about parts of bodies. It reads nothing if the file was closed, because all its steps
// are in the database or the file is damaged.
func (p *Spool) readParts(rows any, query string, args ...any) {
	if t := p.table.Load(); t != nil && p.Active.Load() {
		_ = t.read.Select(rows, query, args...)
	}
}

// Close closes the file. The next start writes its steps to the database.
func (p *Spool) Close() (err error) {
	if n := p.Undrained.Load(); n > 0 {
		p.Log.Warn("events wait in the spool; they are stored at the next start with this data dir", "dir", p.Dir, "bytes", n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.table.Swap(nil); t != nil {
		err = t.close()
	}
	return err
}
