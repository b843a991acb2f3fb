package delivery

import "sync"

// queueCount counts the queued attempts of one alias in memory, so that the limits are
// exact without a query: attempts that are queued in the store, and reserved room for
// attempts that are about to be.
type queueCount struct {
	mu       sync.Mutex
	n        int
	bytes    int64
	reserved struct {
		n     int
		bytes int64
	}
	moving  int // calls of move without their moved
	changes uint64
}

// get returns the queued attempts and their bytes, reserved ones included.
func (q *queueCount) get() (int, int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.n + q.reserved.n, q.bytes + q.reserved.bytes
}

// reserve reserves room for n attempts and their bytes. It returns false when there is
// none. A limit of 0 is off.
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

// giveBack ends a reservation.
func (q *queueCount) giveBack(n int, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reserved.n -= n
	q.reserved.bytes -= bytes
}

// move announces that the store has been asked for a change of the queue; moved follows
// with the result. correct does nothing in between.
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

// version returns a number that each change increases; see correct.
func (q *queueCount) version() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.changes
}

// correct replaces the counts by those of the store. It returns false, and changes
// nothing, if the queue has changed since version was read.
func (q *queueCount) correct(version uint64, n int, bytes int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.moving > 0 || q.changes != version {
		return false
	}
	q.n, q.bytes = n, bytes
	return true
}
