package delivery_test

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"relay"
)

// The numbers that the database uses for states.
const (
	rowQueued = iota
	rowDelivering
	rowDelivered
	rowFailed
	rowInterrupted
	rowCanceled
	rowRejected
)

// turn is the place of an attempt in the order in which the queue of its alias is delivered.
type turn struct {
	at int64
	id relay.ID
	n  int
}

func (t turn) before(o turn) bool {
	if t.at != o.at {
		return t.at < o.at
	}
	if c := bytes.Compare(t.id[:], o.id[:]); c != 0 {
		return c < 0
	}
	return t.n < o.n
}

// eventRow and attemptRow are rows of the tables events and attempts.
type eventRow struct {
	id       relay.ID
	number   int
	state    int
	attempts []attemptRow
	size     int
	counted  int
}

type attemptRow struct {
	n, kind, state, status      int
	code, actor, response       string
	released, fromQueue, hasEnd bool
}

func (w *model) name(id relay.ID, n int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("%d/%d", w.numbers[id], n)
}

// waiting returns the places of the queued attempts that may be delivered (waits), and those of the claimed
// attempts (under). If auto is true, all queued attempts may be delivered.
func (w *model) waiting(auto bool) (waits, under []turn) {
	rows, err := w.db.Query(`SELECT received_at, event_id, n, CASE WHEN claim_node = '' THEN 0 ELSE 1 END FROM queue
		WHERE kind = 1 OR released = 1 OR ? OR claim_node <> ''`, auto)
	if err != nil {
		w.fault("look at the queue: %v", err)
		return nil, nil
	}
	defer rows.Close()
	for rows.Next() {
		var t turn
		var state int
		if err := rows.Scan(&t.at, &t.id, &t.n, &state); err != nil {
			w.fault("look at the queue: %v", err)
		}
		if state == rowQueued {
			waits = append(waits, t)
		} else {
			under = append(under, t)
		}
	}
	return waits, under
}

// events reads all stored events with their attempts.
func (w *model) events() (list []*eventRow) {
	byID := map[relay.ID]*eventRow{}
	rows, err := w.db.Query(`SELECT e.id, e.state, e.attempts, COALESCE(p.size, -1) FROM events e
		LEFT JOIN payloads p ON p.event_id = e.id AND p.n = 0 ORDER BY e.id`)
	w.must(err)
	for rows.Next() {
		var e eventRow
		w.must(rows.Scan(&e.id, &e.state, &e.counted, &e.size))
		w.mu.Lock()
		e.number = w.numbers[e.id]
		w.mu.Unlock()
		byID[e.id] = &e
		list = append(list, &e)
	}
	w.must(rows.Err())
	rows, err = w.db.Query(`SELECT event_id, n, kind, state, status, error_code, actor, response_state, released, from_queue, has_response
		FROM attempts ORDER BY event_id, n`)
	w.must(err)
	for rows.Next() {
		var id relay.ID
		var a attemptRow
		w.must(rows.Scan(&id, &a.n, &a.kind, &a.state, &a.status, &a.code, &a.actor, &a.response, &a.released, &a.fromQueue, &a.hasEnd))
		if e := byID[id]; e != nil {
			e.attempts = append(e.attempts, a)
		} else {
			w.fault("attempt %d of %s has no event", a.n, id)
		}
	}
	w.must(rows.Err())
	return list
}

// promised records the promise that an answer to a caller makes, for a later check.
func (w *model) promised(number int, out relay.Outcome, c *memCaller) {
	p := promise{number: number, n: 1, what: "answered " + code(out)}
	switch {
	case c.answer() == ok:
		p.what = "answered by the local server"
		p.holds = func(_ *eventRow, a *attemptRow) bool {
			return a.state == rowDelivered && a.status == 200 && a.response == relay.ResponseComplete && a.code == ""
		}
	case c.answer() != "":
		// The answer broke off, or the connection was upgraded: this promises nothing about the state of the
		// attempt.
		p.holds = func(*eventRow, *attemptRow) bool { return true }
	case out.Answer == nil || out.Answer.Event.IsZero():
		return
	case out.Answer.Error == nil:
		p.holds = func(e *eventRow, a *attemptRow) bool { return e.size >= 0 }
	case out.Answer.Error.Code == relay.CodeTunnelLost:
		p.holds = func(_ *eventRow, a *attemptRow) bool {
			return a.state == rowInterrupted && a.code == relay.CodeTunnelLost
		}
	default:
		p.holds = func(_ *eventRow, a *attemptRow) bool { return a.state == rowFailed && a.code == out.Answer.Error.Code }
	}
	if _, _, dead := w.slowStore.times(); dead {
		// The relay was killed before it sent the answer.
		return
	}
	w.mu.Lock()
	w.promises = append(w.promises, p)
	w.mu.Unlock()
}

// check compares the stored events with the requests that the local server saw, with the counts of the relay and
// with all promises. Before the call, the relay must have a healthy tunnel and be idle.
func (w *model) check(auto bool) {
	list := w.events()
	byNumber := map[int]*eventRow{}
	waiting := 0
	for _, e := range list {
		byNumber[e.number] = e
		w.checkEvent(e, auto)
		w.checkVisits(e)
		for i := range e.attempts {
			if e.attempts[i].state == rowQueued {
				waiting++
			}
		}
	}
	if n := w.d.Stats().Queued; n != waiting {
		w.fault("%d wait, and the relay says %d", waiting, n)
	}
	st, err := w.d.Status(context.Background(), []relay.Alias{*w.alias})
	if err != nil || st[0].Queued != waiting || st[0].State != relay.TunnelOnline {
		w.fault("%d wait, and the status is %+v, %v", waiting, st, err)
	}
	for _, p := range w.promises {
		if w.deleted[p.number] {
			continue
		}
		e := byNumber[p.number]
		if e == nil || len(e.attempts) < p.n || !p.holds(e, &e.attempts[p.n-1]) {
			w.fault("event %d was %s, and there is %+v", p.number, p.what, e)
		}
	}
}

func (w *model) checkEvent(e *eventRow, auto bool) {
	if e.counted != len(e.attempts) {
		w.fault("event %d counts %d attempts: %+v", e.number, e.counted, e.attempts)
	}
	if len(e.attempts) == 0 {
		if e.state < rowRejected {
			w.fault("event %d has no attempt and state %d", e.number, e.state)
		}
		return
	}
	again, broken, replayed := 0, 0, false
	for i, a := range e.attempts {
		if a.n != i+1 {
			w.fault("event %d has attempts %+v", e.number, e.attempts)
		}
		switch {
		case a.state == rowDelivering:
			w.fault("event %d: attempt %d is delivering for ever: %+v", e.number, a.n, e.attempts)
		case a.state == rowQueued && (a.kind == 1 || a.released || auto):
			w.fault("event %d: attempt %d waits for ever: %+v", e.number, a.n, e.attempts)
		case a.state == rowInterrupted && a.fromQueue:
			broken++
		case a.state == rowFailed && a.fromQueue && (a.code == relay.CodeStoreUnavailable || a.code == relay.CodeTunnelLost):
			w.fault("event %d: attempt %d went out of the queue and is lost: %+v", e.number, a.n, e.attempts)
		}
		if a.actor == string(relay.ActorQueue) {
			again++
		}
		replayed = replayed || a.kind == 1 && a.state == rowDelivered
	}
	last := e.attempts[len(e.attempts)-1]
	switch {
	case again != min(3, broken):
		w.fault("event %d was interrupted %d times and queued again %d times: %+v", e.number, broken, again, e.attempts)
	case e.state < rowRejected && e.state != last.state:
		w.fault("event %d is %d: %+v", e.number, e.state, e.attempts)
	case replayed && e.attempts[0].state == rowQueued:
		w.fault("event %d waits although a replay was delivered: %+v", e.number, e.attempts)
	}
}

// checkVisits compares stored events with the requests that the local server saw.
func (w *model) checkVisits(e *eventRow) {
	v := w.site.of(e.number)
	var atLeast, atMost int
	why := map[string]int{}
	for _, a := range e.attempts {
		switch {
		case a.state == rowDelivered:
			atLeast++
			atMost++
		case a.state == rowInterrupted, a.state == rowFailed && a.code != relay.CodeLocalRefused:
			atMost++
		}
		if a.state == rowFailed {
			why[a.code]++
		}
	}
	if v.times < atLeast || v.times > atMost {
		w.fault("event %d came %d times to the local server: %+v", e.number, v.times, e.attempts)
	}
	for code, mode := range map[string]string{
		relay.CodeLocalClosed: siteBreaks, relay.CodeLocalTimeout: siteHangs, relay.CodeLocalMalformed: siteGarbage,
	} {
		if why[code] > v.did[mode] {
			w.fault("event %d is said to be %s %d times, was %d times: %+v", e.number, code, why[code], v.did[mode], e.attempts)
		}
	}
}

// settled waits long enough for everything in progress to end.
func (w *model) settled() { time.Sleep(90 * time.Second) }
