package delivery_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"relay"
	"relay/store"
)

// slowStore is the store of a model's Delivery. It delays each step, both before the real store gets it
// and before its result is returned. It does nothing once the relay was killed, and checks the order in
// which queued attempts are taken.
type slowStore struct {
	*store.Store
	w *model

	mu     sync.Mutex
	dead   bool
	unread bool // reads of bodies fail
	before time.Duration
	after  time.Duration
	newest chan struct{} // closed when the last step was passed to the store
	taken  string        // the attempt from the queue that is being delivered
}

var errKilled = &relay.Error{Code: relay.CodeStoreUnavailable, Detail: "killed"}

func (g *slowStore) kill() { g.mu.Lock(); g.dead = true; g.mu.Unlock() }

func (g *slowStore) slow(before, after time.Duration) {
	g.mu.Lock()
	g.before, g.after = before, after
	g.mu.Unlock()
}

func (g *slowStore) read(can bool) { g.mu.Lock(); g.unread = !can; g.mu.Unlock() }

// BodyPart reads from the real store, but fails after a call of g.read(false).
func (g *slowStore) BodyPart(ctx context.Context, id relay.ID, n, i int) ([]byte, error) {
	g.mu.Lock()
	unread := g.unread
	g.mu.Unlock()
	if unread {
		return nil, errKilled
	}
	return g.Store.BodyPart(ctx, id, n, i)
}

func (g *slowStore) times() (before, after time.Duration, dead bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.before, g.after, g.dead
}

// step passes a step to the store, after all earlier steps.
func (g *slowStore) step(hand func() *relay.Ticket) *relay.Ticket {
	g.mu.Lock()
	before, after, behind := g.before, g.after, g.newest
	handed := make(chan struct{})
	g.newest = handed
	g.mu.Unlock()
	t := relay.NewTicket()
	go func() {
		if behind != nil {
			<-behind
		}
		time.Sleep(before)
		var real *relay.Ticket
		if _, _, dead := g.times(); !dead {
			real = hand()
		}
		close(handed)
		if real != nil {
			<-real.Done()
			time.Sleep(after)
		}
		if _, _, dead := g.times(); dead || real == nil {
			t.Resolve(errKilled)
			return
		}
		t.Resolve(real.Err())
	}()
	return t
}

// flush waits until every step was passed on.
func (g *slowStore) flush() {
	for {
		g.mu.Lock()
		newest := g.newest
		g.mu.Unlock()
		if newest == nil || closedNow(newest) {
			return
		}
		<-newest
	}
}

func closedNow(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (g *slowStore) Accept(e *relay.Event) *relay.Ticket {
	c := *e
	c.Attempts = slices.Clone(e.Attempts)
	number, _ := numbers(string(e.Request.Head))
	g.w.mu.Lock()
	g.w.numbers[e.ID] = number
	g.w.mu.Unlock()
	return g.step(func() *relay.Ticket { return g.Store.Accept(&c) })
}

func (g *slowStore) Chunk(id relay.ID, n, i int, data []byte) *relay.Ticket {
	return g.step(func() *relay.Ticket { return g.Store.Chunk(id, n, i, data) })
}

func (g *slowStore) CallerGone(id relay.ID, n int) *relay.Ticket {
	return g.step(func() *relay.Ticket { return g.Store.CallerGone(id, n) })
}

func (g *slowStore) Amend(e *relay.Event) *relay.Ticket {
	return g.step(func() *relay.Ticket { return g.Store.Amend(e) })
}

func (g *slowStore) Finish(id relay.ID, a *relay.Attempt, event string) *relay.Ticket {
	g.over(id, a.N, a.State)
	return g.step(func() *relay.Ticket { return g.Store.Finish(id, a, event) })
}

func (g *slowStore) Requeue(id relay.ID, n int) *relay.Ticket {
	g.over(id, n, "back")
	return g.step(func() *relay.Ticket { return g.Store.Requeue(id, n) })
}

func (g *slowStore) over(id relay.ID, n int, state string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	name := fmt.Sprint(id, "/", n)
	g.w.say("%s is %s", g.w.name(id, n), state)
	if g.taken == name {
		g.taken = ""
	}
}

// Next claims an attempt, and calls take to check the order.
func (g *slowStore) Next(next relay.NextClaim) (*relay.Claim, error) {
	before, after, dead := g.times()
	if dead {
		return nil, errKilled
	}
	time.Sleep(before)
	if _, _, dead := g.times(); dead {
		return nil, errKilled
	}
	waited, under := g.w.waiting(next.Auto)
	c, err := g.Store.Next(next)
	if c == nil || err != nil {
		if err != nil {
			g.w.say("queue: %v", err)
		}
		return c, err
	}
	g.take(relay.AttemptRef{Event: c.Event.ID, N: c.N}, next.Auto, waited, under)
	time.Sleep(after)
	if _, _, dead := g.times(); dead {
		return nil, errKilled
	}
	return c, nil
}

func (g *slowStore) FinishAndClaim(id relay.ID, a *relay.Attempt, event string, next relay.NextClaim) (*relay.Ticket, func() *relay.Claim) {
	g.over(id, a.N, a.State)
	var waited, under []turn
	var claimed func() *relay.Claim
	t := g.step(func() (real *relay.Ticket) {
		waited, under = g.w.waiting(next.Auto)
		real, claimed = g.Store.FinishAndClaim(id, a, event, next)
		return real
	})
	return t, func() (c *relay.Claim) {
		if _, _, dead := g.times(); !dead && claimed != nil {
			c = claimed()
		}
		if c != nil {
			under = slices.DeleteFunc(under, func(t turn) bool { return t.id == id && t.n == a.N })
			g.take(relay.AttemptRef{Event: c.Event.ID, N: c.N}, next.Auto, waited, under)
		}
		return c
	}
}

// take records a claim. It reports a fault if another claim is in progress, or if an earlier attempt still
// waits or is in progress. waited and under are what the method waiting returned before the claim.
func (g *slowStore) take(ref relay.AttemptRef, auto bool, waited, under []turn) {
	g.w.say("%s is taken from the queue", g.w.name(ref.Event, ref.N))
	waits, still := g.w.waiting(auto)
	of := slices.IndexFunc(still, func(t turn) bool { return t.id == ref.Event && t.n == ref.N })
	if of < 0 {
		g.w.fault("%s was taken and is not under way", g.w.name(ref.Event, ref.N))
		return
	}
	mine := still[of]
	for _, other := range waited {
		if other.before(mine) && slices.Contains(waits, other) {
			g.w.fault("%s is taken before %s", g.w.name(mine.id, mine.n), g.w.name(other.id, other.n))
		}
	}
	for _, other := range under {
		if other != mine && other.before(mine) && slices.Contains(still, other) {
			g.w.fault("%s is taken although it is not known what became of %s", g.w.name(mine.id, mine.n), g.w.name(other.id, other.n))
		}
	}
	name := fmt.Sprint(ref.Event, "/", ref.N)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.taken != "" {
		g.w.fault("%s is taken while %s is under way", name, g.taken)
	}
	g.taken = name
}

func (g *slowStore) BeginReplay(ctx context.Context, who relay.Actor, id relay.ID, deliver bool) (*relay.Claim, error) {
	before, after, dead := g.times()
	if dead {
		return nil, errKilled
	}
	time.Sleep(before)
	if _, _, dead := g.times(); dead {
		return nil, errKilled
	}
	c, err := g.Store.BeginReplay(ctx, who, id, deliver)
	time.Sleep(after)
	if _, _, dead := g.times(); dead {
		return nil, errKilled
	}
	return c, err
}
