package store

import (
	"encoding/binary"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendRecord appends a record: its head and then what content appends.
func appendRecord(out []byte, content func([]byte) []byte) []byte {
	at := len(out)
	out = content(append(out, make([]byte, recordHead)...))
	body := out[at+recordHead:]
	binary.LittleEndian.PutUint32(out[at:], uint32(len(body)))
	binary.LittleEndian.PutUint32(out[at+4:], crc32.Checksum(body, castagnoli))
	return out
}

// readRecord returns the content of the first record in b and the size of the record: 0 when
// b does not hold all of it, which is not an error.
func readRecord(b []byte) (content []byte, size int, err error) {
	if len(b) < recordHead {
		return nil, 0, nil
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if n > int64(len(b)-recordHead) {
		return nil, 0, nil
	}
	content = b[recordHead : recordHead+n : recordHead+n]
	if n == 0 { // the file system may have extended the file with zeros that were never written over
		return nil, 0, nil
	}
	if crc32.Checksum(content, castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
		return nil, 0, errStepDamaged
	}
	return content, recordHead + int(n), nil
}

// startOfSegment is the beginning of a new file.
func startOfSegment(by claimant) []byte {
	out := append([]byte(spoolMagic), make([]byte, 12)...)
	putProgress(out[len(spoolMagic):], 0)
	return appendRecord(out, func(b []byte) []byte {
		c := coder{b: append(b, ownerFormat)}
		c.text(&by.node)
		number(&c, &by.boot)
		return c.b
	})
}

func putProgress(b []byte, at int64) {
	binary.LittleEndian.PutUint64(b, uint64(at))
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b[:8], castagnoli))
}

// encode returns the records of steps.
func encode(steps []*step) []byte {
	size := int64(0)
	for _, st := range steps {
		size += st.size + stepOverhead
	}
	out := make([]byte, 0, size)
	for _, st := range steps {
		out = appendRecord(out, func(b []byte) []byte { return appendStep(b, st) })
	}
	return out
}
