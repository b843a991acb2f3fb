//go:build linux || darwin

package spool

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"relay"
	"relay/store/powertest"
)

// For each number of actions on a spool and each sync of its file, a run lets that sync fail, and the power
// is lost after these actions. Every accepted step that is not in the database survives, with its bytes and
// in order.
func TestStepsOutlivePowerLoss(t *testing.T) {
	t.Parallel()
	const batches, each, limit = 6, 3, 1 << 20
	rng := rand.New(rand.NewPCG(1, 1))
	runs, lost := 0, 0
	for fail := 0; ; fail++ {
		reached := false
		for actions := range 2*batches + 1 { // the power is lost after this number of actions
			runs++
			disk := powertest.New(t, fail)
			p := spoolWithoutDatabase(t, t.TempDir(), limit)
			p.VFS = disk.Name
			var taken []int
			mark, stored := int64(0), map[int]bool{} // highest number of the steps that the database has, and the values of N of these steps
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
					continue // this action takes no steps out, so that the spool grows
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
			reached = reached || disk.Syncs() >= fail
			after := disk.LosePower(t, rng, runs%3 == 1, runs%3 == 2)
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

// A disk that cannot sync, or is full, makes the spool refuse steps with a clear error. The spool
// accepts steps again as soon as the disk works. Steps accepted before are kept.
func TestSpoolDiskThatFailsForAWhile(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(d *powertest.Disk, broken bool){
		"no sync": func(d *powertest.Disk, broken bool) { d.Fail(map[bool]int{true: -1}[broken]) },
		"full":    (*powertest.Disk).Fill,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := powertest.New(t, 0)
			p := spoolWithoutDatabase(t, t.TempDir(), 16<<20)
			p.VFS = disk.Name
			var want []int
			for round := range 3 { // in the first round, the disk fails before the spool has any step
				set(disk, true)
				for range 2 {
					if refused, _, err := p.Put(chunkSteps(100, 2, 3000), nil); relay.AsError(err).Code != relay.CodeStoreUnavailable || len(refused) != 2 {
						t.Fatalf("refused %d: %v", len(refused), err)
					}
				}
				set(disk, false)
				mustPut(t, p, chunkSteps(2*round, 2, 3000))
				want = append(want, 2*round, 2*round+1)
			}
			if got := drainAll(t, p, 4); !slices.Equal(got, want) {
				t.Errorf("came out as %v", got)
			}
		})
	}
}

// Steps that were stored in the database leave the spool even while its disk is full. Steps that
// cannot be deleted from the file are not read again, and the file is removed at the end.
func TestSpoolDrainsOntoAFullDisk(t *testing.T) {
	t.Parallel()
	disk := powertest.New(t, 0)
	dir := t.TempDir()
	p := spoolWithoutDatabase(t, dir, 16<<20)
	p.VFS = disk.Name
	mustPut(t, p, chunkSteps(0, 20, 9000))
	disk.Fill(true)
	if got := drainAll(t, p, 3); !slices.Equal(got, numbers(20)) {
		t.Errorf("came out as %v", got)
	}
	if Left(dir) {
		t.Error("the file is left")
	}
}

// Metrics, readiness and readers of parts do not wait for a slow sync of the disk.
func TestSpoolFiguresDoNotWaitForTheDisk(t *testing.T) {
	t.Parallel()
	disk := powertest.New(t, 0)
	p := spoolWithoutDatabase(t, t.TempDir(), 16<<20)
	p.VFS = disk.Name
	mustPut(t, p, chunkSteps(1, 1, 1000))
	size := p.Undrained.Load()
	syncing, resume := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(syncing); <-resume })
	disk.OnSync(once)
	done := make(chan error)
	go func() {
		_, _, err := p.Put(chunkSteps(2, 1, 1000), nil)
		done <- err
	}()
	select {
	case <-syncing:
	case <-time.After(time.Minute):
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
