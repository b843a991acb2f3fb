// Package turns bounds the tasks of one kind that run at the same time, in total and for an account, and
// starts the waiting ones in a fair order.
package turns

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// Turns limits the number of tasks of one kind that run at once, in total and for each account. Waiting tasks
// begin in the order of their turns. Each further task of an account gets a later turn, so that an account
// with many tasks does not delay the first task of another account. The methods are safe for concurrent use.
type Turns struct {
	most, perAccount int

	mu      sync.Mutex
	running int
	of      map[int64]*account
	turn    int // number of the turn of the task that was admitted last
	waiting []*task
}

// account is an account with running or waiting tasks.
type account struct {
	running, waiting int
	turn             int // number of the turn of its newest task
}

type task struct {
	account int64
	turn    int
	let     chan struct{} // closed when the task may begin
}

// New returns Turns. most is the largest number of tasks that run at a time, and perAccount the largest number
// of those of one account.
func New(most, perAccount int) *Turns {
	return &Turns{most: most, perAccount: perAccount, of: map[int64]*account{}}
}

// Wait waits for a turn of the account. The caller gives the turn back by calling done, once or several
// times. If ctx ends first, Wait returns the cause of its end; a turn that is free at once is given even if
// ctx has ended.
func (t *Turns) Wait(ctx context.Context, account int64) (done func(), err error) {
	k := t.enter(account)
	done = sync.OnceFunc(func() { t.leave(k) })
	select {
	case <-k.let:
		return done, nil
	default:
	}
	select {
	case <-k.let:
		return done, nil
	case <-ctx.Done():
		done()
		return nil, context.Cause(ctx)
	}
}

func (t *Turns) enter(of int64) *task {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.of[of]
	if a == nil {
		a = &account{}
		t.of[of] = a
	}
	a.turn = max(a.turn, t.turn) + 1
	k := &task{account: of, turn: a.turn, let: make(chan struct{})}
	a.waiting++
	at, _ := slices.BinarySearchFunc(t.waiting, k.turn, func(w *task, turn int) int { return cmp.Compare(w.turn, turn+1) })
	t.waiting = slices.Insert(t.waiting, at, k)
	t.admit()
	return k
}

// leave ends a task, or its wait.
func (t *Turns) leave(k *task) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.of[k.account]
	if i := slices.Index(t.waiting, k); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
		a.waiting--
	} else {
		t.running--
		a.running--
	}
	if a.running+a.waiting == 0 {
		delete(t.of, k.account)
	}
	t.admit()
}

// admit starts the waiting tasks that may begin. The caller holds mu.
func (t *Turns) admit() {
	for i := 0; i < len(t.waiting) && t.running < t.most; {
		k := t.waiting[i]
		a := t.of[k.account]
		if a.running >= t.perAccount {
			i++
			continue
		}
		t.waiting = slices.Delete(t.waiting, i, i+1)
		a.waiting--
		a.running++
		t.running++
		t.turn = max(t.turn, k.turn)
		close(k.let)
	}
}
