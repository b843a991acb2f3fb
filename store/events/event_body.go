package events

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"relay"
	"relay/budget"
	"relay/store/db"
)

// messageBudget bounds the heads and bodies of one event that are read together, in bytes.
const messageBudget = 16 << 20

const (
	partQuery   = `SELECT data FROM body_chunks WHERE event_id = ? AND n = ? AND i = ?`
	inlineSlice = 100 // largest number of bodies in one query
)

// readMessages reads messages of an event with the given numbers, the most important ones first; 0 is the
// request. It reads heads, and notes how many bytes of each body readBodies has to read, at most as many as
// the parameter most. Messages beyond messageBudget come without their bytes, except for the head of the
// first one.
func readMessages(q db.Query, id relay.ID, numbers []int, most int) ([]*payload, error) {
	in, args := db.ColumnIn(`n`, numbers)
	rows, err := db.RowsOf(q, (*payload).fields, payloadQuery+`event_id = ? AND `+in, append([]any{id}, args...)...)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(rows, func(a, b payload) int { return cmp.Compare(slices.Index(numbers, a.n), slices.Index(numbers, b.n)) })
	together := budget.MostRead(q.Ctx, messageBudget)
	list, headed, left := make([]*payload, 0, len(rows)), make(map[int]*payload, len(rows)), together
	for i := range rows {
		p := &rows[i]
		list = append(list, p)
		if p.HeadOmitted = p.heads > left && i > 0; !p.HeadOmitted {
			left -= p.heads
			headed[p.n] = p
		}
		if want := min(p.Body.Stored, int64(max(most, 0))); want <= left {
			left -= want
			p.read = want
		}
	}
	if err := budget.ReserveRead(q.Ctx, together-left); err != nil {
		return nil, err
	}
	return list, readHeads(q, id, headed)
}

// readHeads reads the heads of messages, by their numbers.
func readHeads(q db.Query, id relay.ID, to map[int]*payload) error {
	if len(to) == 0 {
		return nil
	}
	in, args := db.ColumnIn(`n`, slices.Sorted(maps.Keys(to)))
	rows, err := db.RowsOf(q, (*payload).headFields, headQuery+`event_id = ? AND `+in, append([]any{id}, args...)...)
	for i := range rows {
		p, r := to[rows[i].n], &rows[i]
		p.Head, p.Lines, p.extra, p.interim = r.Head, r.Lines, r.extra, r.interim
	}
	return err
}

// readBodies reads as many bytes of each body as readMessages has noted.
func readBodies(q db.Query, id relay.ID, list []*payload) error {
	inline := map[int]*payload{}
	most := int64(0)
	for _, p := range list {
		b := &p.Body
		if b.Parts == 0 && p.read > 0 {
			inline[p.n], most = p, max(most, p.read)
		}
		if b.Parts > 0 && p.read > 0 {
			b.Data = make([]byte, 0, p.read) // growing the slice takes up to twice as much memory
		}
		for i := 0; i < b.Parts && len(b.Data) < cap(b.Data); i++ { // only the start of a large body is read, up to the capacity
			if err := q.Row(partQuery, id, p.n, i).Scan((*unfilled)(&b.Data)); err != nil {
				return err
			}
		}
	}
	return readInline(q, id, inline, most)
}

// unfilled is a slice whose free capacity is filled from a column, without an intermediate copy.
type unfilled []byte

// Scan implements sql.Scanner.
func (u *unfilled) Scan(column any) error {
	part, ok := column.([]byte)
	if !ok {
		return fmt.Errorf("a part of a body is a %T", column)
	}
	*u = append(*u, part[:min(len(part), cap(*u)-len(*u))]...)
	return nil
}

// readInline reads the bodies that are stored in rows of payloads, by message number. most is the largest
// number of bytes that it reads of one body.
func readInline(q db.Query, id relay.ID, rows map[int]*payload, most int64) error {
	for some := range slices.Chunk(slices.Sorted(maps.Keys(rows)), inlineSlice) {
		var got []struct {
			N    int
			Body []byte
		}
		if err := q.AllIn(&got, `SELECT n, SUBSTR(body, 1, ?) AS body FROM payloads WHERE event_id = ? AND n IN (?)`, most, id, some); err != nil {
			return err
		}
		for _, g := range got {
			rows[g.N].Body.Data = g.Body
		}
	}
	return nil
}

// BodyPart reads part i of the request body (n = 0) or of the response body of attempt n; a body that is not
// stored as parts is part 0. Call it only after Event has checked the actor. Parts that wait in the spool are
// read from the spool, so that a large request can be forwarded while Postgres is unreachable.
func (s *Store) BodyPart(ctx context.Context, id relay.ID, n, i int) (part []byte, err error) {
	if part := s.parts.Part(id, n, i); part != nil {
		return part, nil
	}
	err = s.db.View(ctx, "read body part", func(q db.Query) error {
		err := q.Get(&part, partQuery, id, n, i)
		if i == 0 && errors.Is(err, sql.ErrNoRows) {
			err = q.Get(&part, `SELECT body FROM payloads WHERE event_id = ? AND n = ? AND parts = 0`, id, n)
		}
		return err
	})
	return part, err
}

// CheckParts returns nil if all parts of a stored body can be read now: from the spool, or from the database
// if it answers. Call it before the head of a stored request is forwarded, so that no local server gets a
// request whose body cannot follow. If a part becomes unreadable afterwards, the request ends as incomplete.
func (s *Store) CheckParts(ctx context.Context, id relay.ID, n, parts int) error {
	missing := s.parts.MissingParts(id, n, parts)
	if len(missing) == 0 {
		return nil
	}
	return s.db.View(ctx, "look for body parts", func(q db.Query) error {
		var stored []int
		if err := q.All(&stored, `SELECT i FROM body_chunks WHERE event_id = ? AND n = ?`, id, n); err != nil {
			return err
		}
		if slices.ContainsFunc(missing, func(i int) bool { return !slices.Contains(stored, i) }) {
			return ErrPartsLost
		}
		return nil
	})
}

// ErrPartsLost is the error for a message with a part that is not stored.
var ErrPartsLost = &relay.Error{
	Code: relay.CodeStoreUnavailable, RetryAfter: 2 * time.Second, Detail: "a part of the body could not be stored",
}
