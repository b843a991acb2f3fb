package store

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"relay"
)

// spoolWithoutDatabase opens a spool that nothing drains.
func spoolWithoutDatabase(t testing.TB, dir string, boot, limit int64) *spool {
	t.Helper()
	p := newSpool(Options{SpoolLimit: limit, DataDir: dir, Log: slog.New(slog.DiscardHandler)}, "nowhere")
	p.claimant = claimant{"node_a", boot}
	t.Cleanup(func() { _ = p.close() })
	return p
}

func chunkSteps(from, n, size int) (steps []*step) {
	for i := range n {
		steps = append(steps, &step{
			kind: stepChunk, id: relay.ID{byte(from + i)}, n: from + i, data: bytes.Repeat([]byte{byte(from + i)}, size), size: int64(size),
		})
	}
	return steps
}

// drainAll takes everything out of a spool, a few steps at a time, and gives their
// numbers.
func drainAll(t testing.TB, p *spool, limit int) (got []int) {
	t.Helper()
	for {
		steps, from, to, err := p.peek(limit, 1<<10)
		if err != nil {
			t.Fatal(err)
		}
		if len(steps) == 0 {
			break
		}
		for _, st := range steps {
			got = append(got, st.n)
			if want := bytes.Repeat([]byte{byte(st.n)}, len(st.data)); !bytes.Equal(st.data, want) {
				t.Fatalf("step %d has other bytes", st.n)
			}
		}
		p.advance(from, to)
	}
	if !p.markEmpty() || p.active() {
		t.Fatal("not empty")
	}
	return got
}

func numbers(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

func mustPut(t testing.TB, p *spool, steps []*step) {
	t.Helper()
	if _, _, err := p.put(steps, errLockUncertain); err != nil {
		t.Fatal(err)
	}
}

// Steps come out in the order in which they went in, over many files, also when
// more come meanwhile; then nothing is left on the disk.
func TestSpoolOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := spoolWithoutDatabase(t, dir, 1, 128<<10)
	for i := range 10 {
		mustPut(t, p, chunkSteps(10*i, 10, 600))
	}
	if n := len(leftSegments(dir)); n < 4 {
		t.Errorf("only %d files", n)
	}
	steps, from, to, err := p.peek(15, 1<<20)
	if err != nil || len(steps) != 15 {
		t.Fatalf("%d steps, %v", len(steps), err)
	}
	p.advance(from, to)
	mustPut(t, p, chunkSteps(100, 10, 5000)) // larger than what is read at once
	if got := drainAll(t, p, 7); !slices.Equal(got, numbers(110)[15:]) {
		t.Errorf("came out as %v", got)
	}
	if left := leftSegments(dir); len(left) > 0 || p.size() != 0 {
		t.Errorf("left: %v, %d bytes", left, p.size())
	}
}

// A full spool takes nothing more until some of it is stored, and never more than
// its limit.
func TestSpoolLimit(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	dir := t.TempDir()
	p := spoolWithoutDatabase(t, dir, 1, limit)
	n := 0
	for {
		_, _, err := p.put(chunkSteps(n, 1, 1000), errLockUncertain)
		if err != nil {
			if !errors.Is(err, errSpoolFull) || p.refused.Load() != 1 {
				t.Error(err)
			}
			break
		}
		n++
	}
	var used int64
	for _, path := range leftSegments(dir) {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		used += info.Size()
	}
	if used > limit || used < limit*9/10 {
		t.Errorf("%d bytes of %d, %d steps", used, limit, n)
	}
	if _, _, err := p.put(freshSteps(0, 1, 1), nil); !errors.Is(err, errSpoolFull) || !p.blocked() {
		t.Errorf("a small step passed: %v", err)
	}
	for p.blocked() {
		_, from, to, err := p.peek(1, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		p.advance(from, to)
	}
	mustPut(t, p, chunkSteps(n, 1, 1000))
	if got := drainAll(t, p, 100); got[len(got)-1] != n {
		t.Errorf("the last one is %d, want %d", got[len(got)-1], n)
	}
}

// A process may die at any byte of a write: what was whole before is read back, and
// the rest is left out.
func TestSpoolTorn(t *testing.T) {
	t.Parallel()
	p := spoolWithoutDatabase(t, t.TempDir(), 3, 1<<20)
	var ends []int64
	for i := range 4 {
		mustPut(t, p, chunkSteps(i, 1, 20))
		ends = append(ends, p.segments[0].end)
	}
	whole, err := os.ReadFile(p.segments[0].path)
	if err != nil {
		t.Fatal(err)
	}
	for size := range len(whole) + 1 {
		for _, behind := range [][]byte{nil, make([]byte, 100)} {
			dir := t.TempDir()
			path := filepath.Join(dir, filepath.Base(p.segments[0].path))
			content := append(whole[:size:size], behind...)
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			want := 0
			for _, end := range ends {
				if bytes.HasPrefix(content, whole[:end]) { // its last bytes may be zeros, too
					want++
				}
			}
			again := spoolWithoutDatabase(t, dir, 4, 1<<20)
			if err := again.loadLeftSegments("node_a"); err != nil {
				t.Fatalf("cut at %d: %v", size, err)
			}
			if want > 0 && again.segments[0].claimant != p.claimant {
				t.Fatalf("cut at %d: in the name of %+v", size, again.segments[0].claimant)
			}
			if got := drainAll(t, again, 100); !slices.Equal(got, numbers(want)) {
				t.Fatalf("cut at %d: %v, want %d steps", size, got, want)
			}
		}
	}
}

// Bytes that changed on the disk so that it is not known where the next step begins cost
// what is behind them in their file, and that is kept for people; other files are read.
func TestSpoolDamaged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := spoolWithoutDatabase(t, dir, 1, 16<<10)
	for i := range 30 {
		mustPut(t, p, chunkSteps(i, 1, 200))
	}
	first, second := p.segments[0], p.segments[1]
	if _, err := second.file.WriteAt([]byte{0xff}, second.read); err != nil { // of a length
		t.Fatal(err)
	}
	steps, from, to, err := p.peek(2, 1<<20)
	if err != nil || len(steps) != 2 || from != first {
		t.Fatal(len(steps), err)
	}
	p.advance(from, to)
	if err := p.close(); err != nil {
		t.Fatal(err)
	}
	again := spoolWithoutDatabase(t, dir, 2, 16<<10)
	if err := again.loadLeftSegments("node_a"); err != nil {
		t.Fatal(err)
	}
	got := drainAll(t, again, 100)
	if got[0] != 2 || got[len(got)-1] != 29 || len(got) >= 28 || !slices.IsSorted(got) {
		t.Errorf("read back %v", got)
	}
	kept, err := filepath.Glob(filepath.Join(dir, "*"+spoolDamaged))
	if err != nil || len(kept) != 1 {
		t.Errorf("kept aside: %v, %v", kept, err)
	}
	if err := spoolWithoutDatabase(t, dir, 3, 16<<10).loadLeftSegments("node_a"); err != nil {
		t.Error(err)
	}
}

// The spool of a process that lives is its own; when that is gone the next one has
// it, in front of its own.
func TestSpoolOwned(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old := spoolWithoutDatabase(t, dir, 1, 1<<20)
	mustPut(t, old, chunkSteps(0, 3, 10))
	next := spoolWithoutDatabase(t, dir, 2, 1<<20)
	if err := next.loadLeftSegments("node_a"); err != nil || next.active() {
		t.Fatalf("took the spool of a living process: %v", err)
	}
	mustPut(t, next, chunkSteps(3, 2, 10))
	if err := old.close(); err != nil {
		t.Fatal(err)
	}
	if err := next.loadLeftSegments("node_a"); err != nil {
		t.Fatal(err)
	}
	if got := drainAll(t, next, 100); !slices.Equal(got, numbers(5)) {
		t.Errorf("came out as %v", got)
	}
}

// A file that cannot be written fails the steps and nothing else; later ones go to
// a new file.
func TestSpoolUnwritable(t *testing.T) {
	t.Parallel()
	p := spoolWithoutDatabase(t, t.TempDir(), 1, 1<<20)
	mustPut(t, p, chunkSteps(0, 2, 10))
	p.segments[0].file = readOnly(t, p.segments[0])
	if _, _, err := p.put(chunkSteps(9, 1, 10), nil); relay.AsError(err).Code != relay.CodeStoreUnavailable {
		t.Fatalf("written to a file that cannot be: %v", err)
	}
	mustPut(t, p, chunkSteps(2, 2, 10))
	if got := drainAll(t, p, 100); !slices.Equal(got, numbers(4)) {
		t.Errorf("came out as %v", got)
	}
}

func readOnly(t *testing.T, sg *segment) spoolFile {
	t.Helper()
	f, err := os.Open(sg.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := sg.file.Close(); err != nil {
		t.Fatal(err)
	}
	return realFile{f}
}

// Parts of bodies can be read from the spool until the database has them.
func TestSpoolPartsCanBeRead(t *testing.T) {
	t.Parallel()
	p := spoolWithoutDatabase(t, t.TempDir(), 1, 64<<10) // files of 8 KiB
	for i := range 10 {
		mustPut(t, p, chunkSteps(2*i, 2, 1500))
	}
	missing := func() (n int) {
		for i := range 20 {
			key := partKey{id: relay.ID{byte(i)}, n: i}
			part := p.part(key)
			if part == nil {
				n++
			} else if !bytes.Equal(part, bytes.Repeat([]byte{byte(i)}, 1500)) {
				t.Errorf("part %d has other bytes", i)
			}
			if gone := len(p.missingParts(key.id, key.n, 1)) == 1; gone != (part == nil) {
				t.Errorf("part %d: missing %v, read %d bytes", i, gone, len(part))
			}
		}
		return n
	}
	if n := missing(); n != 0 {
		t.Errorf("%d of 20 parts are missing", n)
	}
	drainAll(t, p, 4)
	if n := missing(); n != 20 {
		t.Errorf("%d of 20 parts are missing after the spool was drained", n)
	}
}
