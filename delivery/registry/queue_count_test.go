package registry

import (
	"testing"

	"relay"
)

// TestQueuesOfAnAccount: the count of an account, and the results of Reserve, are right after reservations,
// moves, corrections, new limits, a transfer and a removal.
func TestQueuesOfAnAccount(t *testing.T) {
	t.Parallel()
	r := New(Options{NewDispatcher: func(*Alias) Dispatcher { return nil }})
	put := func(id, owner int64, own *int64) *Alias {
		return r.put(&relay.Alias{ID: id, Name: string(rune('a' + id)), Owner: owner, OwnerMaxQueue: own})
	}
	first, second, foreign := put(1, 1, nil), put(2, 1, nil), put(3, 2, nil)
	limits := QueueLimits{Account: 3}
	counted := func(what string, want ...int64) {
		t.Helper()
		for i, n := range want {
			got := int64(0)
			if o := r.owners[int64(i+1)]; o != nil {
				got = o.queue.n.Load()
			}
			if got != n {
				t.Errorf("%s: account %d has %d attempts, want %d", what, i+1, got, n)
			}
		}
	}
	reserve := func(what string, st *Alias, want Reservation) {
		t.Helper()
		if got := st.Queue.Reserve(1, 10, limits); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	reserve("first", first, Reserved)
	reserve("second", second, Reserved)
	first.Queue.GiveBack(1, 10)
	first.Queue.Move()
	first.Queue.Moved(1, 10)
	counted("stored", 2, 0)
	second.Queue.GiveBack(1, 10)
	second.Queue.correct(second.Queue.version(), 2, 20)
	counted("read from the store", 3, 0)
	reserve("beyond the limit", first, AccountQueueFull)
	reserve("beyond the limit, at another alias", second, AccountQueueFull)
	reserve("of another account", foreign, Reserved)
	counted("refused", 3, 1)
	if most := r.FullestQueue(limits); most != 1 {
		t.Errorf("the fullest has %v of its limit", most)
	}
	own, none := int64(4), int64(0)
	put(2, 1, &own)
	reserve("its own limit", first, Reserved)
	reserve("beyond its own limit", first, AccountQueueFull)
	put(1, 1, &none)
	reserve("no limit", first, Reserved)
	counted("reserved", 5, 1)
	first.Queue.GiveBack(2, 20)
	put(2, 2, nil)
	counted("transferred", 1, 3)
	reserve("the new owner", foreign, AccountQueueFull)
	first.Queue.Move()
	first.Queue.Moved(-5, -50)
	counted("fewer than there are", 0, 3)
	r.remove(2)
	counted("removed", 0, 1)
	// A request to the second alias was being queued while the alias was transferred and removed.
	second.Queue.GiveBack(1, 10)
	counted("removed", 0, 1)
}

// TestCountsOfABusyQueue: if a queue changes during each reading, its count is too low for at most
// maxUnsettled readings in a row. Once the queue is at rest, the count is exact.
func TestCountsOfABusyQueue(t *testing.T) {
	t.Parallel()
	const own, others = 2, 3 // attempts that this node and other nodes add during each reading
	for _, c := range []struct {
		name string
		step func(q *QueueCount) // called during a reading
	}{
		{"attempts are queued", func(q *QueueCount) {
			for range own {
				q.Move()
				q.Moved(1, 10)
			}
		}},
		{"one is being queued", func(q *QueueCount) {
			// The first call of Moved ends the last Move of the previous step.
			q.Moved(1, 10)
			q.Move()
			q.Moved(1, 10)
			q.Move()
		}},
		{"as many are taken", func(q *QueueCount) {
			for range own {
				q.Move()
				q.Moved(1, 10)
				q.Move()
				q.Moved(-1, -10)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			q := &QueueCount{account: &accountQueue{}}
			q.Move()
			stored, late := 0, 0
			for range 20 * maxUnsettled {
				v := q.version()
				before := int(v.n)
				c.step(q)
				ofNode := int(q.version().n) - before
				stored += ofNode + others
				if q.correct(v, stored, int64(10*stored)) {
					t.Fatal("it said that the queue has not changed")
				}
				if late++; q.Len() >= stored {
					late = 0
				}
				if late > maxUnsettled || q.Len() > stored+ofNode {
					t.Fatalf("it has %d attempts, of %d", q.Len(), stored)
				}
				if got := int(q.account.n.Load()); got != q.Len() {
					t.Fatalf("its account has %d attempts, it has %d", got, q.Len())
				}
			}
			if c.name == "one is being queued" {
				q.Moved(1, 10)
				stored++
			}
			q.moving = 0
			if !q.correct(q.version(), stored, int64(10*stored)) || q.Len() != stored {
				t.Errorf("at rest it has %d attempts, want %d", q.Len(), stored)
			}
		})
	}
}
