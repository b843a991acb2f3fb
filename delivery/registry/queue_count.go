package registry

import "sync"

// QueueCount counts the queued attempts of one alias in memory, so that the limits are exact without a
// query: attempts that are queued in the store, and reservations for attempts that will be queued.
type QueueCount struct {
	mu       sync.Mutex
	n        int
	bytes    int64
	reserved struct {
		n     int
		bytes int64
	}
	moving  int // calls of Move without their Moved
	changes uint64
}

// Len returns the number of queued attempts, reserved ones included.
func (q *QueueCount) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.n + q.reserved.n
}

// Reserve reserves room for n attempts and their bytes. It returns false when there is
// none. A limit of 0 is off.
func (q *QueueCount) Reserve(n int, bytes int64, limit int, limitBytes int64) bool {
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

// GiveBack ends a reservation.
func (q *QueueCount) GiveBack(n int, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reserved.n -= n
	q.reserved.bytes -= bytes
}

// Move announces that the store has been asked for a change of the queue; Moved follows
// with the result. correct does nothing in between.
func (q *QueueCount) Move() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.moving++
	q.changes++
}

// Moved ends what Move has announced: the queue has n attempts more, or fewer, and as many
// bytes.
func (q *QueueCount) Moved(n int, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.moving--
	q.changes++
	q.n = max(0, q.n+n)
	q.bytes = max(0, q.bytes+bytes)
}

// version returns a number that each change increases; see correct.
func (q *QueueCount) version() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.changes
}

// correct replaces the counts by those of the store. It returns false, and changes
// nothing, if the queue has changed since version was read.
func (q *QueueCount) correct(version uint64, n int, bytes int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.moving > 0 || q.changes != version {
		return false
	}
	q.n, q.bytes = n, bytes
	return true
}
