package shell

import (
	"sync"

	"relay"
)

// Notice is one thing that happened to a connection. Texts are safe to print.
type Notice struct {
	Kind    string // a kind of relay.Notice
	Alias   string
	Target  string       // online: what relay up announced
	Of      *relay.Alias // online
	Code    string       // refused
	Message string
}

// StoppingText tells people that the relay stops.
const StoppingText = "the relay is stopping; connect again in a moment"

// maxNotices is how many notices wait for a session at most.
const maxNotices = 256

// Notices is a bounded queue of notices for one reader.
type Notices struct {
	Wake chan struct{} // gets a value after each change

	mu      sync.Mutex
	opened  bool
	ended   bool
	waiting []Notice
}

// NewNotices makes a queue, which takes notices only once it is open.
func NewNotices(open bool) *Notices {
	return &Notices{Wake: make(chan struct{}, 1), opened: open}
}

// Open lets notices in.
func (q *Notices) Open() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.opened = true
}

// Put adds a notice and never blocks.
func (q *Notices) Put(n Notice) {
	q.mu.Lock()
	if q.opened && len(q.waiting) < maxNotices {
		q.waiting = append(q.waiting, n)
	}
	q.mu.Unlock()
	q.notify()
}

func (q *Notices) notify() {
	select {
	case q.Wake <- struct{}{}:
	default:
	}
}

// Take returns all that wait, and whether they are the last ones.
func (q *Notices) Take() (all []Notice, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all, q.waiting = q.waiting, nil
	return all, q.ended
}

func (q *Notices) all() []Notice {
	all, _ := q.Take()
	return all
}

// End says that no more notices follow.
func (q *Notices) End() {
	q.mu.Lock()
	q.ended, q.opened = true, false
	q.mu.Unlock()
	q.notify()
}
