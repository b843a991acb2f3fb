//go:build linux || darwin

// Package powertest provides a disk for SQLite that can lose its power, for tests.
package powertest

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
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// Disk is an SQLite file system on top of the usual one. After a loss of power each file has the content of
// its last sync, and perhaps some sectors that were written later. Disk can also fail one of its syncs, or
// fail its writes like a full disk.
type Disk struct {
	Name string  // name of the file system in SQLite
	base uintptr // pointer to the sqlite3_vfs of the operating system

	mu    sync.Mutex
	files map[string]*lossyFile // files by path; deleted files stay in the map
	syncs int
	fail  int // number of the sync that fails; 0 = none, -1 = all
	full  bool
	sync  func() // if not nil, called before each sync
}

// Fail makes the sync with number n fail; 0 = none, -1 = all.
func (d *Disk) Fail(n int) { d.mu.Lock(); d.fail = n; d.mu.Unlock() }

// FailNext makes the next sync fail.
func (d *Disk) FailNext() { d.mu.Lock(); d.fail = d.syncs + 1; d.mu.Unlock() }

// Fill makes each write fail as on a full disk if full is true, and lets writes succeed again if it is false.
func (d *Disk) Fill(full bool) { d.mu.Lock(); d.full = full; d.mu.Unlock() }

// OnSync sets a function that is called before each sync.
func (d *Disk) OnSync(f func()) { d.mu.Lock(); d.sync = f; d.mu.Unlock() }

// Syncs returns the number of syncs so far.
func (d *Disk) Syncs() int { d.mu.Lock(); defer d.mu.Unlock(); return d.syncs }

type lossyFile struct{ synced []byte }

// lossyDisks holds the disks by the address of their sqlite3_vfs, and lossyOpen the files by the address of
// their sqlite3_file, because SQLite passes only these addresses to the functions of a file system.
var lossyDisks, lossyOpen sync.Map

type lossyHandle struct {
	disk *Disk
	path string
	base *sqlite3.Tsqlite3_io_methods
	// syncsDir is set for a new log or journal: its first sync also syncs the folder, as SQLite does.
	syncsDir bool
}

var lossyCount atomic.Int64

// lossyMu guards SQLite's list of file systems. Registering a file system also writes to the entry of another
// file system, while New may be copying that entry.
var lossyMu sync.Mutex

// New registers a file system. The parameter fail is the number of the sync that fails; 0 = none, -1 = all.
func New(t testing.TB, fail int) *Disk {
	t.Helper()
	tls := libc.NewTLS()
	d := &Disk{Name: fmt.Sprint("lossy", lossyCount.Add(1)), files: map[string]*lossyFile{}, fail: fail, base: sqlite3.Xsqlite3_vfs_find(tls, 0)}
	name, err := libc.CString(d.Name)
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

// at returns a pointer to the value at address p of SQLite's memory.
func at[T any](p uintptr) *T { return *(**T)(unsafe.Pointer(&p)) }

// address returns the address of a top-level function in the form that SQLite stores.
func address[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&f)) }

// function is the inverse of address: it returns the function for an address in that form.
func function[F any](p uintptr) (f F) {
	*(*uintptr)(unsafe.Pointer(&f)) = p
	return f
}

func lossyXOpen(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32 {
	v, _ := lossyDisks.Load(vfs)
	d := v.(*Disk)
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

// lossyXSync implements xSync. It does not sync the real disk, because that would only take time.
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

// LosePower returns a folder with the content of the disk after a power loss. If torn is true, some sectors
// that were written after the last sync are there, too. If undeleted is true, files whose deletion was not
// durable are there again.
func (d *Disk) LosePower(t testing.TB, rng *rand.Rand, torn, undeleted bool) string {
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
