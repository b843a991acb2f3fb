//go:build linux || darwin

package spool

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"

	"relay"
)

// lossyDisk is a file system of SQLite on top of the usual one that can lose its power: then
// it has of each file what was synced last, and perhaps some sectors that were written later.
// One of its syncs fails, or its writes fail because it is full.
type lossyDisk struct {
	name string
	base uintptr // sqlite3_vfs of the operating system

	mu    sync.Mutex
	files map[string]*lossyFile // by path, also those that were deleted
	syncs int                   // so far
	fail  int                   // number of the sync that fails; 0 = none, -1 = all
	full  bool
	sync  func() // if not nil, called before each sync
}

type lossyFile struct{ synced []byte }

// lossyDisks has the disks by the address of their sqlite3_vfs, and the files by the address of
// their sqlite3_file. SQLite calls functions without a context.
var lossyDisks, lossyOpen sync.Map

type lossyHandle struct {
	disk *lossyDisk
	path string
	base *sqlite3.Tsqlite3_io_methods
	// syncsDir is set for a new log or journal: SQLite syncs the folder with its first sync.
	syncsDir bool
}

var lossyCount atomic.Int64

// lossyMu guards the list of file systems of SQLite: registering one writes to another one,
// which newLossyDisk copies.
var lossyMu sync.Mutex

// newLossyDisk registers a file system.
func newLossyDisk(t testing.TB, fail int) *lossyDisk {
	t.Helper()
	tls := libc.NewTLS()
	d := &lossyDisk{name: fmt.Sprint("lossy", lossyCount.Add(1)), files: map[string]*lossyFile{}, fail: fail, base: sqlite3.Xsqlite3_vfs_find(tls, 0)}
	name, err := libc.CString(d.name)
	if err != nil || d.base == 0 {
		t.Fatal("no file system to start from", err)
	}
	vfs := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(sqlite3.Tsqlite3_vfs{})))
	v := at[sqlite3.Tsqlite3_vfs](vfs)
	lossyMu.Lock()
	defer lossyMu.Unlock()
	*v = *at[sqlite3.Tsqlite3_vfs](d.base)
	v.FzName, v.FpNext = name, 0
	v.FxOpen = address(lossyXOpen)
	lossyDisks.Store(vfs, d)
	if rc := sqlite3.Xsqlite3_vfs_register(tls, vfs, 0); rc != sqlite3.SQLITE_OK {
		t.Fatal(rc)
	}
	t.Cleanup(func() {
		lossyMu.Lock()
		sqlite3.Xsqlite3_vfs_unregister(tls, vfs)
		lossyMu.Unlock()
		lossyDisks.Delete(vfs)
		libc.Xfree(tls, vfs)
		libc.Xfree(tls, name)
		tls.Close()
	})
	return d
}

// at is the value at an address of SQLite's memory.
func at[T any](p uintptr) *T { return *(**T)(unsafe.Pointer(&p)) }

// address is how SQLite keeps a function of the top level.
func address[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&f)) }

// function is the reverse of address.
func function[F any](p uintptr) (f F) {
	*(*uintptr)(unsafe.Pointer(&f)) = p
	return f
}

func lossyXOpen(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32 {
	v, _ := lossyDisks.Load(vfs)
	d := v.(*lossyDisk)
	open := function[func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32](at[sqlite3.Tsqlite3_vfs](d.base).FxOpen)
	rc := open(tls, d.base, name, file, flags, out)
	f := at[sqlite3.Tsqlite3_file](file)
	if rc != sqlite3.SQLITE_OK || f.FpMethods == 0 {
		return rc
	}
	h := &lossyHandle{disk: d, path: libc.GoString(name), base: at[sqlite3.Tsqlite3_io_methods](f.FpMethods)}
	h.syncsDir = flags&sqlite3.SQLITE_OPEN_CREATE != 0 && flags&(sqlite3.SQLITE_OPEN_WAL|sqlite3.SQLITE_OPEN_MAIN_JOURNAL) != 0
	methods := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(sqlite3.Tsqlite3_io_methods{})))
	m := at[sqlite3.Tsqlite3_io_methods](methods)
	*m = *h.base
	m.FxWrite, m.FxSync, m.FxClose = address(lossyXWrite), address(lossyXSync), address(lossyXClose)
	f.FpMethods = methods
	lossyOpen.Store(file, h)
	return rc
}

func lossyHandleOf(file uintptr) *lossyHandle {
	h, _ := lossyOpen.Load(file)
	return h.(*lossyHandle)
}

func lossyXClose(tls *libc.TLS, file uintptr) int32 {
	h, methods := lossyHandleOf(file), at[sqlite3.Tsqlite3_file](file).FpMethods
	lossyOpen.Delete(file)
	rc := function[func(*libc.TLS, uintptr) int32](h.base.FxClose)(tls, file)
	libc.Xfree(tls, methods)
	return rc
}

func lossyXWrite(tls *libc.TLS, file, data uintptr, n int32, offset int64) int32 {
	h := lossyHandleOf(file)
	h.disk.mu.Lock()
	full := h.disk.full
	h.disk.mu.Unlock()
	if full {
		return sqlite3.SQLITE_FULL
	}
	return function[func(*libc.TLS, uintptr, uintptr, int32, int64) int32](h.base.FxWrite)(tls, file, data, n, offset)
}

// lossyXSync does not ask the real disk, which would only be slow.
func lossyXSync(_ *libc.TLS, file uintptr, _ int32) int32 {
	h := lossyHandleOf(file)
	d := h.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sync != nil {
		d.sync()
	}
	if d.syncs++; d.syncs == d.fail || d.fail < 0 {
		return sqlite3.SQLITE_IOERR_FSYNC
	}
	content, err := os.ReadFile(h.path)
	if err != nil {
		return sqlite3.SQLITE_IOERR_FSYNC
	}
	d.files[h.path] = &lossyFile{content}
	if h.syncsDir {
		h.syncsDir = false
		for path := range d.files {
			if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
				delete(d.files, path)
			}
		}
	}
	return sqlite3.SQLITE_OK
}

// losePower gives a folder with what is on the disk after a loss of power. If torn, some sectors
// that were written after the last sync are there too. If undeleted, files are there whose
// deletion was not durable.
func (d *lossyDisk) losePower(t *testing.T, rng *rand.Rand, torn, undeleted bool) string {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	dir := t.TempDir()
	for path, f := range d.files {
		now, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			if !undeleted {
				continue
			}
			now = f.synced
		}
		content := slices.Clone(f.synced)
		if torn {
			const sector = 512
			end := len(content)
			if len(now) > end {
				end += rng.IntN(len(now) - end + 1)
			}
			content = append(content, make([]byte, end-len(content))...)
			for from := 0; from < min(end, len(now)); from += sector {
				if rng.IntN(2) == 0 {
					copy(content[from:end], now[from:min(from+sector, len(now), end)])
				}
			}
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The power is lost at each point of the life of a spool, and before that one of its syncs has
// failed. Every step that was taken and is not in the database is there afterwards, with its
// bytes and in order.
func TestStepsOutlivePowerLoss(t *testing.T) {
	t.Parallel()
	const batches, each, limit = 6, 3, 1 << 20
	rng := rand.New(rand.NewPCG(1, 1))
	runs, lost := 0, 0
	for fail := 0; ; fail++ {
		reached := false
		for actions := range 2*batches + 1 { // the power is lost after so many
			runs++
			disk := newLossyDisk(t, fail)
			p := spoolWithoutDatabase(t, t.TempDir(), limit)
			p.VFS = disk.name
			var taken []int
			mark, stored := int64(0), map[int]bool{} // what the database has
			for i := range actions {
				if i%2 == 0 {
					batch := chunkSteps(i/2*each, each, 9000)
					if refused, _, err := p.Put(batch, nil); err != nil {
						if len(refused) != each {
							t.Fatalf("%d of %d steps were refused: %v", len(refused), each, err)
						}
						continue
					}
					for _, st := range batch {
						taken = append(taken, st.N)
					}
					continue
				}
				if i%8 == 1 {
					continue // more comes in than goes out
				}
				rows, err := p.Next(5, 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				if len(rows) == 0 {
					_, _ = p.MarkEmpty()
					continue
				}
				for i := range rows {
					st, err := rows[i].Step()
					if err != nil {
						t.Fatal(err)
					}
					mark, stored[st.N] = rows[i].Seq, true
				}
				p.Advance(rows)
			}
			reached = reached || disk.syncs >= fail
			after := disk.losePower(t, rng, runs%3 == 1, runs%3 == 2)
			_ = p.Close()
			again := spoolWithoutDatabase(t, after, limit)
			if err := again.LoadLeft(); err != nil {
				t.Fatalf("sync %d failed, power lost after %d actions: %v", fail, actions, err)
			}
			var found []int
			for again.Active.Load() {
				rows, err := again.Next(100, 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				if len(rows) == 0 {
					_, _ = again.MarkEmpty()
					break
				}
				for i := range rows {
					st, err := rows[i].Step()
					if err != nil {
						t.Fatal(err)
					}
					if rows[i].Seq > mark {
						found = append(found, st.N)
					}
				}
				again.Advance(rows)
			}
			if !slices.IsSorted(found) {
				t.Fatalf("out of order: %v", found)
			}
			for _, n := range taken {
				if !stored[n] && !slices.Contains(found, n) {
					t.Fatalf("sync %d failed, power lost after %d actions: of %v step %d is missing, there are %v", fail, actions, taken, n, found)
				}
			}
			lost += each*((actions+1)/2) - len(taken)
		}
		if !reached {
			t.Logf("%d syncs failed, one in each run; %d runs, %d steps refused by a failed sync", fail-1, runs, lost)
			if fail < batches || lost == 0 {
				t.Errorf("the spool synced only %d times for %d batches", fail-1, batches)
			}
			return
		}
	}
}

// A disk that cannot sync, or is full, refuses steps with a clear error and takes them again
// as soon as it can. What was taken before is kept.
func TestSpoolDiskThatFailsForAWhile(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(d *lossyDisk, broken bool){
		"no sync": func(d *lossyDisk, broken bool) { d.fail = map[bool]int{true: -1}[broken] },
		"full":    func(d *lossyDisk, broken bool) { d.full = broken },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := newLossyDisk(t, 0)
			p := spoolWithoutDatabase(t, t.TempDir(), 16<<20)
			p.VFS = disk.name
			var want []int
			for round := range 3 { // broken from the start, then with steps in the file
				disk.mu.Lock()
				set(disk, true)
				disk.mu.Unlock()
				for range 2 {
					if refused, _, err := p.Put(chunkSteps(100, 2, 3000), nil); relay.AsError(err).Code != relay.CodeStoreUnavailable || len(refused) != 2 {
						t.Fatalf("refused %d: %v", len(refused), err)
					}
				}
				disk.mu.Lock()
				set(disk, false)
				disk.mu.Unlock()
				mustPut(t, p, chunkSteps(2*round, 2, 3000))
				want = append(want, 2*round, 2*round+1)
			}
			if got := drainAll(t, p, 4); !slices.Equal(got, want) {
				t.Errorf("came out as %v", got)
			}
		})
	}
}

// Steps that are stored in the database leave the spool also while its disk is full: what
// cannot be deleted from the file is not read again, and the file goes at the end.
func TestSpoolDrainsOntoAFullDisk(t *testing.T) {
	t.Parallel()
	disk := newLossyDisk(t, 0)
	dir := t.TempDir()
	p := spoolWithoutDatabase(t, dir, 16<<20)
	p.VFS = disk.name
	mustPut(t, p, chunkSteps(0, 20, 9000))
	disk.mu.Lock()
	disk.full = true
	disk.mu.Unlock()
	if got := drainAll(t, p, 3); !slices.Equal(got, numbers(20)) {
		t.Errorf("came out as %v", got)
	}
	if Left(dir) {
		t.Error("the file is left")
	}
}

// Metrics, readiness and readers of parts do not wait for a disk that syncs.
func TestSpoolFiguresDoNotWaitForTheDisk(t *testing.T) {
	t.Parallel()
	disk := newLossyDisk(t, 0)
	p := spoolWithoutDatabase(t, t.TempDir(), 16<<20)
	p.VFS = disk.name
	mustPut(t, p, chunkSteps(1, 1, 1000))
	size := p.Undrained.Load()
	syncing, resume := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(syncing); <-resume })
	disk.mu.Lock()
	disk.sync = once
	disk.mu.Unlock()
	done := make(chan error)
	go func() {
		_, _, err := p.Put(chunkSteps(2, 1, 1000), nil)
		done <- err
	}()
	select {
	case <-syncing:
	case <-time.After(10 * time.Second):
		t.Fatal("the spool does not sync")
	}
	if p.mu.TryLock() {
		t.Fatal("the lock is free while the spool syncs; nothing is tested")
	}
	if n := p.Undrained.Load(); n != size || size < 1000 || p.Drained.Load() != 0 || p.IntakeClosed.Load() || p.AdmitsTypical() != nil {
		t.Errorf("%d bytes, want %d", n, size)
	}
	if b := p.Part(relay.ID{1}, 1, 0); len(b) != 1000 {
		t.Errorf("a part: %d bytes", len(b))
	}
	if missing := p.MissingParts(relay.ID{1}, 1, 1); len(missing) > 0 {
		t.Errorf("missing: %v", missing)
	}
	close(resume)
	if err := <-done; err != nil || p.Undrained.Load() <= size {
		t.Errorf("%d bytes after the sync, %v", p.Undrained.Load(), err)
	}
}
