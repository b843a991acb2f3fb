package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The spool is a row of files in the data dir, each of this form:
//
//	"relayspl"                    8 bytes
//	progress, CRC-32C of it       8 + 4 bytes, little endian: all before it is in the database
//	records                       length and CRC-32C of the content (4 + 4 bytes), content
//
// The first record names the claimant of the steps. Progress is a hint: the offsets in the
// database decide, see offsetName.
const (
	spoolMagic    = "relayspl"
	segmentHead   = int64(len(spoolMagic) + 12)
	recordHead    = 8
	spoolPrefix   = "spool-"
	spoolDamaged  = ".damaged"
	spoolRefused  = spoolPrefix + "refused" + spoolDamaged // steps that the database refuses
	ownerFormat   = 0xff                                   // first byte of the record that names the owner
	spoolFileMode = 0o600
)

// claimant is the process in whose name steps are written.
type claimant struct {
	node string
	boot int64
}

// nodeID is the id of the node that the process was.
func (c claimant) nodeID() string { return c.node + "/" + strconv.FormatInt(c.boot, 10) }

// segment is one file of the spool. The process that has it open holds its lock.
type segment struct {
	disk     spoolDisk
	file     spoolFile
	path     string
	claimant claimant
	read     int64 // all before it is in the database
	end      int64 // all before it is durable here
	torn     int64 // bytes after end that were not written whole, ignored
	damaged  bool  // a record was written whole and is different now
}

// createSegment durably makes a file that holds the records first. Its name is the first free
// one from number seq on. It returns the number after that.
func createSegment(disk spoolDisk, dir string, by claimant, seq int, first []byte) (*segment, int, error) {
	for {
		path := filepath.Join(dir, fmt.Sprintf(spoolPrefix+"%010d-%06d", by.boot, seq))
		seq++
		f, err := disk.open(path, os.O_CREATE|os.O_EXCL|os.O_RDWR)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return nil, seq, err
		}
		head := startOfSegment(by)
		sg := &segment{disk: disk, file: f, path: path, claimant: by, read: int64(len(head)), end: int64(len(head))}
		err = f.lock()
		if err == nil {
			_, err = f.WriteAt(head, 0)
		}
		if err == nil {
			err = sg.append(first)
		}
		if err == nil {
			err = disk.syncDir(dir)
		}
		if err != nil {
			return nil, seq, errors.Join(err, sg.remove())
		}
		return sg, seq, nil
	}
}

// append makes records durable. After an error the file is truncated to its former length,
// and nothing more may be appended to it, because its content on the disk is unknown.
func (sg *segment) append(records []byte) error {
	_, err := sg.file.WriteAt(records, sg.end)
	if err == nil {
		err = sg.file.Sync()
	}
	if err != nil {
		return errors.Join(err, sg.file.Truncate(sg.end))
	}
	sg.end += int64(len(records))
	return nil
}

// openSegment opens a file that an earlier process left, and ignores what was not written
// whole at its end. It returns nil when that process still runs. A file without a readable
// beginning is damaged and has no steps.
func openSegment(disk spoolDisk, path, node string) (*segment, error) {
	f, err := disk.open(path, os.O_RDWR)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}
	sg := &segment{disk: disk, file: f, path: path}
	if !sg.tryOwn() {
		return nil, f.Close()
	}
	whole, err := sg.scan(node)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read spool %s: %w", path, err), f.Close())
	}
	if !whole {
		sg.torn, sg.damaged = sg.end, sg.end > segmentHead
		sg.read, sg.end = 0, 0
	}
	return sg, nil
}

// tryOwn takes the lock of the file. It fails when the process that made the file still
// runs, or has removed the file meanwhile.
func (sg *segment) tryOwn() bool {
	if sg.file.lock() != nil {
		return false
	}
	open, err := sg.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(sg.path)
	return err == nil && os.SameFile(open, there)
}

// scan finds the claimant, the progress and the end of the last whole record. whole is false
// when the first record is missing: then nothing in the file was promised to a caller.
func (sg *segment) scan(node string) (whole bool, err error) {
	info, err := sg.file.Stat()
	if err != nil {
		return false, err
	}
	sg.end = info.Size()
	head := make([]byte, segmentHead)
	if _, err := sg.file.ReadAt(head, 0); err == io.EOF || err == nil && string(head[:len(spoolMagic)]) != spoolMagic {
		return false, nil
	} else if err != nil {
		return false, err
	}
	sg.read = segmentHead
	known, err := sg.readOwner()
	if err == nil && !known {
		known, err = sg.guessOwner(node)
	}
	if !known {
		return false, err
	}
	progress := head[len(spoolMagic):]
	done := int64(binary.LittleEndian.Uint64(progress))
	sound := crc32.Checksum(progress[:8], castagnoli) == binary.LittleEndian.Uint32(progress[8:])
	at, from := sg.read, sg.read
	for at < sg.end {
		content, err := sg.next(at)
		if ioOnly(err) != nil {
			return false, err
		}
		if err != nil {
			sg.damaged = true
			behind, err := sg.nextRecord(at)
			if err != nil {
				return false, err
			}
			if behind == sg.end {
				break
			}
			at = behind
			continue
		}
		if content == nil {
			break
		}
		if at += recordHead + int64(len(content)); sound && at == done {
			from = at
		}
	}
	sg.torn = sg.end - at
	sg.read, sg.end = from, at
	return true, nil
}

// readOwner reads the claimant from the first record; known is false without that record.
func (sg *segment) readOwner() (known bool, err error) {
	content, err := sg.next(sg.read)
	if err != nil || content == nil || content[0] != ownerFormat {
		return false, ioOnly(err)
	}
	c := coder{b: content[1:], reading: true}
	c.text(&sg.claimant.node)
	number(&c, &sg.claimant.boot)
	sg.read += recordHead + int64(len(content))
	return c.err == nil, nil
}

// next reads the content of the record at an offset; nil when it is incomplete.
func (sg *segment) next(at int64) ([]byte, error) {
	head := make([]byte, recordHead)
	if at+recordHead > sg.end {
		return nil, nil
	}
	if _, err := sg.file.ReadAt(head, at); err != nil {
		return nil, err
	}
	size := recordHead + int64(binary.LittleEndian.Uint32(head))
	if at+size > sg.end {
		return nil, nil
	}
	record := make([]byte, size)
	if _, err := sg.file.ReadAt(record, at); err != nil {
		return nil, err
	}
	content, _, err := readRecord(record)
	return content, err
}

// ioOnly drops the error of a damaged record.
func ioOnly(err error) error {
	if errors.Is(err, errStepDamaged) {
		return nil
	}
	return err
}

// peek reads the next steps that are not in the database, up to limit steps and, unless the
// first one is larger, up to bytes. It returns where they end.
func (sg *segment) peek(limit int, bytes int64) (steps []*step, to int64, err error) {
	buf := make([]byte, min(bytes, sg.end-sg.read))
	if _, err := sg.file.ReadAt(buf, sg.read); err != nil {
		return nil, sg.read, err
	}
	to = sg.read
	for len(steps) < limit {
		content, size, err := readRecord(buf)
		if err == nil && size == 0 && len(steps) == 0 && to < sg.end { // one record larger than the buffer
			if content, err = sg.next(to); content == nil && err == nil {
				err = errStepDamaged
			}
			size, buf = recordHead+len(content), nil
		}
		if err != nil {
			return steps, to, err
		}
		if content == nil {
			break
		}
		st, err := parseStep(content)
		if err != nil {
			return steps, to, err
		}
		to += int64(size)
		st.to = to
		steps = append(steps, st)
		buf = buf[min(size, len(buf)):]
	}
	return steps, to, nil
}

// advance records how far the file is in the database.
func (sg *segment) advance(to int64) {
	sg.read = to
	var b [12]byte
	putProgress(b[:], to)
	_, _ = sg.file.WriteAt(b[:], int64(len(spoolMagic))) // a hint
}

// remove deletes the file.
func (sg *segment) remove() error {
	err := sg.file.Close() // before Remove: Windows does not delete an open file
	if gone := sg.disk.remove(sg.path); !errors.Is(gone, os.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}

// discard renames a damaged file, so that it is kept for the operator but is not in the spool
// any more. An empty file is removed.
func (sg *segment) discard() error {
	if info, err := sg.file.Stat(); err == nil && info.Size() <= segmentHead {
		return sg.remove()
	}
	return errors.Join(sg.file.Close(), sg.disk.rename(sg.path, sg.path+spoolDamaged))
}

// leftSegments returns the paths of the spool files in a data dir, oldest first. Files with
// other names are ignored.
func leftSegments(dir string) []string {
	list, _ := os.ReadDir(dir) // sorted; a data dir that cannot be read has failed before
	var out []string
	for _, e := range list {
		numbers, ours := strings.CutPrefix(e.Name(), spoolPrefix)
		boot, seq, both := strings.Cut(numbers, "-")
		if ours && both && isNumber(boot) && isNumber(seq) && !e.IsDir() {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// nextRecord returns the offset of the first sound record after a damaged one: the one at its
// stated length, or else the end of the file. It does not search inside the damaged record,
// because a body is foreign data that could look like a step.
func (sg *segment) nextRecord(at int64) (int64, error) {
	head := make([]byte, recordHead)
	for at+recordHead <= sg.end {
		if _, err := sg.file.ReadAt(head, at); err != nil {
			return 0, err
		}
		size := int64(binary.LittleEndian.Uint32(head))
		if size == 0 {
			break
		}
		at += recordHead + size
		content, err := sg.next(at)
		if ioOnly(err) != nil {
			return 0, err
		}
		if content != nil {
			return at, nil
		}
		if err == nil {
			break
		}
	}
	return sg.end, nil
}

// guessOwner replaces a damaged first record: the name of the file contains the boot, and the
// files of a data dir were made by its node. It returns false when nothing after that record
// can be read either.
func (sg *segment) guessOwner(node string) (known bool, err error) {
	behind, err := sg.nextRecord(sg.read)
	if err != nil || behind == sg.end || node == "" {
		return false, err
	}
	boot, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(sg.path), spoolPrefix), "-")
	if sg.claimant.boot, err = strconv.ParseInt(boot, 10, 64); err != nil {
		return false, nil
	}
	sg.claimant.node, sg.read, sg.damaged = node, behind, true
	return true, nil
}
