package store

import (
	"context"
	"encoding/binary"
	"maps"
	"sync"

	"relay"
)

// partKey names one part of a stored body.
type partKey struct {
	id   relay.ID
	n, i int
}

// partIndex says where in the files of the spool the parts are that this process wrote. It
// has a lock of its own, which is never held while something is written.
type partIndex struct {
	mu sync.RWMutex
	at map[partKey]partPlace
}

// partPlace is the place of a record.
type partPlace struct {
	in       *segment
	at, size int64
}

// add adds the parts among steps. records are these steps, encoded, and the last bytes of
// the file. Call it with the lock of the spool held.
func (x *partIndex) add(sg *segment, steps []*step, records []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at := sg.end - int64(len(records))
	for _, st := range steps {
		size := recordHead + int64(binary.LittleEndian.Uint32(records))
		if st.kind == stepChunk {
			if x.at == nil {
				x.at = map[partKey]partPlace{}
			}
			x.at[partKey{st.id, st.n, st.i}] = partPlace{sg, at, size}
		}
		at, records = at+size, records[size:]
	}
}

// forget removes the parts of a file that is about to be closed. It waits for those who
// read from the file.
func (x *partIndex) forget(sg *segment) {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.at, func(_ partKey, p partPlace) bool { return p.in == sg })
}

// missing returns the numbers of those parts of a body that are not in the spool.
func (x *partIndex) missing(id relay.ID, n, parts int) (missing []int) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for i := range parts {
		if _, here := x.at[partKey{id, n, i}]; !here {
			missing = append(missing, i)
		}
	}
	return missing
}

// read reads a part; nil when the spool does not have it, or cannot read it.
func (x *partIndex) read(key partKey) []byte {
	x.mu.RLock()
	defer x.mu.RUnlock()
	p, here := x.at[key]
	if !here {
		return nil
	}
	record := make([]byte, p.size)
	if _, err := p.in.file.ReadAt(record, p.at); err != nil {
		return nil
	}
	content, _, err := readRecord(record)
	if err != nil || content == nil {
		return nil
	}
	st, err := parseStep(content)
	if err != nil {
		return nil
	}
	return st.data
}

// part reads a part of a body that this process put into the spool; nil when the spool
// does not have it, or cannot read it: then the database may.
func (p *spool) part(key partKey) []byte {
	if !p.active() {
		return nil
	}
	return p.parts.read(key)
}

// missingParts returns the numbers of those parts of a body that are not in the spool.
func (p *spool) missingParts(id relay.ID, n, parts int) []int {
	if p == nil {
		return (&partIndex{}).missing(id, n, parts)
	}
	return p.parts.missing(id, n, parts)
}

// CheckParts is nil when all parts of a stored body can be read now: from the spool, or
// from the database, which has to answer for that. It is asked before the head of a
// stored request is forwarded, so that no local server gets a request whose body cannot
// follow. A part may still become unreadable afterwards, if the spool is drained and Postgres
// becomes unreachable again before the part is read: then the request ends incomplete.
func (s *Store) CheckParts(ctx context.Context, id relay.ID, n, parts int) error {
	missing := s.spool.missingParts(id, n, parts)
	if len(missing) == 0 {
		return nil
	}
	return s.view(ctx, "look for body parts", func(q session) error {
		var stored []int
		if err := q.all(&stored, `SELECT i FROM body_chunks WHERE event_id = ? AND n = ?`, id, n); err != nil {
			return err
		}
		have := make(map[int]bool, len(stored))
		for _, i := range stored {
			have[i] = true
		}
		for _, i := range missing {
			if !have[i] {
				return errPartsLost
			}
		}
		return nil
	})
}
