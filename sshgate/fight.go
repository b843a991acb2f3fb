package sshgate

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"relay"
)

// Two clients that reconnect whenever they lose an alias would take it from each
// other without end. The newest always wins at once; but once an alias has changed
// hands often, who has just lost it waits before it is let in again.
const (
	fightBurst  = 20               // takeovers that cost nobody anything
	fightRefill = 3 * time.Second  // after which one more is free
	fightWait   = 10 * time.Second // for whoever lost the alias beyond that
)

// maxFights bounds what is remembered of aliases and of losers, each. What does not
// fit is not damped.
const maxFights = 4096

// loser is who may be one of two that fight: the same key from the same place.
type loser struct {
	credential string
	from       netip.Prefix
}

// loss is what a loser lost.
type loss struct {
	alias string
	at    time.Time
}

// fights remember takeovers. Safe for concurrent use.
type fights struct {
	now func() time.Time

	mu     sync.Mutex
	paid   map[string]time.Time // by alias: when all its takeovers so far are free again
	losses map[loser]loss
	swept  time.Time
}

func newFights() *fights {
	return &fights{now: time.Now, paid: map[string]time.Time{}, losses: map[loser]loss{}}
}

// lost notes that somebody who was well has lost an alias to a newer connection. It
// tells whether that was too often.
func (f *fights) lost(alias string, who loser) (over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	f.sweep(now)
	paid := f.paid[alias]
	if paid.Before(now) {
		paid = now
	}
	paid = paid.Add(fightRefill)
	if over = paid.Sub(now) > fightBurst*fightRefill; over {
		paid = now.Add(fightBurst * fightRefill)
		if _, known := f.losses[who]; known || len(f.losses) < maxFights {
			f.losses[who] = loss{alias, now}
		}
	}
	if _, known := f.paid[alias]; known || len(f.paid) < maxFights {
		f.paid[alias] = paid
	}
	return over
}

// contested tells whether an alias has changed hands more often lately than people do
// by hand.
func (f *fights) contested(alias string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.paid[alias].Sub(f.now()) > fightBurst*fightRefill/2
}

// due is how long a loser has to wait before it comes in again, and for which
// alias; asking settles it.
func (f *fights) due(who loser) (alias string, wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x, known := f.losses[who]
	if !known {
		return "", 0
	}
	delete(f.losses, who)
	return x.alias, x.at.Add(fightWait).Sub(f.now())
}

// sweep forgets what is over, at most once a second. mu is held.
func (f *fights) sweep(now time.Time) {
	if now.Sub(f.swept) < time.Second {
		return
	}
	f.swept = now
	for alias, paid := range f.paid {
		if !paid.After(now) {
			delete(f.paid, alias)
		}
	}
	for who, x := range f.losses {
		if now.Sub(x.at) >= fightWait {
			delete(f.losses, who)
		}
	}
}

// contest tells the sessions of whoever has an alias now that it is fought for.
func (g *Gate) contest(alias int64, name string) {
	for _, c := range g.all() {
		if c.holds(alias) {
			c.tell(notice{kind: noticeContested, alias: name, message: fmt.Sprintf(contestedWords, name)})
		}
	}
}

// contestedWords are what the winner reads.
const contestedWords = "Alias %s changes hands all the time: two clients take it from each other; stop one of them"

// calm makes a login wait that is one side of a fight, and says why.
func (l *login) calm(who relay.Actor) {
	g := l.c.gate
	alias, wait := g.fights.due(loser{who.Credential, l.c.place.from})
	if wait <= 0 || !g.crowd.wait(&l.c.place) {
		return
	}
	defer g.crowd.resume(&l.c.place)
	l.c.allow(wait + g.o.HandshakeTimeout)
	l.c.log.Warn("two clients take an alias from each other; one waits", "alias", alias, "wait", wait)
	_ = l.banner.SendAuthBanner(fmt.Sprintf(
		"relay: alias %s changes hands all the time: two of your clients take it\r\nrelay: from each other. Stop one of them. This one waits %d s\r\n",
		alias, int(wait.Seconds())+1))
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.c.lost:
	case <-l.c.ctx.Done():
	}
}
