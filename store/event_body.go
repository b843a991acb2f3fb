package store

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"math"
	"slices"

	"relay"
)

// bodyBudget bounds the bodies of one event that are read together, in bytes, where
// much of each is asked for.
const bodyBudget = 16 << 20

const (
	partQuery   = `SELECT data FROM body_chunks WHERE event_id = ? AND n = ? AND i = ?`
	inlineSlice = 100 // bodies of one query
)

// budgetOf is how much of all bodies together is read where most bytes of each are.
func budgetOf(most int) int64 {
	if most > relay.InlineBody {
		return bodyBudget
	}
	return math.MaxInt64
}

// fillBodies reads the bodies of the rows, in order of n: of each at most most bytes,
// of all left. When they are too much together, that of the request comes first, then
// those of the first attempt and of the last ones; what does not fit comes without its
// bytes.
func (q session) fillBodies(id relay.ID, rows []payload, most int, left int64) error {
	if most <= 0 || len(rows) == 0 {
		return nil
	}
	inline := make(map[int]*payload, len(rows))
	for i := range rows {
		p := &rows[i]
		if i > 1 { // 0, 1, then from the end
			p = &rows[len(rows)+1-i]
		}
		want := min(p.Body.Stored, int64(most))
		if want == 0 || want > left {
			continue
		}
		left -= want
		b := &p.Body
		if b.Parts == 0 {
			inline[p.n] = p
		}
		for i := 0; i < b.Parts && len(b.Data) < int(want); i++ { // the start of a large body
			var part []byte
			if err := q.get(&part, partQuery, id, p.n, i); err != nil {
				return err
			}
			b.Data = append(b.Data, part[:min(len(part), int(want)-len(b.Data))]...)
		}
	}
	return q.readInline(id, inline, most)
}

// readInline reads the bodies that are in the rows, by n.
func (q session) readInline(id relay.ID, rows map[int]*payload, most int) error {
	for some := range slices.Chunk(slices.Sorted(maps.Keys(rows)), inlineSlice) {
		var got []struct {
			N    int
			Body []byte
		}
		if err := q.allIn(&got, `SELECT n, SUBSTR(body, 1, ?) AS body FROM payloads WHERE event_id = ? AND n IN (?)`, most, id, some); err != nil {
			return err
		}
		for _, g := range got {
			rows[g.N].Body.Data = g.Body
		}
	}
	return nil
}

// BodyPart reads part i of the request body (n = 0) or of the response body of
// attempt n; a body that is not stored as parts is part 0. Only after Event let the
// actor in. Parts that wait in the spool are read from there, so that a request that was
// stored first can be forwarded while Postgres is unreachable.
func (s *Store) BodyPart(ctx context.Context, id relay.ID, n, i int) (part []byte, err error) {
	if part := s.spool.Part(id, n, i); part != nil {
		return part, nil
	}
	err = s.view(ctx, "read body part", func(q session) error {
		err := q.get(&part, partQuery, id, n, i)
		if i == 0 && errors.Is(err, sql.ErrNoRows) {
			err = q.get(&part, `SELECT body FROM payloads WHERE event_id = ? AND n = ? AND parts = 0`, id, n)
		}
		return err
	})
	return part, err
}

// CheckParts is nil when all parts of a stored body can be read now: from the spool, or
// from the database, which has to answer for that. It is asked before the head of a
// stored request is forwarded, so that no local server gets a request whose body cannot
// follow. A part may still become unreadable afterwards, if the spool is drained and Postgres
// becomes unreachable again before the part is read: then the request ends incomplete.
func (s *Store) CheckParts(ctx context.Context, id relay.ID, n, parts int) error {
	missing := s.spool.MissingParts(id, n, parts)
	if len(missing) == 0 {
		return nil
	}
	return s.view(ctx, "look for body parts", func(q session) error {
		var stored []int
		if err := q.all(&stored, `SELECT i FROM body_chunks WHERE event_id = ? AND n = ?`, id, n); err != nil {
			return err
		}
		if slices.ContainsFunc(missing, func(i int) bool { return !slices.Contains(stored, i) }) {
			return errPartsLost
		}
		return nil
	})
}
