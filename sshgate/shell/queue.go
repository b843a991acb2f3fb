package shell

import (
	"sync"

	"relay"
)

// Notice is a message about a connection for its user. Its texts are safe to print.
type Notice struct {
	Kind    string // a kind of relay.Notice
	Alias   string
	Target  string       // for NoticeOnline: the local server that relay up announced
	Of      *relay.Alias // the alias, for NoticeOnline
	Code    string       // error code, for NoticeRefused
	Message string
}

// StoppingText tells users that the server is stopping.
const StoppingText = "the relay is stopping; connect again in a moment"

// KeyRemovedText tells users that their key was removed.
const KeyRemovedText = "this key was removed; register it again to come back"

// maxWaiting is the largest number of items in a queue, and maxBytes the largest total size of their lines. If
// the client does not read, writes to its channel may block for ever; the queue then drops further items and
// counts them.
const maxWaiting, maxBytes = 256, 1 << 20

// Queue is a bounded queue for one reader.
type Queue[T any] struct {
	Wake chan struct{} // gets a value after each change

	mu      sync.Mutex
	ended   bool
	waiting []T
	size    int // size of the waiting items in bytes
	dropped int
}

// NewQueue makes an empty queue.
func NewQueue[T any]() *Queue[T] { return &Queue[T]{Wake: make(chan struct{}, 1)} }

// Put adds the item x and never blocks. The parameter size is the number of bytes of the lines in x, for the
// limit maxBytes.
func (q *Queue[T]) Put(x T, size int) {
	q.mu.Lock()
	switch {
	case q.ended:
	case q.dropped > 0 || len(q.waiting) >= maxWaiting || len(q.waiting) > 0 && q.size+size > maxBytes:
		q.dropped++
	default:
		q.waiting = append(q.waiting, x)
		q.size += size
	}
	q.mu.Unlock()
	q.wake()
}

func (q *Queue[T]) wake() {
	select {
	case q.Wake <- struct{}{}:
	default:
	}
}

// Take returns all waiting items, the number of items dropped after them, and whether the queue has
// ended.
func (q *Queue[T]) Take() (all []T, dropped int, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all, dropped = q.waiting, q.dropped
	q.waiting, q.size, q.dropped = nil, 0, 0
	return all, dropped, q.ended
}

// End ends the queue: no items will follow.
func (q *Queue[T]) End() {
	q.mu.Lock()
	q.ended = true
	q.mu.Unlock()
	q.wake()
}
