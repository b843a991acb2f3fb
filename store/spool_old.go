package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/jmoiron/sqlx"
)

// Versions before the spool became a SQLite file wrote a row of files, each of this form:
//
//	"relayspl", progress, its CRC-32C     8 + 8 + 4 bytes
//	records                               length and CRC-32C of the content (4 + 4 bytes), content
//
// The content is a step, or begins with 0xff and names the claimant, which the name of the
// file does as well.
const (
	oldMagic      = "relayspl"
	oldHead       = len(oldMagic) + 12
	oldRecordHead = 8
	oldOwner      = 0xff
	oldWorkers    = 2 // connections that stored a file, each with an offset in meta

	oldOffsetPrefix = "spool/" // of the names of these offsets
)

var oldSpoolName = regexp.MustCompile(`^spool-(\d+)-\d+$`)

// oldSpoolFiles returns the files of an earlier version in dir, oldest first.
func oldSpoolFiles(dir string) (paths []string) {
	list, _ := os.ReadDir(dir) // sorted by name
	for _, e := range list {
		if e.Type().IsRegular() && oldSpoolName.MatchString(e.Name()) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths
}

// oldOffsets says how far each worker stored an old file, by "file/worker".
type oldOffsets map[string]int64

// readOldOffsets reads the offsets from the database.
func (s *Store) readOldOffsets(q session) (oldOffsets, error) {
	if len(oldSpoolFiles(s.opt.DataDir)) == 0 {
		return nil, nil
	}
	prefix := oldOffsetPrefix + s.spoolID + "/"
	var rows []struct{ Name, Value string }
	if err := q.all(&rows, `SELECT SUBSTR(name, ?) AS name, value FROM meta WHERE SUBSTR(name, 1, ?) = ?`, len(prefix)+1, len(prefix), prefix); err != nil {
		return nil, err
	}
	offsets := oldOffsets{}
	for _, r := range rows {
		n, err := strconv.ParseInt(r.Value, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("offset %s of the spool: %w", r.Name, err)
		}
		offsets[r.Name] = n
	}
	return offsets, nil
}

// importOld copies the steps of an old file that are not in the database to the end of t, and
// removes the file. A file that is damaged is renamed instead.
func (p *spool) importOld(t *spoolTable, path, spoolID string, skip oldOffsets) error {
	name := filepath.Base(path)
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	if lockFile(f, false) != nil { // its process still runs
		return f.Close()
	}
	b, err := os.ReadFile(path)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	boot, _ := strconv.ParseInt(oldSpoolName.FindStringSubmatch(name)[1], 10, 64)
	rows, size, damaged := readOldRows(b, fmt.Sprintf("%s/%d", spoolID, boot), func(worker int) int64 { return skip[fmt.Sprintf("%s/%d", name, worker)] })
	copied := false
	err = t.transact(func(tx *sqlx.Tx) error {
		res, err := tx.Exec(`INSERT INTO imported (name) VALUES (?) ON CONFLICT DO NOTHING`, name)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if copied = n > 0; err != nil || !copied {
			return err
		}
		return t.insertRows(tx, p.last+1, rows)
	})
	if err != nil {
		return err
	}
	if copied {
		p.last += int64(len(rows))
		p.undrained.Add(size)
		p.waiting.Add(int64(len(rows)))
		p.updateUsed(t)
		p.log.Info("the spool file of an earlier version was read", "file", name, "steps", len(rows))
	}
	if damaged {
		p.log.Error("a spool file is damaged; what can be read of it is stored, and the file stays in the data dir", "file", name+spoolDamaged)
		err = os.Rename(path, path+spoolDamaged)
	} else {
		err = os.Remove(path)
	}
	return errors.Join(err, syncDir(p.dir))
}

// readOldRows reads the steps of an old file. stored returns how far a worker stored the file.
// A record whose checksum is wrong is skipped. A record that is not complete was not promised
// to a caller.
func readOldRows(b []byte, node string, stored func(worker int) int64) (rows []spoolRow, size int64, damaged bool) {
	if len(b) < oldHead || string(b[:len(oldMagic)]) != oldMagic {
		return nil, 0, len(b) > oldHead
	}
	done := [oldWorkers]int64{}
	for i := range done {
		done[i] = stored(i)
	}
	for at := oldHead; at+oldRecordHead <= len(b); {
		n, sum := int(binary.LittleEndian.Uint32(b[at:])), binary.LittleEndian.Uint32(b[at+4:])
		content := b[at+oldRecordHead:]
		if n == 0 || n > len(content) {
			break
		}
		content = content[:n:n]
		at += oldRecordHead + n
		st, err := parseStep(content)
		switch {
		case crc32.Checksum(content, castagnoli) != sum, err != nil && content[0] != oldOwner:
			damaged = true
		case content[0] != oldOwner && int64(at) > done[int(st.id[15])%oldWorkers]:
			more, bytes := newSpoolRows([]*step{st}, node, node)
			rows, size = append(rows, more...), size+bytes
		}
	}
	return rows, size, damaged
}
