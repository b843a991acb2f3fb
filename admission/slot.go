package admission

import (
	"container/list"
	"iter"
	"time"
)

// group lists connections of one front: all, or those of one source. The list has two parts, separated by
// mark: connections that are never evicted, and connections that new ones may evict. In each part, the
// connection that has been in its class the longest comes first. Moving a connection allocates nothing.
type group struct {
	list   list.List
	mark   *list.Element
	counts Counts
}

func newGroup() *group {
	g := &group{}
	g.mark = g.list.PushBack(nil)
	return g
}

// waiting lists the connections that new ones may evict.
func (g *group) waiting() iter.Seq[*Slot] {
	return func(yield func(*Slot) bool) {
		for e := g.mark.Next(); e != nil && yield(e.Value.(*Slot)); e = e.Next() {
		}
	}
}

// firstToGo returns the connection of the group that a new connection evicts, or nil. It never chooses a
// login that waits for an answer of relayd. Evicting such a login would waste work that is almost done, and
// the client would try again.
func (g *group) firstToGo() (first *Slot) {
	var longest time.Duration
	for s := range g.waiting() {
		if s.class == Idle {
			return s
		}
		if d := s.Silent(); d > longest {
			first, longest = s, d
		}
	}
	return first
}

// place is an element of a group.
type place struct {
	in *group
	at *list.Element
}

// gives reports whether new connections may evict connections of the class.
func (c Class) gives() bool { return c == Unknown || c == Idle }

// enter gives s a place in f. The caller holds the lock of the limiter, as for all unexported methods of Slot.
func (s *Slot) enter(f *Front, class Class) {
	if f.sources[s.Source] == nil {
		f.sources[s.Source] = newGroup()
	}
	s.front, s.account = f, 0
	for i, g := range [...]*group{f.all, f.sources[s.Source]} {
		s.places[i] = place{g, g.list.PushFront(s)}
	}
	s.set(class)
}

// set moves s to a class, and updates the counts and the order of its groups.
func (s *Slot) set(class Class) {
	l := s.front.limiter
	l.moves++
	s.class, s.since = class, l.moves
	s.count(1)
	for _, p := range s.places {
		if class.gives() {
			p.in.list.MoveToBack(p.at)
		} else {
			p.in.list.MoveBefore(p.at, p.in.mark)
		}
	}
}

// count adds the number by, which is 1 or -1, to the counts of the class of s.
func (s *Slot) count(by int) {
	for _, p := range s.places {
		p.in.counts[s.class] += by
	}
	var slots map[*Slot]struct{}
	switch s.class {
	case Prompting:
		slots = s.front.prompting
	case NodeLogin:
		slots = s.front.nodeLogins
	}
	if s.class != NodeLogin && s.class != Node {
		s.front.limiter.open += by
	}
	switch {
	case slots == nil:
	case by > 0:
		slots[s] = struct{}{}
	default:
		delete(slots, s)
	}
}

// move puts s into another class. It returns false if s no longer has a place.
func (s *Slot) move(class Class) bool {
	if !s.placed() {
		return false
	}
	if s.class != class {
		s.count(-1)
		s.set(class)
	}
	return true
}

// placed reports whether s has a place.
func (s *Slot) placed() bool { return s.places[0].at != nil }

// remove frees the place of s.
func (s *Slot) remove() {
	if !s.placed() {
		return
	}
	s.count(-1)
	for i, p := range s.places {
		p.in.list.Remove(p.at)
		s.places[i] = place{}
	}
	if s.front.sources[s.Source].list.Len() == 1 {
		delete(s.front.sources, s.Source)
	}
}

// SetClass changes the class of the connection. It returns false if another connection has already taken its
// place.
func (s *Slot) SetClass(class Class) bool {
	if s.front == nil {
		return true
	}
	s.front.limiter.mu.Lock()
	defer s.front.limiter.mu.Unlock()
	return s.move(class)
}

// Release frees the place of a connection that has ended. It may be called more than once.
func (s *Slot) Release() {
	if s.front == nil {
		return
	}
	s.front.limiter.mu.Lock()
	defer s.front.limiter.mu.Unlock()
	s.remove()
	s.leaveAccount()
}
