package registry

import (
	"testing"

	"relay"
)

// What is queued at all aliases of an account is counted through every change of a queue and of an owner.
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
	second.Queue.GiveBack(1, 10) // of a request that was under way
	counted("removed", 0, 1)
}
