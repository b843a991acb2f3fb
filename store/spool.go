package store

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"relay"
)

const (
	segmentSize     = 8 << 20
	spoolRetryAfter = 5 * time.Second
	keepPaceLimit   = 300 * time.Millisecond
	keepPaceRatio   = 4
)

// spool keeps the steps of the journal on the disk of this machine while Postgres
// does not take them. Once something is in it every step goes to its end, until
// all of it is in the database: nothing overtakes. nil is a spool that is never
// used. Methods are safe for concurrent use.
type spool struct {
	dir   string
	node  string // whose data dir that is
	place string // of the database, for people
	limit int64  // bytes on the disk
	log   *slog.Logger

	filling atomic.Bool  // something is in it
	away    atomic.Bool  // the database did not answer the last time it was asked
	closed  atomic.Bool  // nothing new is taken: full, for who does not hold mu
	taken   atomic.Int64 // bytes on the disk, the same
	refused atomic.Int64
	wake    chan struct{} // of the drainer

	mu       sync.Mutex
	by       owner // of this process
	segments []*segment
	seq      int
	sealed   bool              // nothing more may be appended to the last segment
	full     error             // why nothing new is taken, nil when it is
	turned   map[relay.ID]bool // events that were refused since it was empty
	since    time.Time
	steps    int64         // taken since then
	drained  int64         // bytes that reached the database since the start
	moved    chan struct{} // closed when drained grows

	complained time.Time

	probing sync.Mutex
	probed  time.Time // when the disk was last tried
	faulty  error     // why it took nothing then
}

// newSpool gives the spool in a data dir; nil where there is to be none.
func newSpool(o Options, place string) *spool {
	if o.SpoolLimit <= 0 || o.DataDir == "" {
		return nil
	}
	return &spool{dir: o.DataDir, place: place, limit: o.SpoolLimit, log: o.Log, wake: make(chan struct{}, 1)}
}

// active tells whether steps have to go to the end of the spool.
func (p *spool) active() bool { return p != nil && p.filling.Load() }

// deserted tells whether the database is known to be away.
func (p *spool) deserted() bool { return p != nil && p.away.Load() }

// complain logs now and then what keeps happening; with the lock held.
func (p *spool) complain(what string, args ...any) {
	if time.Since(p.complained) > 10*time.Second {
		p.complained = time.Now()
		p.log.Error(what, args...)
	}
}

var errSpoolFull = &relay.Error{
	Code: relay.CodeStoreUnavailable, RetryAfter: spoolRetryAfter,
	Detail: "the relay's storage is away and what it keeps meanwhile is full; try again in a moment",
}

// errSpoolUnready is errSpoolFull for the operator, who can do something about it.
var errSpoolUnready = errors.New("store: postgres is away and the spool is full; bring postgres back, or raise --spool-limit")

// append writes to the last file, or to a new one when that has its size or could
// not be written.
func (p *spool) append(records []byte) error {
	defer func() { p.taken.Store(p.used()) }()
	if n := len(p.segments); n > 0 && !p.sealed && p.segments[n-1].end < p.segmentSize() {
		err := p.segments[n-1].append(records)
		p.sealed = err != nil
		return err
	}
	sg, seq, err := createSegment(p.dir, p.by, p.seq, records)
	p.seq = seq
	if err != nil {
		return fmt.Errorf("make spool file: %w", err)
	}
	p.segments, p.sealed = append(p.segments, sg), false
	return nil
}

// segmentSize is small where little may be kept, so that room comes back early.
func (p *spool) segmentSize() int64 { return min(segmentSize, p.limit/8) }

func (p *spool) begin(why error) {
	if p.filling.Load() {
		return
	}
	p.since, p.steps = time.Now(), 0
	p.filling.Store(true)
	if why != nil {
		p.log.Warn("postgres does not take events; they are kept in the data dir and stored when it is back: look after the database, leave the spool files alone",
			"database", p.place, "dir", p.dir, "limit", p.limit, "err", why)
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// used is how many bytes the files have.
func (p *spool) used() (n int64) {
	for _, sg := range p.segments {
		n += sg.end
	}
	return n
}

// size is how many bytes wait for the database.
func (p *spool) size() (n int64) {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, sg := range p.segments {
		n += sg.end - sg.read
	}
	return n
}

// blocked is why nothing more is taken, nil when it is.
func (p *spool) blocked() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.full
}

// load adds what earlier processes of a node left, in front of what is here. They must
// have ended; what a living one has is its own.
func (p *spool) load(node string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.node = node
	var left []*segment
	for _, path := range leftSegments(p.dir) {
		sg, err := p.open(path)
		if err != nil {
			for _, sg := range left {
				err = errors.Join(err, sg.file.Close())
			}
			return err
		}
		if sg != nil {
			left = append(left, sg)
		}
	}
	if len(left) == 0 {
		return nil
	}
	p.sealed = p.sealed || len(p.segments) == 0
	p.segments = append(left, p.segments...)
	p.taken.Store(p.used())
	p.begin(nil)
	return nil
}

func (p *spool) open(path string) (*segment, error) {
	for _, sg := range p.segments {
		if sg.path == path {
			return nil, nil
		}
	}
	sg, err := openSegment(path, p.node)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w; events wait in it: see that relayd may read and write it", err)
	case sg == nil:
	case sg.odd:
		p.log.Error("a spool file is damaged; what can be read of it is stored, and the file stays in the data dir",
			"file", filepath.Base(path)+spoolDamaged, "lost at its end", sg.torn)
	case sg.torn > 0:
		p.log.Warn("the end of a spool file was not written whole and is left out: nothing of it was promised to a caller",
			"file", filepath.Base(path), "bytes", sg.torn)
	}
	return sg, nil
}

// peek gives the oldest steps, up to limit, the file they are in and where they
// end in it. none when the spool is empty. A record that cannot be read is passed over,
// with what is behind it where its length is wrong too; the file is kept aside.
func (p *spool) peek(limit int, bytes int64) (steps []*step, from *segment, to int64, err error) {
	for {
		from = nil
		p.mu.Lock()
		for len(p.segments) > 1 && p.segments[0].read == p.segments[0].end {
			p.drop()
		}
		var sg segment
		if len(p.segments) > 0 {
			from = p.segments[0]
			sg = *from
		}
		p.mu.Unlock()
		if from == nil || sg.read == sg.end {
			return nil, from, 0, nil
		}
		steps, to, err = sg.peek(limit, bytes)
		if len(steps) > 0 || ioOnly(err) != nil {
			return steps, from, to, ioOnly(err)
		}
		behind, err := sg.behind(sg.read)
		if err != nil {
			return nil, from, 0, err
		}
		p.log.Error("a spool file is damaged; what cannot be read of it stays in the data dir",
			"file", filepath.Base(sg.path)+spoolDamaged, "bytes", behind-sg.read)
		p.mu.Lock()
		from.odd, p.sealed = true, p.sealed || len(p.segments) == 1
		from.read = behind
		p.mu.Unlock()
	}
}

// advance notes that the database has what is before to, and frees a file that it
// has whole.
func (p *spool) advance(sg *segment, to int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drained += to - sg.read
	if p.moved != nil {
		close(p.moved)
		p.moved = nil
	}
	sg.advance(to)
	if len(p.segments) > 1 && sg == p.segments[0] && sg.read == sg.end {
		p.drop()
	}
}

// drop removes the first file and lets steps in again.
func (p *spool) drop() {
	sg := p.segments[0]
	p.segments = p.segments[1:]
	p.reopen()
	p.taken.Store(p.used())
	var err error
	if sg.odd {
		err = sg.discard()
	} else {
		err = sg.remove()
	}
	if err != nil {
		p.log.Warn("a spool file that was stored cannot be removed; it is read once more at the next start, and not stored twice", "err", err)
	}
}

// finish ends the time of the spool when nothing is left in it.
func (p *spool) finish() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, sg := range p.segments {
		if sg.read < sg.end {
			return false
		}
	}
	for len(p.segments) > 0 {
		p.drop()
	}
	p.reopen()
	p.turned = nil
	p.taken.Store(0)
	p.filling.Store(false)
	if p.moved != nil {
		close(p.moved)
		p.moved = nil
	}
	p.log.Info("the spool is empty: all of it is stored in postgres", "steps", p.steps, "after", time.Since(p.since).Round(time.Millisecond))
	return true
}

// setAside keeps steps for people, because the database will never take them.
func (p *spool) setAside(steps []*step) error {
	f, err := os.OpenFile(filepath.Join(p.dir, spoolRefused), os.O_CREATE|os.O_APPEND|os.O_WRONLY, spoolFileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(encode(steps))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// close gives the files up; what is in them is stored at the next start.
func (p *spool) close() error {
	if p == nil {
		return nil
	}
	if n := p.size(); n > 0 {
		p.log.Warn("events wait in the spool; they are stored at the next start with this data dir", "dir", p.dir, "bytes", n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	for _, sg := range p.segments {
		err = errors.Join(err, sg.file.Close())
	}
	p.segments = nil
	return err
}
