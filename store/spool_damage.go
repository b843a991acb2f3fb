package store

import (
	"encoding/binary"
	"path/filepath"
	"strconv"
	"strings"
)

// behind gives where the records go on behind a damaged one: where its length says, if
// what is there is sound; else at the end of the file. Nothing is looked for inside of
// it: bodies are somebody else's bytes, and could look like steps.
func (sg *segment) behind(at int64) (int64, error) {
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

// guessOwner stands in for a first record that is damaged: the name of the file has the
// boot, and what is in a data dir was made by its node. false when nothing behind that
// record can be read either.
func (sg *segment) guessOwner(node string) (known bool, err error) {
	behind, err := sg.behind(sg.read)
	if err != nil || behind == sg.end || node == "" {
		return false, err
	}
	boot, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(sg.path), spoolPrefix), "-")
	if sg.by.boot, err = strconv.ParseInt(boot, 10, 64); err != nil {
		return false, nil
	}
	sg.by.node, sg.read, sg.odd = node, behind, true
	return true, nil
}
