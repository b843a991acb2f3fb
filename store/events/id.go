package events

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"strconv"
	"sync"
	"time"

	"relay"
	"relay/store/db"
)

// idSource makes event ids: UUIDv7 with a counter in rand_a, so that ids of one millisecond keep the
// order in which they were made (RFC 9562, section 6.2).
type idSource struct {
	mu      sync.Mutex
	ms      int64
	counter uint16
}

// next returns an id that is greater than all before it, even if the clock was set back.
func (s *idSource) next(now time.Time) relay.ID {
	var id relay.ID
	_, _ = rand.Read(id[:]) // never fails
	s.mu.Lock()
	defer s.mu.Unlock()
	switch ms := now.UnixMilli(); {
	case ms > s.ms:
		s.ms, s.counter = ms, binary.BigEndian.Uint16(id[6:])&0x3ff // a low start leaves room for increments
	case s.counter == 0xfff:
		s.ms, s.counter = s.ms+1, 0
	default:
		s.counter++
	}
	binary.BigEndian.PutUint32(id[0:], uint32(s.ms>>16))
	binary.BigEndian.PutUint16(id[4:], uint16(s.ms))
	binary.BigEndian.PutUint16(id[6:], 0x7000|s.counter)
	id[8] = 0x80 | id[8]&0x3f
	return id
}

// raise makes all later ids greater than id.
func (s *idSource) raise(id relay.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ms, counter := id.Time().UnixMilli(), binary.BigEndian.Uint16(id[6:])&0xfff
	if ms > s.ms || ms == s.ms && counter > s.counter {
		s.ms, s.counter = ms, counter
	}
}

// NewID returns the next event id; see delivery.Journal. The time in it is not earlier than the
// arrival of its event, because lists find events by the times of their ids.
func (s *Store) NewID() relay.ID { return s.ids.next(s.db.Clock.Latest()) }

// RaiseIDs makes new ids follow the highest stored id, and new arrival times follow the newest queued
// attempt. If ids are far ahead of the clock, because the clock was set back, RaiseIDs stores the difference.
func (s *Store) RaiseIDs(ctx context.Context) error {
	var lead time.Duration
	err := s.db.View(ctx, "read highest event id", func(q db.Query) error {
		var last []relay.ID
		if err := q.All(&last, `SELECT id FROM events ORDER BY id DESC LIMIT 1`); err != nil {
			return err
		}
		for _, id := range last {
			s.ids.raise(id)
			lead = id.Time().Sub(s.db.Now())
		}
		var newest int64
		if err := q.Get(&newest, `SELECT COALESCE(MAX(received_at), 0) FROM queue`); err != nil {
			return err
		}
		s.db.Clock.StartAfter(db.FromMicros(newest))
		return nil
	})
	if err != nil || lead <= arrivalSlack {
		return err
	}
	return s.db.Execute(ctx, "note how far ids are ahead", `INSERT INTO meta (name, value) VALUES ('id_lead_us', ?) ON CONFLICT (name) DO UPDATE
		SET value = excluded.value WHERE CAST(meta.value AS BIGINT) < CAST(excluded.value AS BIGINT)`, strconv.FormatInt(lead.Microseconds(), 10))
}

// idLead returns the longest time by which ids were ever ahead of the arrival of their events; 0 if
// that is within arrivalSlack.
func idLead(q db.Query) (time.Duration, error) {
	var us int64
	err := q.Get(&us, `SELECT COALESCE(MAX(CAST(value AS BIGINT)), 0) FROM meta WHERE name = 'id_lead_us'`)
	return time.Duration(us) * time.Microsecond, err
}

// LowestID returns the lowest id with the time t. Ids with the time t are below LowestID of the next
// millisecond.
func LowestID(t time.Time) (id relay.ID) {
	ms := max(t.UnixMilli(), 0)
	binary.BigEndian.PutUint32(id[0:], uint32(ms>>16))
	binary.BigEndian.PutUint16(id[4:], uint16(ms))
	return id
}

// LastID is the highest possible id.
var LastID = relay.ID{
	0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
}
