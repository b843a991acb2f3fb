package db

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"relay"
	"relay/store/file"
)

// disk watches the free space of the file system that holds the SQLite file.
type disk struct {
	Dir  string
	Min  int64 // bytes that have to stay free; 0 = minFreeSlack
	Free func(dir string) (int64, error)

	log *slog.Logger

	mu   sync.Mutex
	last time.Time
	full atomic.Pointer[relay.Error] // reason why nothing new may be stored; nil = there is space
}

// FullDisk is the free space that a batch needs. After a lack of space, a store tries again only when
// this much is free.
const FullDisk = 16 << 20

// minFreeSlack is the least free space for new events, even if min-free is off.
const minFreeSlack = 1 << 20

const diskInterval = 900 * time.Millisecond // time between two reads of the free space; less than a second, because Refresh is called each second

// Refresh reads the free space and logs when it becomes too little or enough again.
func (d *disk) Refresh() {
	if d.Free == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Since(d.last) < diskInterval {
		return
	}
	d.last = time.Now()
	free, err := d.Free(d.Dir)
	was := d.full.Load()
	switch {
	case err != nil:
		d.log.Warn("free space cannot be read", "dir", d.Dir, "err", err)
	case free < max(d.Min, minFreeSlack):
		d.full.Store(&relay.Error{
			Code: relay.CodeStorageFull, RetryAfter: 30 * time.Second,
			Detail: "the relay's disk is nearly full; nothing of this request was stored",
			Cause:  fmt.Errorf("%s free in %s, less than min-free %s", relay.FormatBytes(free), d.Dir, relay.FormatBytes(max(d.Min, minFreeSlack))),
		})
		if was == nil {
			d.log.Error("the data disk is nearly full; callers get 503 until space is free: free some there, or set a shorter --retention, a lower --max-alias-storage or --min-free",
				"dir", d.Dir, "free", relay.FormatBytes(free), "min_free", relay.FormatBytes(max(d.Min, minFreeSlack)))
		}
	default:
		if d.full.Store(nil); was != nil {
			d.log.Info("the data disk has free space again", "dir", d.Dir, "free", relay.FormatBytes(free))
		}
	}
}

// Low returns the reason why nothing new may be stored; nil while there is enough space.
func (d *disk) Low() *relay.Error { return d.full.Load() }

// Exhausted reports whether less than FullDisk is free.
func (d *disk) Exhausted() bool {
	if d.Free == nil {
		return false
	}
	free, err := d.Free(d.Dir)
	return err == nil && free < FullDisk
}

// DiskFull reports whether an error means that the disk of the data dir is full.
func (s *DB) DiskFull(err error) bool {
	code := file.SQLiteCode(err)
	// SQLite has no separate code for the case that the shared memory of its log cannot grow.
	return errors.Is(err, syscall.ENOSPC) || code == sqlite3.SQLITE_FULL || code == sqlite3.SQLITE_IOERR && s.Disk.Exhausted()
}
