package shell

import (
	"encoding/json"
	"time"

	"relay"
	"relay/record"
)

// memory is how many events and printed attempts a follower remembers, memoryBytes
// how large their encoded form may be together.
const memory, memoryBytes = 512, 1 << 20

// endedAttempt is an attempt that has come to its end, with its event.
type endedAttempt struct {
	event   record.Summary
	attempt record.Attempt
}

// follower makes ended attempts out of feed items. It is used by one goroutine.
type follower struct {
	s       *Shell
	only    int64 // alias; 0 = those of the connection
	events  map[string]record.Summary
	size    int // of what events was made of, in bytes
	printed map[printedKey]bool
}

type printedKey struct {
	event   string
	attempt int
}

func newFollower(s *Shell) *follower {
	return &follower{s: s, events: map[string]record.Summary{}, printed: map[printedKey]bool{}}
}

// take reads a batch. missed tells that something is missing before it.
func (f *follower) take(items []relay.FeedItem) (requests []endedAttempt, missed bool) {
	for _, item := range items {
		if item.Name == "event" && f.wants(item.Alias) {
			var e record.Summary
			if json.Unmarshal(item.Data, &e) == nil {
				f.remember(e, len(item.Data))
			}
		}
	}
	for _, item := range items {
		switch item.Name {
		case "resync":
			missed = true
		case "attempt":
			if f.wants(item.Alias) {
				if r, ok := f.attempt(item.Data); ok {
					requests = append(requests, r)
				}
			}
		}
	}
	return requests, missed
}

// remember keeps an event; when there are too many, all others go: what is not known
// any more can be looked up.
func (f *follower) remember(e record.Summary, size int) {
	if len(f.events) >= memory || f.size+size > memoryBytes {
		clear(f.events)
		f.size = 0
	}
	f.events[e.ID] = e
	f.size += size
}

func (f *follower) wants(alias int64) bool {
	if f.only != 0 {
		return alias == f.only
	}
	return f.s.Session.Holds(alias)
}

// listed is told that an event was printed by other means: its last attempt is not to be
// printed again.
func (f *follower) listed(e *record.Summary) {
	f.printed[printedKey{e.ID, e.AttemptCount}] = hasEnded(e.State)
}

// hasEnded tells whether an attempt in this state is shown.
func hasEnded(state string) bool {
	return state == relay.StateDelivered || state == relay.StateFailed || state == relay.StateInterrupted
}

// attempt reads one attempt; false unless it has ended and is new.
func (f *follower) attempt(data []byte) (r endedAttempt, ok bool) {
	var m record.AttemptMessage
	if json.Unmarshal(data, &m) != nil || m.Attempt == nil || !hasEnded(m.Attempt.State) {
		return r, false
	}
	key := printedKey{m.EventID, m.Attempt.Number}
	if f.printed[key] {
		return r, false
	}
	r.attempt = *m.Attempt
	if r.event, ok = f.events[m.EventID]; !ok { // its summary did not pass by
		e := f.s.event(m.EventID, 0)
		if e == nil {
			return r, false
		}
		r.event = *record.Summarise(e, f.s.Site, time.Now())
	}
	if len(f.printed) >= memory {
		clear(f.printed)
	}
	f.printed[key] = true
	return r, true
}
