package store

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Bytes that changed on the disk cost the step that they belong to, and the file is
// kept for people; what is behind them is read, also when they name the owner.
func TestSpoolDamagedRecord(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]int64{"owner": segmentHead + recordHead + 2, "first": -1, "middle": -2, "last": -3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := spoolWithoutDatabase(t, t.TempDir(), 7, 1<<20)
			starts := []int64{0}
			for i := range 9 {
				mustPut(t, p, chunkSteps(i, 1, 50))
				starts = append(starts, p.segments[0].end)
			}
			starts[0] = p.segments[0].read
			want := numbers(9)
			if at < 0 {
				lost := int(-1-at) * 4
				at = starts[lost] + recordHead + 30
				want = slices.Delete(want, lost, lost+1)
			}
			if _, err := p.segments[0].file.WriteAt([]byte{0xee}, at); err != nil {
				t.Fatal(err)
			}
			if name != "owner" { // that is read at a start only
				running := spoolWithoutDatabase(t, p.dir, 8, 1<<20)
				running.segments, running.claimant = []*segment{{
					disk: realDisk{}, file: p.segments[0].file, path: p.segments[0].path + ".copy", claimant: p.claimant, read: starts[0], end: starts[9],
				}}, p.claimant
				var got []int
				for {
					steps, from, to, err := running.peek(4, 1<<10)
					if err != nil {
						t.Fatal(err)
					}
					if len(steps) == 0 {
						break
					}
					for _, st := range steps {
						got = append(got, st.n)
					}
					from.read = to
				}
				if !slices.Equal(got, want) {
					t.Errorf("a running relay reads %v, want %v", got, want)
				}
				running.segments = nil
			}
			if err := p.close(); err != nil {
				t.Fatal(err)
			}
			again := spoolWithoutDatabase(t, p.dir, 8, 1<<20)
			if err := again.loadLeftSegments("node_a"); err != nil {
				t.Fatal(err)
			}
			if by := again.segments[0].claimant; by != p.claimant {
				t.Errorf("in the name of %+v", by)
			}
			if got := drainAll(t, again, 100); !slices.Equal(got, want) {
				t.Errorf("read back %v, want %v", got, want)
			}
			if kept, err := filepath.Glob(filepath.Join(p.dir, "*"+spoolDamaged)); err != nil || len(kept) != 1 {
				t.Errorf("kept aside: %v, %v", kept, err)
			}
		})
	}
}

// What somebody else put beside the files of the spool is neither read nor removed.
func TestSpoolForeignFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := spoolWithoutDatabase(t, dir, 1, 1<<20)
	mustPut(t, p, chunkSteps(0, 3, 10))
	if err := p.close(); err != nil {
		t.Fatal(err)
	}
	names := []string{"spool-notes.txt", "spool-", "spool-0000000001-000000.copy", "spool-0000000001-000000.damaged"}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"spool-0000000000-000000", "spool-0000000002-000000", "spool-backup"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	again := spoolWithoutDatabase(t, dir, 2, 1<<20)
	if err := again.loadLeftSegments("node_a"); err != nil {
		t.Fatal(err)
	}
	mustPut(t, again, chunkSteps(3, 2, 10)) // under a name that is free
	if got := drainAll(t, again, 100); !slices.Equal(got, numbers(5)) {
		t.Errorf("came out as %v", got)
	}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}
