package events

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"relay"
)

// heavyWait is the time for which a heavy read waits for its turn.
const heavyWait = 4 * time.Second

// heavyReads bounds the reads of events, lists and figures that run at a time, in total and for an
// account. There are few connections for reads, four on SQLite: a login needs one of them, and an
// account that reads much must not keep others from reading. All holders of shares count as one
// account. Waiting reads begin in the order of their turns. Each further read of an account has a
// later turn, so that an account with many reads does not delay the first read of another.
type heavyReads struct {
	most, perAccount int

	mu      sync.Mutex
	running int
	of      map[int64]*heavyAccount
	turn    int // of the read that was accepted last
	waiting []*heavyRead
}

// heavyAccount is an account with running or waiting reads.
type heavyAccount struct {
	running, waiting int
	turn             int // of its newest read
}

type heavyRead struct {
	account int64
	turn    int
	let     chan struct{} // closed when it may begin
}

func newHeavyReads(connections int) *heavyReads {
	most := max(1, connections*3/4)
	return &heavyReads{most: most, perAccount: max(1, most-1), of: map[int64]*heavyAccount{}}
}

// acquire waits for a turn of the actor's account. The error is overloaded if there was none in time.
func (h *heavyReads) acquire(ctx context.Context, who relay.Actor) (release func(), err error) {
	r := h.enter(readerOf(who))
	release = sync.OnceFunc(func() { h.leave(r) })
	select {
	case <-r.let:
		return release, nil
	default:
	}
	late := time.NewTimer(heavyWait)
	defer late.Stop()
	select {
	case <-r.let:
		return release, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-late.C:
	}
	release()
	if cmp.Or(err, context.DeadlineExceeded) == context.DeadlineExceeded {
		err = relay.Overloaded("too many reads run or wait; try again in a moment")
	}
	return nil, err
}

// readerOf returns the account that an actor's reads count against.
func readerOf(who relay.Actor) int64 {
	if who.Kind == relay.ActorSystem {
		return -1
	}
	return who.BufferAccount()
}

func (h *heavyReads) enter(account int64) *heavyRead {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.of[account]
	if a == nil {
		a = &heavyAccount{}
		h.of[account] = a
	}
	a.turn = max(a.turn, h.turn) + 1
	r := &heavyRead{account: account, turn: a.turn, let: make(chan struct{})}
	a.waiting++
	at, _ := slices.BinarySearchFunc(h.waiting, r.turn, func(w *heavyRead, turn int) int { return cmp.Compare(w.turn, turn+1) })
	h.waiting = slices.Insert(h.waiting, at, r)
	h.admit()
	return r
}

// leave ends a read, or its wait.
func (h *heavyReads) leave(r *heavyRead) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.of[r.account]
	if i := slices.Index(h.waiting, r); i >= 0 {
		h.waiting = slices.Delete(h.waiting, i, i+1)
		a.waiting--
	} else {
		h.running--
		a.running--
	}
	if a.running+a.waiting == 0 {
		delete(h.of, r.account)
	}
	h.admit()
}

// admit starts the waiting reads that may begin. The caller holds mu.
func (h *heavyReads) admit() {
	for i := 0; i < len(h.waiting) && h.running < h.most; {
		r := h.waiting[i]
		a := h.of[r.account]
		if a.running >= h.perAccount {
			i++
			continue
		}
		h.waiting = slices.Delete(h.waiting, i, i+1)
		a.waiting--
		a.running++
		h.running++
		h.turn = max(h.turn, r.turn)
		close(r.let)
	}
}
