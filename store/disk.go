package store

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"relay"
)

// disk watches the free space where the SQLite file is.
type disk struct {
	dir  string
	min  int64                           // bytes that stay free; 0 = as few as may be
	free func(dir string) (int64, error) // asks the file system

	mu   sync.Mutex
	last time.Time
	full atomic.Pointer[relay.Error] // why nothing may be taken; nil = there is room
}

// fullDisk is as little as a committed batch needs: with less, a store that failed
// for want of space is not tried again.
const fullDisk = 16 << 20

// noRoom is too little for any event, also where min-free is off.
const noRoom = 1 << 20

const diskEvery = 900 * time.Millisecond // between two questions; asked each second

// look asks how much is free and tells when that changed what may be taken.
func (d *disk) look(s *Store) {
	if d.free == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Since(d.last) < diskEvery {
		return
	}
	d.last = time.Now()
	free, err := d.free(d.dir)
	was := d.full.Load()
	switch {
	case err != nil:
		s.log.Warn("free space cannot be asked for", "dir", d.dir, "err", err)
	case free < max(d.min, noRoom):
		d.full.Store(&relay.Error{
			Code: relay.CodeStorageFull, RetryAfter: 30 * time.Second,
			Detail: "the relay's disk is nearly full; nothing of this request was kept",
			Cause:  fmt.Errorf("%s free in %s, less than min-free %s", amount(free), d.dir, amount(max(d.min, noRoom))),
		})
		if was == nil {
			s.log.Error("the data disk is nearly full; callers get 503 until there is room: free some space there, or set a shorter --retention, a lower --max-alias-storage or --min-free",
				"dir", d.dir, "free", amount(free), "min-free", amount(max(d.min, noRoom)))
		}
	default:
		if d.full.Store(nil); was != nil {
			s.log.Info("the data disk has room again", "dir", d.dir, "free", amount(free))
		}
	}
}

// low says why nothing new may be stored, nil while there is room.
func (d *disk) low() *relay.Error { return d.full.Load() }

// reason is low for people who run the relay.
func (d *disk) reason() error {
	e := d.low()
	if e == nil {
		return nil
	}
	return fmt.Errorf("disk: %w; free some space there, or set a shorter --retention, a lower --max-alias-storage or --min-free", e.Cause)
}

// exhausted tells whether there is next to nothing left to write to.
func (d *disk) exhausted() bool {
	if d.free == nil {
		return false
	}
	free, err := d.free(d.dir)
	return err == nil && free < fullDisk
}

// amount is a number of bytes for people.
func amount(n int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.size {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.size), u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// diskFull tells whether an error means that the disk of the data dir is full.
func (s *Store) diskFull(err error) bool {
	if errors.Is(err, syscall.ENOSPC) {
		return true
	}
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	// The shared memory of the log has no code of its own for it.
	return e.Code()&0xff == sqlite3.SQLITE_FULL || e.Code()&0xff == sqlite3.SQLITE_IOERR && s.disk.exhausted()
}

// stillFull is why a store that could not be written for want of space is not tried
// yet: a small row may fit where no event does.
func (s *Store) stillFull(lost error) error {
	if lost != nil && s.diskFull(lost) && s.disk.exhausted() {
		return lost
	}
	return nil
}
