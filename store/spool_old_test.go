package store

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"relay"
)

// oldSegment is a file of the version before. It returns where each step ends.
func oldSegment(steps []*step) (b []byte, ends []int) {
	b = append([]byte(oldMagic), make([]byte, 12)...)
	record := func(content []byte) {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(content)))
		b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(content, castagnoli))
		b = append(b, content...)
	}
	record([]byte("\xffthe claimant"))
	for _, st := range steps {
		record(appendStep(nil, st))
		ends = append(ends, len(b))
	}
	return b, ends
}

func writeOld(t *testing.T, dir, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// testdata/spool-segment-v1.hex was written by the program of the version before.
func TestSpoolOfTheVersionBefore(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/spool-segment-v1.hex")
	if err != nil {
		t.Fatal(err)
	}
	content, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeOld(t, dir, "spool-0000000007-000000", content)
	p := spoolWithoutDatabase(t, dir, 1<<20)
	if err := p.loadLeft("node_a", nil); err != nil {
		t.Fatal(err)
	}
	rows, err := p.next(100, 1<<20)
	if err != nil || len(rows) != 5 || rows[0].Node != "node_a/7" {
		t.Fatalf("%d steps, %v", len(rows), err)
	}
	var steps []*step
	for i := range rows {
		st, err := rows[i].step()
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, st)
	}
	e, a := steps[1].event, steps[2].attempt
	if e.Host != "hooks.example.com" || e.Remote != netip.MustParseAddrPort("192.0.2.1:4711") || e.Request.Body.Parts != 1 || len(e.Attempts) != 1 ||
		e.Provider.EventType != "push" || e.ReceivedAt.UnixMicro() != 1_767_225_600_000_000 {
		t.Errorf("the event: %+v", e)
	}
	if a.Status != 201 || *a.Identical || string(a.Response.Body.Data) != "ok" || len(a.Interim) != 1 || a.Error.Message != "m" {
		t.Errorf("the attempt: %+v", a)
	}
	if string(p.part(partKey{id: steps[0].id})) != "part" || steps[3].message.Body.Size != 1 || steps[4].kind != stepRequeue {
		t.Errorf("steps: %+v", steps)
	}
	p.advance(rows)
	if !p.markEmpty() || spoolLeft(dir) {
		t.Error("something is left")
	}
}

// A process of the version before may have died at any byte of a write: what was whole before
// is read, and the rest is left out. Nothing is read twice if this process dies before the old
// file is gone.
func TestSpoolOldFileCutShort(t *testing.T) {
	t.Parallel()
	whole, ends := oldSegment(chunkSteps(0, 4, 20))
	dir := t.TempDir()
	p := spoolWithoutDatabase(t, dir, 16<<20)
	for size := range len(whole) + 1 {
		for i, behind := range [][]byte{nil, make([]byte, 100)} {
			content := append(whole[:size:size], behind...)
			name := fmt.Sprintf("spool-0000000003-%06d", 2*size+i)
			want := 0
			for _, end := range ends {
				if len(content) >= end && slices.Equal(content[:end], whole[:end]) { // its last bytes may be zeros, too
					want++
				}
			}
			for range 2 { // the file is there again
				writeOld(t, dir, name, content)
				if err := p.loadLeft("node_a", nil); err != nil {
					t.Fatalf("cut at %d: %v", size, err)
				}
			}
			rows, err := p.next(100, 1<<20)
			if err != nil || len(rows) != want {
				t.Fatalf("cut at %d: %d steps, want %d, %v", size, len(rows), want, err)
			}
			if want > 0 {
				p.advance(rows)
			}
		}
	}
	if left := oldSpoolFiles(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Bytes that changed on the disk cost the step that they belong to, and the file is kept.
func TestSpoolOldFileDamaged(t *testing.T) {
	t.Parallel()
	for lost := range 5 {
		content, ends := oldSegment(chunkSteps(0, 5, 50))
		content[ends[lost]-20] ^= 0xff
		dir := t.TempDir()
		writeOld(t, dir, "spool-0000000003-000000", content)
		for _, name := range []string{"spool-notes.txt", "spool-", "spool-0000000001-000000.copy"} { // not ours
			writeOld(t, dir, name, []byte("mine"))
		}
		p := spoolWithoutDatabase(t, dir, 16<<20)
		if err := p.loadLeft("node_a", nil); err != nil {
			t.Fatal(err)
		}
		if got := drainAll(t, p, 100); !slices.Equal(got, slices.Delete(numbers(5), lost, lost+1)) {
			t.Errorf("step %d was damaged, read were %v", lost, got)
		}
		for _, name := range []string{"spool-0000000003-000000.damaged", "spool-notes.txt", "spool-", "spool-0000000001-000000.copy"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				t.Error(err)
			}
		}
	}
}

// What the version before stored already is not stored again, and the rest is.
func TestSpoolOldFilesAreStoredOnce(t *testing.T) {
	t.Parallel()
	s, alias := servedOnPostgres(t)
	steps, queue := arrivals(s, alias, 20)
	content, ends := oldSegment(steps)
	writeOld(t, s.opt.DataDir, "spool-0000000001-000000", content)
	half := len(steps) / 2
	var stored []*step
	for _, st := range steps[:half] {
		if int(st.id[15])%oldWorkers == 0 {
			stored = append(stored, st)
		}
	}
	target := &writeTarget{db: s.write, node: s.NodeID(), former: s.NodeID()}
	if _, err := s.writeRows(t.Context(), target, stored); err != nil {
		t.Fatal(err)
	}
	if _, err := s.write.Exec(`INSERT INTO meta (name, value) VALUES ($1, $2)`, "spool/"+s.spoolID+"/spool-0000000001-000000/0", fmt.Sprint(ends[half-1])); err != nil {
		t.Fatal(err)
	}
	gone := map[relay.ID]bool{}
	for _, st := range stored {
		if st.kind == stepAccept && slices.Contains(queue, st.id) {
			gone[st.id] = true
			if err := s.DeleteEvent(t.Context(), relay.System(), st.id); err != nil {
				t.Fatal(err)
			}
		}
	}
	p := spoolWithoutDatabase(t, s.opt.DataDir, 16<<20)
	if err := s.loadSpool(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := s.drain(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	for _, id := range queue {
		if gone[id] {
			continue
		}
		if c := takeOut(t, s, alias); c == nil || c.Event.ID != id {
			t.Fatalf("want %s, out of the queue comes %+v", id, c)
		}
	}
	if c := takeOut(t, s, alias); c != nil {
		t.Errorf("a removed event is there again: %+v", c)
	}
	var offsets int
	if err := s.read.Get(&offsets, `SELECT COUNT(*) FROM meta WHERE name LIKE 'spool/%'`); err != nil || offsets > 0 || spoolLeft(s.opt.DataDir) {
		t.Errorf("%d offsets are left, %v", offsets, err)
	}
}
