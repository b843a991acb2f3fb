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
	throttleLimit   = 300 * time.Millisecond
	throttleRatio   = 4
)

// spool keeps the steps of the journal in files of the data dir while Postgres does not take
// them. While it is not empty, every step is appended to it until all of them are in the
// database, so that the order is kept. A nil spool is never used. Methods are safe for
// concurrent use.
type spool struct {
	disk     spoolDisk
	dir      string
	node     string // node that the data dir belongs to
	database string // name of the database in messages
	limit    int64  // bytes of all files at most
	log      *slog.Logger

	filling      atomic.Bool  // something is in it
	down         atomic.Bool  // the database did not answer the last time
	intakeClosed atomic.Bool  // new events are refused
	bytesOnDisk  atomic.Int64 // bytes of all files
	undrained    atomic.Int64 // bytes that are not in the database yet
	drained      atomic.Int64 // bytes that reached the database since the start
	refused      atomic.Int64
	wake         chan struct{} // wakes the drainer

	// mu is held while a file is written and synced. Metrics, readiness and readers of
	// parts must not wait for that: they use the atomic fields and parts.
	mu       sync.Mutex
	claimant claimant // in whose name this process writes
	segments []*segment
	seq      int
	sealed   bool              // nothing more may be appended to the last segment
	rejected map[relay.ID]bool // events that were refused since the spool was empty
	since    time.Time
	steps    int64         // steps taken since then
	moved    chan struct{} // closed when drained grows

	loggedAt time.Time

	parts partIndex

	probeMu    sync.Mutex
	probed     time.Time // when the disk was last tested
	writeError error     // the error of that test
}

// newSpool returns the spool of a data dir; nil without a limit or data dir.
func newSpool(o Options, place string) *spool {
	if o.SpoolLimit <= 0 || o.DataDir == "" {
		return nil
	}
	return &spool{disk: realDisk{}, dir: o.DataDir, database: place, limit: o.SpoolLimit, log: o.Log, wake: make(chan struct{}, 1)}
}

// active reports whether steps have to be appended to the spool.
func (p *spool) active() bool { return p != nil && p.filling.Load() }

// databaseDown reports whether the database is known not to answer.
func (p *spool) databaseDown() bool { return p != nil && p.down.Load() }

// logThrottled logs an error at most once in 10 s. Call it with the lock held.
func (p *spool) logThrottled(what string, args ...any) {
	if time.Since(p.loggedAt) > 10*time.Second {
		p.loggedAt = time.Now()
		p.log.Error(what, args...)
	}
}

var errSpoolFull = &relay.Error{
	Code: relay.CodeStoreUnavailable, RetryAfter: spoolRetryAfter,
	Detail: "the relay's storage is away and what it keeps meanwhile is full; try again in a moment",
}

// errSpoolUnready is errSpoolFull with advice for the operator.
var errSpoolUnready = errors.New("store: postgres is away and the spool is full; bring postgres back, or raise --spool-limit")

// append writes to the last file, or to a new one when the last one has reached its size or
// could not be written.
func (p *spool) append(records []byte) error {
	defer p.updateSizes()
	if n := len(p.segments); n > 0 && !p.sealed && p.segments[n-1].end < p.segmentSize() {
		err := p.segments[n-1].append(records)
		p.sealed = err != nil
		return err
	}
	sg, seq, err := createSegment(p.disk, p.dir, p.claimant, p.seq, records)
	p.seq = seq
	if err != nil {
		return fmt.Errorf("make spool file: %w", err)
	}
	p.segments, p.sealed = append(p.segments, sg), false
	return nil
}

// segmentSize is smaller for a small spool, so that space is freed early.
func (p *spool) segmentSize() int64 { return min(segmentSize, p.limit/8) }

func (p *spool) markActive(why error) {
	if p.filling.Load() {
		return
	}
	p.since, p.steps = time.Now(), 0
	p.filling.Store(true)
	if why != nil {
		p.log.Warn("postgres does not take events; they are kept in the data dir and stored when it is back: look after the database, leave the spool files alone",
			"database", p.database, "dir", p.dir, "limit", p.limit, "err", why)
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// used is the size of all files.
func (p *spool) used() (n int64) {
	for _, sg := range p.segments {
		n += sg.end
	}
	return n
}

// updateSizes updates the sizes that are readable without the lock. Call it with the lock
// held.
func (p *spool) updateSizes() {
	var all, left int64
	for _, sg := range p.segments {
		all, left = all+sg.end, left+sg.end-sg.read
	}
	p.bytesOnDisk.Store(all)
	p.undrained.Store(left)
}

// size is how many bytes are not in the database yet.
func (p *spool) size() int64 {
	if p == nil {
		return 0
	}
	return p.undrained.Load()
}

// blocked reports whether new events are refused.
func (p *spool) blocked() bool { return p.intakeClosed.Load() }

// loadLeftSegments adds the files that earlier processes of this node left, in front of the
// files of this process. Files of a process that still runs are locked and skipped.
func (p *spool) loadLeftSegments(node string) error {
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
	p.updateSizes()
	p.markActive(nil)
	return nil
}

func (p *spool) open(path string) (*segment, error) {
	for _, sg := range p.segments {
		if sg.path == path {
			return nil, nil
		}
	}
	sg, err := openSegment(p.disk, path, p.node)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w; events wait in it: make sure that relayd may read and write it", err)
	case sg == nil:
	case sg.damaged:
		p.log.Error("a spool file is damaged; what can be read of it is stored, and the file stays in the data dir",
			"file", filepath.Base(path)+spoolDamaged, "truncated_bytes", sg.torn)
	case sg.torn > 0:
		p.log.Warn("the end of a spool file was not written whole and is left out: nothing of it was promised to a caller",
			"file", filepath.Base(path), "bytes", sg.torn)
	}
	return sg, nil
}

// peek returns the oldest steps, up to limit, with their file and where they end in it. It
// returns no steps when the spool is empty. A record that cannot be read is skipped; if its
// length is damaged too, the rest of the file is skipped. A damaged file is kept.
func (p *spool) peek(limit int, bytes int64) (steps []*step, from *segment, to int64, err error) {
	for {
		from = nil
		p.mu.Lock()
		for len(p.segments) > 1 && p.segments[0].read == p.segments[0].end {
			p.dropFirst()
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
		behind, err := sg.nextRecord(sg.read)
		if err != nil {
			return nil, from, 0, err
		}
		p.log.Error("a spool file is damaged; what cannot be read of it stays in the data dir",
			"file", filepath.Base(sg.path)+spoolDamaged, "bytes", behind-sg.read)
		p.mu.Lock()
		from.damaged, p.sealed = true, p.sealed || len(p.segments) == 1
		from.read = behind
		p.updateSizes()
		p.mu.Unlock()
	}
}

// advance records that everything before to is in the database, and removes the file when
// that is all of it.
func (p *spool) advance(sg *segment, to int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drained.Add(to - sg.read)
	if p.moved != nil {
		close(p.moved)
		p.moved = nil
	}
	sg.advance(to)
	p.updateSizes()
	if len(p.segments) > 1 && sg == p.segments[0] && sg.read == sg.end {
		p.dropFirst()
	}
}

// dropFirst removes the first file and takes new events again.
func (p *spool) dropFirst() {
	sg := p.segments[0]
	p.segments = p.segments[1:]
	p.parts.forget(sg)
	p.openIntake()
	p.updateSizes()
	var err error
	if sg.damaged {
		err = sg.discard()
	} else {
		err = sg.remove()
	}
	if err != nil {
		p.log.Warn("a spool file that was stored cannot be removed; it is read once more at the next start, and not stored twice", "err", err)
	}
}

// markEmpty makes the spool inactive when nothing is left in it; false when something is.
func (p *spool) markEmpty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, sg := range p.segments {
		if sg.read < sg.end {
			return false
		}
	}
	for len(p.segments) > 0 {
		p.dropFirst()
	}
	p.openIntake()
	p.rejected = nil
	p.filling.Store(false)
	if p.moved != nil {
		close(p.moved)
		p.moved = nil
	}
	p.log.Info("the spool is empty: all of it is stored in postgres", "steps", p.steps, "after", time.Since(p.since).Round(time.Millisecond))
	return true
}

// quarantine appends steps that the database will never take to a file for the operator.
func (p *spool) quarantine(steps []*step) error {
	f, err := p.disk.open(filepath.Join(p.dir, spoolRefused), os.O_CREATE|os.O_RDWR)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		_, err = f.WriteAt(encode(steps), info.Size())
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = p.disk.syncDir(p.dir)
	}
	return errors.Join(err, f.Close())
}

// close closes the files. What is in them is stored after the next start.
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
		p.parts.forget(sg)
		err = errors.Join(err, sg.file.Close())
	}
	p.segments = nil
	return err
}
