package events

import (
	"cmp"
	"context"
	"time"

	"relay"
	"relay/turns"
)

// heavyWait is the time for which a heavy read waits for its turn.
const heavyWait = 4 * time.Second

// heavyReads bounds the reads of events, lists and figures that run at the same time, in total and for each
// account. A read runs only while it has a turn. There are few connections for reads, four on SQLite, and an
// account that reads much must not keep others from reading. All holders of shares count as one account.
type heavyReads struct{ turns *turns.Turns }

func newHeavyReads(connections int) heavyReads {
	most := max(1, connections*3/4)
	return heavyReads{turns.New(most, max(1, most-1))}
}

// acquire waits for a turn of the actor's account. The function release gives the turn back. If no turn is
// free within heavyWait, the error is overloaded.
func (h heavyReads) acquire(ctx context.Context, who relay.Actor) (release func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, heavyWait)
	defer cancel()
	if release, err = h.turns.Wait(waiting, readerOf(who)); err == nil {
		return release, nil
	}
	if cmp.Or(context.Cause(ctx), context.DeadlineExceeded) == context.DeadlineExceeded {
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
