package registry

import (
	"sync"
	"sync/atomic"
)

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
	moving  int // calls of Move without their call of Moved
	changes uint64
	added   struct { // what all calls of Moved have added
		n     int
		bytes int64
	}
	unsettled int           // number of calls of correct since it last replaced the counts
	account   *accountQueue // the count of the owner; nil = the alias was removed
}

// accountQueue counts the queued attempts of all aliases of an account, reserved ones included.
type accountQueue struct {
	n   atomic.Int64
	own atomic.Pointer[int64] // limit of this account; nil = the server's limit
}

// QueueLimits are the largest number of queued attempts of an alias, of their bytes, and of attempts of an account
// without a limit of its own; 0 = no limit.
type QueueLimits struct {
	Attempts int
	Bytes    int64
	Account  int
}

// Reservation is the result of Reserve.
type Reservation int

// Results of Reserve.
const (
	Reserved Reservation = iota
	QueueFull
	AccountQueueFull // the limit of all aliases of the owner is reached
)

// limit returns the largest number of attempts of the account; 0 = no limit.
func (a *accountQueue) limit(server int) int64 {
	if own := a.own.Load(); own != nil {
		return *own
	}
	return int64(server)
}

// setAccount moves the attempts to the count of another owner; nil = to no owner.
func (q *QueueCount) setAccount(a *accountQueue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.account == a {
		return
	}
	total := q.n + q.reserved.n
	q.count(-total)
	q.account = a
	q.count(total)
}

// count adds n to the number of attempts of the account. The caller holds mu.
func (q *QueueCount) count(n int) {
	if q.account != nil {
		q.account.n.Add(int64(n))
	}
}

// Len returns the number of queued attempts, reserved ones included.
func (q *QueueCount) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.n + q.reserved.n
}

// Reserve reserves space for n attempts and their bytes. Its result says whether there was space, or
// which limit was reached.
func (q *QueueCount) Reserve(n int, bytes int64, limits QueueLimits) Reservation {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n > 0 && limits.Attempts > 0 && q.n+q.reserved.n+n > limits.Attempts {
		return QueueFull
	}
	if limits.Bytes > 0 && q.bytes+q.reserved.bytes+bytes > limits.Bytes {
		return QueueFull
	}
	if a := q.account; n > 0 && a != nil {
		// Other aliases of the account may reserve at the same time.
		for limit, taken := a.limit(limits.Account), false; !taken; {
			now := a.n.Load()
			if limit > 0 && now+int64(n) > limit {
				return AccountQueueFull
			}
			taken = a.n.CompareAndSwap(now, now+int64(n))
		}
	}
	q.reserved.n += n
	q.reserved.bytes += bytes
	return Reserved
}

// GiveBack gives back the space of a reservation.
func (q *QueueCount) GiveBack(n int, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reserved.n -= n
	q.reserved.bytes -= bytes
	q.count(-n)
}

// Move is called before the store is asked for a change of the queue; Moved follows with the result.
func (q *QueueCount) Move() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.moving++
	q.changes++
}

// Moved ends the change that Move has announced: the queue has n more attempts and the given number of
// bytes more (fewer, if negative).
func (q *QueueCount) Moved(n int, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.moving--
	q.changes++
	q.added.n += max(0, n)
	q.added.bytes += max(0, bytes)
	n = max(-q.n, n)
	q.n += n
	q.count(n)
	q.bytes = max(0, q.bytes+bytes)
}

// queueVersion identifies the state of a QueueCount at the moment when the store is asked for a new count,
// for the method correct.
type queueVersion struct {
	changes uint64
	n       int
	bytes   int64
}

// version returns the current state of the count.
func (q *QueueCount) version() queueVersion {
	q.mu.Lock()
	defer q.mu.Unlock()
	return queueVersion{q.changes, q.added.n, q.added.bytes}
}

// maxUnsettled is the number of consecutive results of the store that correct discards because the
// queue changed in the meantime.
const maxUnsettled = 3

// correct replaces the counts by n and bytes, which the store has counted since version was read. If the
// queue has changed since then, it returns false, and the store has to be asked again. After maxUnsettled
// such results it replaces the counts all the same, and adds the attempts that were added in the meantime,
// which the store may have counted already. Otherwise several nodes that fill one queue would each allow the
// whole limit.
func (q *QueueCount) correct(version queueVersion, n int, bytes int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	settled := q.moving == 0 && q.changes == version.changes
	if !settled {
		if q.unsettled++; q.unsettled <= maxUnsettled {
			return false
		}
		n += q.added.n - version.n
		bytes += q.added.bytes - version.bytes
	}
	q.unsettled = 0
	q.count(n - q.n)
	q.n, q.bytes = n, bytes
	return settled
}
