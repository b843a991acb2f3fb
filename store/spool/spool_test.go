package spool

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"relay"
)

var errAway = errors.New("the database is away")

// spoolWithoutDatabase opens a spool without a drainer.
func spoolWithoutDatabase(t testing.TB, dir string, limit int64) *Spool {
	t.Helper()
	p := New(Options{Dir: dir, Database: "nowhere", Limit: limit, Claimant: asNode("node_a/1"), Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// asNode returns a Claimant function for a process that never rejoined: both of its results are id.
func asNode(id string) func() (string, string) { return func() (string, string) { return id, id } }

func chunkSteps(from, n, size int) (steps []*Step) {
	for i := range n {
		steps = append(steps, &Step{
			Kind: Chunk, ID: relay.ID{byte(from + i)}, N: from + i, Data: bytes.Repeat([]byte{byte(from + i)}, size), Size: int64(size),
		})
	}
	return steps
}

// drainAll reads and removes all steps of a spool, at most limit at a time, and returns their numbers.
func drainAll(t testing.TB, p *Spool, limit int) (got []int) {
	t.Helper()
	for {
		rows, err := p.Next(limit, 16<<10)
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) == 0 {
			break
		}
		for i := range rows {
			st, err := rows[i].Step()
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, st.N)
			if want := bytes.Repeat([]byte{byte(st.N)}, len(st.Data)); !bytes.Equal(st.Data, want) {
				t.Fatalf("step %d has other bytes", st.N)
			}
		}
		p.Advance(rows)
	}
	if empty, err := p.MarkEmpty(); !empty || err != nil || p.Active.Load() {
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

func mustPut(t testing.TB, p *Spool, steps []*Step) {
	t.Helper()
	if _, _, err := p.Put(steps, errAway); err != nil {
		t.Fatal(err)
	}
}

// spoolSizes returns the sum of the file sizes of a spool, and checks that only the owner may access the files.
func spoolSizes(t testing.TB, dir string) (n int64) {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, fileName+"*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range list {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info, err)
		} else if !strings.HasSuffix(path, "-shm") { // the index of the log is not counted, because it is memory
			n += info.Size()
		}
	}
	return n
}

// Steps come out in the order in which they were added, although steps are added between the reads and the
// process restarts. At the end no file is left.
func TestSpoolOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := spoolWithoutDatabase(t, dir, 16<<20)
	for i := range 10 {
		mustPut(t, p, chunkSteps(10*i, 10, 600))
	}
	rows, err := p.Next(15, 1<<20)
	if err != nil || len(rows) != 15 {
		t.Fatalf("%d steps, %v", len(rows), err)
	}
	p.Advance(rows)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	p = spoolWithoutDatabase(t, dir, 16<<20)
	p.Claimant = asNode("node_a/2")
	if err := p.LoadLeft(); err != nil || !p.Active.Load() || p.Waiting.Load() != 85 {
		t.Fatalf("%d steps wait, %v", p.Waiting.Load(), err)
	}
	mustPut(t, p, chunkSteps(100, 10, 50_000)) // these are more bytes than Next reads at once
	rows, err = p.Next(1000, 1<<30)
	if err != nil || len(rows) != 85 || rows[0].Node != "node_a/1" {
		t.Fatalf("%d steps at once: the batch has to end with the run; %v", len(rows), err)
	}
	if got := drainAll(t, p, 7); !slices.Equal(got, numbers(110)[15:]) {
		t.Errorf("came out as %v", got)
	}
	if left, size := spoolSizes(t, dir), p.Undrained.Load(); left > 0 || size != 0 || Left(dir) {
		t.Errorf("left: %d bytes in files, %d bytes in the spool", left, size)
	}
}

// A full spool refuses steps until some are stored, and its files never exceed its limit. The space of
// stored steps is used again, so that the files do not grow even if the spool is never empty.
func TestSpoolLimit(t *testing.T) {
	t.Parallel()
	const limit = 64 << 20
	dir := t.TempDir()
	p := spoolWithoutDatabase(t, dir, limit)
	n := 0
	fill := func() (most int64) {
		t.Helper()
		for {
			_, _, err := p.Put(chunkSteps(n, 16, 256<<10), errAway)
			if err != nil {
				if !errors.Is(err, errFull) {
					t.Error(err)
				}
				return most
			}
			n += 16
			most = max(most, spoolSizes(t, dir))
		}
	}
	most := fill()
	if p.Refused.Load() != 16 || !p.IntakeClosed.Load() {
		t.Errorf("refused %d, blocked %v", p.Refused.Load(), p.IntakeClosed.Load())
	}
	if most > limit || p.used.Load() < p.intakeLimit()*9/10 {
		t.Errorf("%d bytes of files, %d used, limit %d, %d steps", most, p.used.Load(), limit, n)
	}
	if _, _, err := p.Put(freshSteps(0, 1, 1), nil); !errors.Is(err, errFull) {
		t.Errorf("a small step passed: %v", err)
	}
	for range 3 {
		for p.IntakeClosed.Load() {
			rows, err := p.Next(8, 4<<20)
			if err != nil {
				t.Fatal(err)
			}
			p.Advance(rows)
		}
		most = max(most, fill())
	}
	if most > limit {
		t.Errorf("the files grew to %d bytes", most)
	}
	drainAll(t, p, 100)
	if left := spoolSizes(t, dir); left != 0 {
		t.Errorf("%d bytes are left", left)
	}
}

// Parts of bodies can be read from the spool until the database has them, including parts of an
// earlier process.
func TestSpoolPartsCanBeRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := spoolWithoutDatabase(t, dir, 16<<20)
	for i := range 10 {
		mustPut(t, p, chunkSteps(2*i, 2, 1500))
	}
	missing := func() (n int) {
		for i := range 20 {
			id := relay.ID{byte(i)}
			part := p.Part(id, i, 0)
			if part == nil {
				n++
			} else if !bytes.Equal(part, bytes.Repeat([]byte{byte(i)}, 1500)) {
				t.Errorf("part %d has other bytes", i)
			}
			if gone := len(p.MissingParts(id, i, 1)) == 1; gone != (part == nil) {
				t.Errorf("part %d: missing %v, read %d bytes", i, gone, len(part))
			}
		}
		return n
	}
	if n := missing(); n != 0 {
		t.Errorf("%d of 20 parts are missing", n)
	}
	if p.Part(relay.ID{1}, 1, 1) != nil || !slices.Equal(p.MissingParts(relay.ID{1}, 1, 3), []int{1, 2}) {
		t.Error("parts are there that were never put")
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	p = spoolWithoutDatabase(t, dir, 16<<20)
	if err := p.LoadLeft(); err != nil {
		t.Fatal(err)
	}
	if n := missing(); n != 0 {
		t.Errorf("%d of 20 parts are missing after a restart", n)
	}
	drainAll(t, p, 4)
	if n := missing(); n != 20 {
		t.Errorf("%d of 20 parts are missing after the spool was drained", n)
	}
}

// A step whose bytes changed on the disk, or that a newer program wrote, is refused.
func TestSpoolDamagedStep(t *testing.T) {
	t.Parallel()
	rows, _ := newRows(chunkSteps(9, 1, 10), "n", "n")
	rows[0].Data[0] = stepWithHandshake + 1
	if _, err := rows[0].Step(); err == nil {
		t.Error("bytes that changed were read")
	}
	if _, err := parseStep(rows[0].Data); err == nil {
		t.Error("a step of a newer version was read")
	}
	part := chunkSteps(9, 1, 10)
	rows, _ = newRows(part, "n", "n")
	rows[0].Data[bytes.Index(rows[0].Data, part[0].Data)] ^= 1 // for a changed byte of a body, only the checksum shows the damage
	if _, err := parseStep(rows[0].Data); err != nil {
		t.Error(err)
	}
	if _, err := rows[0].Step(); err == nil {
		t.Error("a body with a byte that changed was read")
	}
}

// A file that SQLite cannot read, at a start or during use, is kept for the operator, and the spool
// continues with a new file.
func TestSpoolDamagedFile(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]int{"header": 0, "table": pageSize, "in use": pageSize} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			p := spoolWithoutDatabase(t, dir, 16<<20)
			mustPut(t, p, chunkSteps(0, 3, 10))
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, fileName)
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			next := spoolWithoutDatabase(t, dir, 16<<20)
			if name == "in use" {
				if err := next.LoadLeft(); err != nil {
					t.Fatal(err)
				}
				next.table.Load().write.MustExec(`PRAGMA shrink_memory`) // drops the copy of the page that SQLite has in memory
			}
			copy(content[at:], bytes.Repeat([]byte("x"), 100))
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			if name == "in use" {
				if _, _, err := next.Put(chunkSteps(9, 1, 10), nil); relay.AsError(err).Code != relay.CodeStoreUnavailable {
					t.Errorf("written to a damaged file: %v", err)
				}
			} else if err := next.LoadLeft(); err != nil {
				t.Fatal(err)
			}
			mustPut(t, next, chunkSteps(3, 2, 10))
			if got := drainAll(t, next, 100); !slices.Equal(got, []int{3, 4}) {
				t.Errorf("came out as %v", got)
			}
			list, err := filepath.Glob(filepath.Join(dir, "spool-*"+damagedSuffix))
			if err != nil || len(list) != 1 {
				t.Fatalf("kept aside: %v, %v", list, err)
			}
			if kept, err := os.ReadFile(list[0]); err != nil || !bytes.Equal(kept, content) {
				t.Errorf("%d of %d bytes were kept, %v", len(kept), len(content), err)
			}
		})
	}
}

// Steps whose file was set aside may still reach the database. They do not count as steps of the next file,
// because that file must not be removed with steps in it.
func TestSpoolFileIsSetAsideWhileItIsDrained(t *testing.T) {
	t.Parallel()
	p := spoolWithoutDatabase(t, t.TempDir(), 16<<20)
	mustPut(t, p, chunkSteps(0, 3, 10))
	rows, err := p.Next(100, 16<<10)
	if err != nil || len(rows) != 3 {
		t.Fatal(rows, err)
	}
	p.mu.Lock()
	err = p.setAside(p.table.Load(), errors.New("damaged"))
	p.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	mustPut(t, p, chunkSteps(3, 2, 10))
	p.Advance(rows)
	if empty, _ := p.MarkEmpty(); p.Waiting.Load() != 2 || empty {
		t.Errorf("%d steps wait", p.Waiting.Load())
	}
	if got := drainAll(t, p, 100); !slices.Equal(got, []int{3, 4}) {
		t.Errorf("came out as %v", got)
	}
	if p.Waiting.Load() != 0 || p.Undrained.Load() != 0 {
		t.Errorf("%d steps of %d bytes wait in an empty spool", p.Waiting.Load(), p.Undrained.Load())
	}
}

// A file of a newer relayd is left unchanged.
func TestSpoolOfANewerVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := spoolWithoutDatabase(t, dir, 16<<20)
	mustPut(t, p, chunkSteps(0, 3, 10))
	if _, err := p.table.Load().write.Exec(`PRAGMA user_version = 9`); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	next := spoolWithoutDatabase(t, dir, 16<<20)
	if err := next.LoadLeft(); err == nil || !strings.Contains(err.Error(), "newer relayd") {
		t.Errorf("opened a file of a newer version: %v", err)
	}
	if !Left(dir) {
		t.Error("the file is gone")
	}
}

// Spool files of a version before spool.db hold requests that are stored nowhere else: relayd refuses
// to start and does not change them.
func TestSpoolFilesOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := spoolWithoutDatabase(t, dir, 1<<20)
	for _, name := range []string{"spool-notes.txt", "spool-", "spool-0000000001-000000.copy", "spool-1767225600000000000.damaged"} { // the spool ignores these names
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.LoadLeft(); err != nil || Left(dir) {
		t.Fatalf("without such files: %v", err)
	}
	path := filepath.Join(dir, "spool-0000000007-000000")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.LoadLeft(); err == nil || !strings.Contains(err.Error(), path) || !Left(dir) {
		t.Errorf("with %s: %v", path, err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}
