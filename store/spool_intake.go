package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"relay"
)

// A quarter of the spool is reserved for the ends of events that were taken: the answer of a
// forwarded request must not be refused because of later requests.
const (
	reservedForEnds = 4        // 1/4
	smallSpool      = 64 << 20 // a smaller spool counts as nearly full from the start
	maxRejected     = 10_000   // ids of refused events that are remembered at most
	typicalRequest  = 4 << 10  // bytes of a request of usual size
)

// intakeLimit is how many bytes new events may fill.
func (p *spool) intakeLimit() int64 { return p.limit - p.limit/reservedForEnds }

// admits returns nil when a new event of about need bytes fits into the spool, or does not
// go there. It answers from memory and never waits for the disk.
func (p *spool) admits(need int64) *relay.Error {
	if !p.active() {
		return nil
	}
	if p.intakeClosed.Load() || p.bytesOnDisk.Load()+need+stepOverhead > p.intakeLimit() {
		return errSpoolFull
	}
	return nil
}

// admitsTypical returns nil while an event of usual size would be taken. Callers are refused
// before the spool itself refuses anything, and readiness has to report that.
func (p *spool) admitsTypical() *relay.Error { return p.admits(min(typicalRequest, p.intakeLimit()/8)) }

// nearlyFull reports whether the space for new events is so little that concurrent requests
// could fill it.
func (p *spool) nearlyFull() bool {
	return p.active() && (p.limit < smallSpool || p.bytesOnDisk.Load() > p.intakeLimit()/2)
}

// checkWritable returns nil when the disk of the spool takes data. It writes a small test
// file, at most once in probeEvery, because there may be no event that would show it.
func (p *spool) checkWritable() error {
	p.probeMu.Lock()
	defer p.probeMu.Unlock()
	if time.Since(p.probed) < probeEvery {
		return p.writeError
	}
	path := filepath.Join(p.dir, ".spool-test")
	f, err := p.disk.open(path, os.O_CREATE|os.O_RDWR)
	if err == nil {
		if _, err = f.WriteAt(make([]byte, typicalRequest), 0); err == nil {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close(), p.disk.remove(path))
	}
	if p.writeError, p.probed = nil, time.Now(); err != nil {
		p.writeError = fmt.Errorf("store: postgres is away and the spool cannot be written: %w; make room in the data dir, or bring postgres back", err)
	}
	return p.writeError
}

// StoreFirst reports whether a request has to be stored before anything of it is forwarded:
// the spool is filling up, and a request that cannot be stored must not reach a local server.
// It answers from memory.
func (s *Store) StoreFirst() bool { return s.spool.nearlyFull() }

// put makes steps durable in the spool because the database did not take them; why is the
// reason, nil when the spool is active already. It returns the steps that did not fit, and
// err says why. New events and further steps of refused events are refused before the ends of
// other events. After a refusal no new event is taken until a whole file of the spool is in
// the database.
func (p *spool) put(steps []*step, why error) (refused []*step, bytes int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.ofRejected(steps)
	if len(known) == len(steps) {
		p.refused.Add(int64(len(steps)))
		return steps, 0, errSpoolFull
	}
	records := encode(steps)
	if len(known) > 0 || p.blocked() || p.used()+int64(len(records)) > p.intakeLimit() {
		if steps, refused = p.reject(steps, known); len(refused) > 0 {
			records, err = encode(steps), errSpoolFull
		}
	}
	p.refused.Add(int64(len(refused)))
	if len(steps) == 0 {
		return refused, 0, err
	}
	if p.used()+int64(len(records)) > p.limit {
		p.refused.Add(int64(len(steps)))
		p.closeIntake()
		return append(refused, steps...), 0, errSpoolFull
	}
	if err := p.append(records); err != nil {
		p.refused.Add(int64(len(steps)))
		p.logThrottled("the spool cannot be written; callers get 503: make room in the data dir, or bring postgres back", "dir", p.dir, "err", err)
		return append(refused, steps...), 0, &relay.Error{
			Code: relay.CodeStoreUnavailable, RetryAfter: spoolRetryAfter, Detail: errSpoolFull.Detail, Cause: err,
		}
	}
	if len(refused) == 0 {
		p.loggedAt = time.Time{}
	}
	p.parts.add(p.segments[len(p.segments)-1], steps, records)
	p.markActive(why)
	p.steps += int64(len(steps))
	return refused, int64(len(records)), err
}

// closeIntake refuses new events until a file is in the database. Call it with the lock
// held.
func (p *spool) closeIntake() {
	if len(p.segments) > 0 { // otherwise nothing would ever free space
		p.intakeClosed.Store(true)
	}
	p.logThrottled("the spool is full; callers get 503 until postgres is back: bring it back, or raise --spool-limit",
		"database", p.database, "limit", p.limit)
}

// openIntake takes new events again. Call it with the lock held.
func (p *spool) openIntake() { p.intakeClosed.Store(false) }

// ofRejected returns the steps whose event was refused before.
func (p *spool) ofRejected(steps []*step) (known map[*step]bool) {
	if len(p.rejected) == 0 {
		return nil
	}
	for _, st := range steps {
		if p.rejected[st.id] {
			if known == nil {
				known = map[*step]bool{}
			}
			known[st] = true
		}
	}
	return known
}

// reject divides steps into those that are stored and those that are refused: new events, if
// there is no space, and steps of refused events.
func (p *spool) reject(steps []*step, known map[*step]bool) (on, away []*step) {
	room := !p.blocked()
	if room {
		var size int64
		for _, st := range steps {
			if !known[st] {
				size += int64(len(encode([]*step{st})))
			}
		}
		room = p.used()+size <= p.intakeLimit()
	}
	var gone map[relay.ID]bool
	for _, st := range steps {
		if known[st] || gone[st.id] || !room && st.startsEvent() {
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
		if p.rejected == nil {
			p.rejected = map[relay.ID]bool{}
		}
		if len(p.rejected) < maxRejected {
			p.rejected[id] = true
		}
	}
	if !room {
		p.closeIntake()
	}
	return on, away
}

// startsEvent reports whether a step belongs to a new event: an Accept, or a part of its
// request body.
func (st *step) startsEvent() bool {
	return st.kind == stepAccept || st.kind == stepChunk && st.n == 0
}
