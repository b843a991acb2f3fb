package store

import (
	"context"
	"encoding/binary"
	"slices"

	"relay"
)

// partKey names one part of a stored body.
type partKey struct {
	id   relay.ID
	n, i int
}

// indexParts notes where the parts among steps begin in the file. records are these
// steps, encoded, and the last bytes of the file.
func (sg *segment) indexParts(steps []*step, records []byte) {
	at := sg.end - int64(len(records))
	for _, st := range steps {
		if st.kind == stepChunk {
			if sg.parts == nil {
				sg.parts = map[partKey]int64{}
			}
			sg.parts[partKey{st.id, st.n, st.i}] = at
		}
		size := recordHead + int64(binary.LittleEndian.Uint32(records))
		at, records = at+size, records[size:]
	}
}

// part reads a part of a body that this process put into the spool; nil when the spool
// does not have it, or cannot read it: then the database may.
func (p *spool) part(key partKey) []byte {
	if !p.active() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, sg := range p.segments {
		at, here := sg.parts[key]
		if !here {
			continue
		}
		content, err := sg.next(at)
		if err != nil || content == nil {
			return nil
		}
		st, err := parseStep(content)
		if err != nil {
			return nil
		}
		return st.data
	}
	return nil
}

// missingParts returns the numbers of those parts of a body that are not in the spool.
func (p *spool) missingParts(id relay.ID, n, parts int) (missing []int) {
	if p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
	}
	for i := range parts {
		if p == nil || !slices.ContainsFunc(p.segments, func(sg *segment) bool {
			_, here := sg.parts[partKey{id, n, i}]
			return here
		}) {
			missing = append(missing, i)
		}
	}
	return missing
}

// CheckParts is nil when all parts of a stored body can be read now: from the spool, or
// from the database, which has to answer for that. It is asked before the head of a
// stored request is forwarded, so that no local server gets a request whose body cannot
// follow.
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
