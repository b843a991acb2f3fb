package store

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"relay"
)

var errSyncFailed = errors.New("input/output error of the test")

// lossyDisk is a disk that can lose its power: then it has of each file what was synced
// last, under the names that were synced last. One of its syncs fails.
type lossyDisk struct {
	realDisk
	mu      sync.Mutex
	files   map[string]*lossyInode // by name, as programs see it
	durable map[string]*lossyInode // by name, after a loss of power
	syncs   int                    // so far
	fail    int                    // number of the sync that fails; 0 = none, -1 = all
}

type lossyInode struct{ synced []byte }

func newLossyDisk(fail int) *lossyDisk {
	return &lossyDisk{files: map[string]*lossyInode{}, durable: map[string]*lossyInode{}, fail: fail}
}

type lossyFile struct {
	spoolFile
	disk  *lossyDisk
	inode *lossyInode
}

func (d *lossyDisk) open(path string, flag int) (spoolFile, error) {
	f, err := d.realDisk.open(path, flag)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.files[path] == nil {
		d.files[path] = &lossyInode{}
	}
	return &lossyFile{f, d, d.files[path]}, nil
}

func (d *lossyDisk) remove(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.files, path)
	return d.realDisk.remove(path)
}

func (d *lossyDisk) rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[to] = d.files[from]
	delete(d.files, from)
	return d.realDisk.rename(from, to)
}

// next counts a sync; the lock is held.
func (d *lossyDisk) next() error {
	if d.syncs++; d.syncs == d.fail || d.fail < 0 {
		return errSyncFailed
	}
	return nil
}

func (d *lossyDisk) syncDir(string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.next(); err != nil {
		return err
	}
	d.durable = maps.Clone(d.files)
	return nil
}

func (f *lossyFile) Sync() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.disk.next(); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	f.inode.synced = make([]byte, info.Size())
	if _, err = f.ReadAt(f.inode.synced, 0); errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}

// losePower gives a folder with what is on the disk after a loss of power.
func (d *lossyDisk) losePower(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for path, inode := range d.durable {
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), inode.synced, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// refusedSteps reads the numbers of the steps that were quarantined.
func refusedSteps(t *testing.T, dir string) (numbers []int) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, spoolRefused))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for {
		content, size, err := readRecord(b)
		if err != nil || size == 0 {
			return numbers
		}
		st, err := parseStep(content)
		if err != nil {
			t.Fatal(err)
		}
		numbers, b = append(numbers, st.n), b[size:]
	}
}

// The power is lost at each point of the life of a spool, and before that one of its
// syncs has failed. Every step that was taken and is not in the database is there
// afterwards: in the spool, or among the refused ones.
func TestSpoolOutlivesPowerLoss(t *testing.T) {
	t.Parallel()
	const batches, each = 12, 3
	for fail := 0; ; fail++ {
		reached := false
		for steps := range 2 * batches { // the power is lost after so many actions
			dir, disk := t.TempDir(), newLossyDisk(fail)
			p := spoolWithoutDatabase(t, dir, 1, 64<<10) // files of 8 KiB
			p.disk = disk
			var taken, stored []int
			for i := range steps {
				if i%2 == 0 {
					batch := chunkSteps(i/2*each, each, 1200)
					if refused, _, err := p.put(batch, nil); err != nil {
						if len(refused) != each {
							t.Fatalf("%d of %d steps were refused: %v", len(refused), each, err)
						}
					} else {
						for _, st := range batch {
							taken = append(taken, st.n)
						}
					}
					continue
				}
				if i%4 == 1 {
					continue // more comes in than goes out
				}
				some, from, to, err := p.peek(2, 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				if len(some) == 0 {
					continue
				}
				if i%8 == 3 { // the database refuses these for good
					if err := p.quarantine(some); err != nil {
						continue // they stay in the spool
					}
				} else {
					for _, st := range some {
						stored = append(stored, st.n)
					}
				}
				p.advance(from, to)
			}
			reached = reached || disk.syncs >= fail
			after := disk.losePower(t)
			again := spoolWithoutDatabase(t, after, 2, 64<<10)
			if err := again.loadLeftSegments("node_a"); err != nil {
				t.Fatal(err)
			}
			found := append(refusedSteps(t, after), stored...)
			if again.active() {
				found = append(found, drainAll(t, again, 100)...)
			}
			for _, n := range taken {
				if !slices.Contains(found, n) {
					t.Fatalf("sync %d failed, power lost after %d actions: of %v step %d is missing, there are %v", fail, steps, taken, n, found)
				}
			}
			_ = p.close()
		}
		if !reached {
			t.Logf("%d syncs failed, one in each run", fail-1)
			if fail < batches {
				t.Errorf("the spool synced only %d times for %d batches", fail-1, batches)
			}
			return
		}
	}
}

// A disk that writes but cannot sync is not writable.
func TestSpoolDiskThatCannotSync(t *testing.T) {
	t.Parallel()
	p := spoolWithoutDatabase(t, t.TempDir(), 1, 1<<20)
	p.disk = newLossyDisk(-1)
	if err := p.checkWritable(); !errors.Is(err, errSyncFailed) {
		t.Errorf("the disk is said to be writable: %v", err)
	}
	if refused, _, err := p.put(chunkSteps(0, 1, 10), nil); err == nil || len(refused) != 1 {
		t.Errorf("a step was taken: %d refused, %v", len(refused), err)
	}
	if left, _ := os.ReadDir(p.dir); len(left) > 0 {
		t.Errorf("left in the folder: %v", left)
	}
}

// A file that is replaced has its old content or the new one after a loss of power, and the
// new one if the write succeeded.
func TestWriteFileOnALossOfPower(t *testing.T) {
	t.Parallel()
	for fail := range 5 {
		dir, disk := t.TempDir(), newLossyDisk(0)
		path := filepath.Join(dir, "node-id")
		if err := writeFile(disk, path, []byte("old")); err != nil {
			t.Fatal(err)
		}
		if fail > 0 {
			disk.fail = disk.syncs + fail
		}
		err := writeFile(disk, path, []byte("new"))
		if failed := fail == 1 || fail == 2; (err != nil) != failed {
			t.Errorf("sync %d fails: %v", fail, err)
		}
		got, lost := os.ReadFile(filepath.Join(disk.losePower(t), "node-id"))
		if text := string(got); lost != nil || text != "new" && (err == nil || text != "old") {
			t.Errorf("sync %d fails: %q, %v after %v", fail, got, lost, err)
		}
		if left, _ := os.ReadDir(dir); len(left) != 1 {
			t.Errorf("sync %d fails: %d files are left", fail, len(left))
		}
	}
}

// slowFile is a file whose syncs wait until they are let go.
type slowFile struct {
	spoolFile
	syncing, resume chan struct{}
}

func (f *slowFile) Sync() error {
	f.syncing <- struct{}{}
	<-f.resume
	return f.spoolFile.Sync()
}

// Metrics, readiness and readers of parts do not wait for a disk that syncs.
func TestSpoolFiguresDoNotWaitForTheDisk(t *testing.T) {
	t.Parallel()
	p := spoolWithoutDatabase(t, t.TempDir(), 1, 1<<20)
	mustPut(t, p, chunkSteps(1, 1, 1000))
	size := p.size()
	slow := &slowFile{p.segments[0].file, make(chan struct{}), make(chan struct{})}
	p.segments[0].file = slow
	done := make(chan error)
	go func() {
		_, _, err := p.put(chunkSteps(2, 1, 1000), nil)
		done <- err
	}()
	<-slow.syncing
	s := &Store{spool: p}
	if p.mu.TryLock() {
		t.Fatal("the lock is free while the spool syncs; nothing is tested")
	}
	if n := s.Stats().SpoolBytes; n != size || size < 1000 || p.drainedBytes() != 0 || p.blocked() || p.admitsTypical() != nil {
		t.Errorf("%d bytes, want %d", n, size)
	}
	if b, err := s.BodyPart(t.Context(), relay.ID{1}, 1, 0); err != nil || len(b) != 1000 {
		t.Errorf("a part: %d bytes, %v", len(b), err)
	}
	if err := s.CheckParts(t.Context(), relay.ID{1}, 1, 1); err != nil {
		t.Error(err)
	}
	close(slow.resume)
	if err := <-done; err != nil || p.size() <= size {
		t.Errorf("%d bytes after the sync, %v", p.size(), err)
	}
}
