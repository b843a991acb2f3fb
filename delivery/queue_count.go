package delivery

import "sync"

// queueCount is what waits at one alias, kept in memory so that the limits are
// exact without a query: attempts that wait in the store, and those that are about
// to.
type queueCount struct {
	mu       sync.Mutex
	n        int
	bytes    int64
	reserved struct {
		n     int
		bytes int64
	}
	moving  int // steps handed to the store whose effect on n is not noted yet
	changes uint64
	found   func() // called when something waits after the store was asked; nil = not wanted
}

func (q *queueCount) set(n int, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.n, q.bytes = n, bytes
	q.changes++
}

// get returns what waits and what is reserved.
func (q *queueCount) get() (int, int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.n + q.reserved.n, q.bytes + q.reserved.bytes
}

// reserve takes room for n attempts and more bytes; false when there is none.
// Limits of 0 are off.
func (q *queueCount) reserve(n int, bytes int64, limit int, limitBytes int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n > 0 && limit > 0 && q.n+q.reserved.n+n > limit {
		return false
	}
	if limitBytes > 0 && q.bytes+q.reserved.bytes+bytes > limitBytes {
		return false
	}
	q.reserved.n += n
	q.reserved.bytes += bytes
	return true
}

// giveBack takes a reservation back.
func (q *queueCount) giveBack(n int, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reserved.n -= n
	q.reserved.bytes -= bytes
}

// move notes that a step was handed to the store which will change n; moved says
// by how much it did.
func (q *queueCount) move() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.moving++
	q.changes++
}

func (q *queueCount) moved(n int, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.moving--
	q.changes++
	q.n = max(0, q.n+n)
	q.bytes = max(0, q.bytes+bytes)
}

// version is a point to compare with; see correct.
func (q *queueCount) version() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.changes
}

// correct replaces the counts by what the store said, unless something moved since
// version was taken; then it says false.
func (q *queueCount) correct(version uint64, n int, bytes int64) bool {
	q.mu.Lock()
	if q.moving > 0 || q.changes != version {
		q.mu.Unlock()
		return false
	}
	q.n, q.bytes = n, bytes
	found := q.found
	q.mu.Unlock()
	if n > 0 && found != nil {
		found()
	}
	return true
}

// whenFound has f called when something waits after the store was asked.
func (q *queueCount) whenFound(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.found = f
}
