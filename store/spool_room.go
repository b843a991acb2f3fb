package store

import (
	"errors"
	"fmt"
	"os"
	"time"

	"relay"
)

// What of the spool is for whom. A quarter is kept for the ends of what was let in:
// a request that was forwarded must not lose its answer to one that comes later.
const (
	spoolForEnds = 4        // 1/4
	spoolSmall   = 64 << 20 // a spool of less than this is short of room from the start
	spoolTurned  = 10_000   // ids of refused events that are remembered
	spoolUsual   = 4 << 10  // bytes of a request of no special size
)

// forNew is how many bytes new events may fill.
func (p *spool) forNew() int64 { return p.limit - p.limit/spoolForEnds }

// admits is nil when a new event of about need bytes has room in the spool, or does
// not go there. Answered from memory: it never waits for the disk.
func (p *spool) admits(need int64) *relay.Error {
	if !p.active() {
		return nil
	}
	if p.closed.Load() || p.taken.Load()+need+stepOverhead > p.forNew() {
		return errSpoolFull
	}
	return nil
}

// admitsUsual is nil while an event of no special size would be let in: callers are
// turned away before the spool itself refuses anything, and readiness has to say so.
func (p *spool) admitsUsual() *relay.Error { return p.admits(min(spoolUsual, p.forNew()/8)) }

// short tells whether the room for new events is so little that those under way at
// once could fill it.
func (p *spool) short() bool {
	return p.active() && (p.limit < spoolSmall || p.taken.Load() > p.forNew()/2)
}

// unwritable is why the disk of the spool takes nothing, nil when it does. It is tried
// with a small file, as no event may come to find out, at most once in probeEvery.
func (p *spool) unwritable() error {
	p.probing.Lock()
	defer p.probing.Unlock()
	if time.Since(p.probed) < probeEvery {
		return p.faulty
	}
	f, err := os.CreateTemp(p.dir, ".spool-try-*")
	if err == nil {
		if _, err = f.Write(make([]byte, spoolUsual)); err == nil {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	if p.faulty, p.probed = nil, time.Now(); err != nil {
		p.faulty = fmt.Errorf("store: postgres is away and the spool cannot be written: %w; make room in the data dir, or bring postgres back", err)
	}
	return p.faulty
}

// StoreFirst tells whether a request has to be stored before anything of it is
// forwarded: what keeps events while Postgres is away is filling up, and nothing may
// reach a local server that cannot be kept. Answered from memory.
func (s *Store) StoreFirst() bool { return s.spool.short() }

// put makes steps durable here because the database did not take them, for the
// reason given (nil: others are here already). refused are those that found no room,
// and err says why: new events, and the steps of events that were refused, before
// the ends of others. Once new events were refused none is taken until a file of the
// spool has reached the database, however small.
func (p *spool) put(steps []*step, why error) (refused []*step, bytes int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.ofRefused(steps)
	if len(known) == len(steps) {
		p.refused.Add(int64(len(steps)))
		return steps, 0, errSpoolFull
	}
	records := encode(steps)
	if len(known) > 0 || p.full != nil || p.used()+int64(len(records)) > p.forNew() {
		if steps, refused = p.turnAway(steps, known); len(refused) > 0 {
			records, err = encode(steps), errSpoolFull
		}
	}
	p.refused.Add(int64(len(refused)))
	if len(steps) == 0 {
		return refused, 0, err
	}
	if p.used()+int64(len(records)) > p.limit {
		p.refused.Add(int64(len(steps)))
		p.shut()
		return append(refused, steps...), 0, errSpoolFull
	}
	if err := p.append(records); err != nil {
		p.refused.Add(int64(len(steps)))
		p.complain("the spool cannot be written; callers get 503: make room in the data dir, or bring postgres back", "dir", p.dir, "err", err)
		return append(refused, steps...), 0, &relay.Error{
			Code: relay.CodeStoreUnavailable, RetryAfter: spoolRetryAfter, Detail: errSpoolFull.Detail, Cause: err,
		}
	}
	if len(refused) == 0 {
		p.complained = time.Time{}
	}
	p.segments[len(p.segments)-1].indexParts(steps, records)
	p.begin(why)
	p.steps += int64(len(steps))
	return refused, int64(len(records)), err
}

// shut takes nothing new until a file has reached the database; with the lock held.
func (p *spool) shut() {
	if len(p.segments) > 0 { // or nothing would ever make room
		p.full = errSpoolFull
		p.closed.Store(true)
	}
	p.complain("the spool is full; callers get 503 until postgres is back: bring it back, or raise --spool-limit",
		"database", p.place, "limit", p.limit)
}

// reopen lets new events in again; with the lock held.
func (p *spool) reopen() {
	p.full = nil
	p.closed.Store(false)
}

// ofRefused gives the steps whose event was refused before.
func (p *spool) ofRefused(steps []*step) (known map[*step]bool) {
	if len(p.turned) == 0 {
		return nil
	}
	for _, st := range steps {
		if p.turned[st.id] {
			if known == nil {
				known = map[*step]bool{}
			}
			known[st] = true
		}
	}
	return known
}

// turnAway divides steps into the ends of what is known here, which go on, and what
// is new, which does not.
func (p *spool) turnAway(steps []*step, known map[*step]bool) (on, away []*step) {
	room := p.full == nil
	if room {
		var size int64
		for _, st := range steps {
			if !known[st] {
				size += int64(len(encode([]*step{st})))
			}
		}
		room = p.used()+size <= p.forNew()
	}
	var gone map[relay.ID]bool
	for _, st := range steps {
		if known[st] || gone[st.id] || !room && st.opens() {
			if gone == nil {
				gone = map[relay.ID]bool{}
			}
			gone[st.id] = true
			away = append(away, st)
			continue
		}
		on = append(on, st)
	}
	for id := range gone {
		if p.turned == nil {
			p.turned = map[relay.ID]bool{}
		}
		if len(p.turned) < spoolTurned {
			p.turned[id] = true
		}
	}
	if !room {
		p.shut()
	}
	return on, away
}

// opens tells whether a step brings something new: an event, or a part of the
// request of one that is still to come.
func (st *step) opens() bool {
	return st.kind == stepAccept || st.kind == stepChunk && st.n == 0
}
