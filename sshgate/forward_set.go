package sshgate

import (
	"slices"
	"sync"

	"relay"
)

// maxForwards is the largest number of aliases on one connection.
const maxForwards = 16

// forwardSet holds the forwards of a connection.
type forwardSet struct {
	mu      sync.Mutex
	list    []*forward // a change replaces the slice and never modifies it
	closed  bool       // the connection is ending: forwards are refused
	ended   []*forward // what the set held when it was closed
	waiting int        // number of requested forwards with a name that are not handled yet
}

// ask adds n to the number of named forwards that were requested and not handled yet: 1 for a new
// request, -1 when one is being handled.
func (l *forwardSet) ask(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting += n
}

// refuseUnnamed returns the reason why a forward without a name must be refused, or nil.
func (l *forwardSet) refuseUnnamed() *relay.Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting > 0 {
		return relay.Errorf(relay.CodeConflict, "a forward without a name serves nothing beside one with a name")
	}
	for _, other := range l.list {
		if other.named {
			return relay.Errorf(relay.CodeConflict, "a forward without a name serves nothing beside the one of %s", other.alias.Name)
		}
	}
	return nil
}

// room reports whether the connection is ending, and whether it has reached maxForwards.
func (l *forwardSet) room() (closed, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed, len(l.list) >= maxForwards
}

// refuseTwice returns an error if the connection already forwards the alias of f and f does not replace that
// forward, else nil.
func (l *forwardSet) refuseTwice(f *forward) *relay.Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, other := range l.list {
		if other.alias.ID == f.alias.ID && !f.replaces(other) {
			return relay.Errorf(relay.CodeConflict, "%s is forwarded on this connection already, by port %d, which keeps it; cancel that forward first",
				f.alias.Name, other.port)
		}
	}
	return nil
}

// add adds a forward and removes the forwards that it replaces. ok is false if the connection is ending.
func (l *forwardSet) add(f *forward) (replaced []*forward, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, false
	}
	var list []*forward
	for _, other := range l.list {
		if f.replaces(other) {
			other.closed.Store(true) // the Close method of the replaced forward must not end this connection
			replaced = append(replaced, other)
		} else {
			list = append(list, other)
		}
	}
	l.list = append(list, f)
	return replaced, true
}

// attach gives a forward its attachment, and calls the function online while the set is locked. It returns false if the
// forward was removed in the meantime.
func (l *forwardSet) attach(f *forward, att relay.Attachment, online func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.att = att
	if !slices.Contains(l.list, f) {
		return false
	}
	online()
	return true
}

// take removes and returns the first forward for which the function meant returns true; nil = none. The result last
// means that the set is empty now.
func (l *forwardSet) take(meant func(*forward) bool) (f *forward, last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.list, meant)
	if i < 0 {
		return nil, false
	}
	f = l.list[i]
	l.list = slices.Delete(slices.Clone(l.list), i, i+1)
	return f, len(l.list) == 0
}

// close empties the set, returns its forwards and refuses new ones.
func (l *forwardSet) close() []*forward {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.list
	l.list, l.closed = nil, true
	l.ended = append(l.ended, taken...)
	return taken
}

// aliases returns the names of the aliases that the connection serves, or served until the set was closed.
func (l *forwardSet) aliases() (names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range slices.Concat(l.list, l.ended) {
		names = append(names, f.alias.Name)
	}
	return names
}

// holds reports whether the function fits returns true for the alias of any forward in the set, even if the alias is
// still being attached.
func (l *forwardSet) holds(fits func(*relay.Alias) bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.list, func(f *forward) bool { return fits(f.alias) })
}

// attached calls the function do, with the forwards that have an attachment, while the set is locked. Forwards that get
// their attachment later send their online notice only after do has returned.
func (l *forwardSet) attached(do func([]*forward)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do(slices.DeleteFunc(slices.Clone(l.list), func(f *forward) bool { return f.att == nil }))
}
