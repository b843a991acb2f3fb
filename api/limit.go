package api

import (
	"container/list"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"relay"
)

// maxKeys bounds how many keys a limiter remembers; the one longest unused goes
// first, which only ever gives somebody more.
const maxKeys = 10_000

// limiter is a token bucket per key. It is safe for concurrent use.
type limiter struct {
	name string
	rate Rate

	mu    sync.Mutex
	byKey map[string]*list.Element
	order *list.List // most recently used first
}

type bucket struct {
	key   string
	limit *rate.Limiter
}

func newLimiter(name string, r Rate) *limiter {
	return &limiter{name: name, rate: r, byKey: map[string]*list.Element{}, order: list.New()}
}

// take counts one call of key, or says when the next one may come.
func (l *limiter) take(key string) error {
	if l.rate.N <= 0 || l.rate.Per <= 0 {
		return nil
	}
	r := l.bucket(key).Reserve()
	wait := r.Delay()
	if wait == 0 {
		return nil
	}
	r.Cancel()
	e := relay.Errorf(relay.CodeRateLimited, "too many of these calls: %d in %s are allowed; wait and try again", l.rate.N, relay.FormatDuration(l.rate.Per))
	e.RetryAfter = wait
	return &limited{refused: e, name: l.name, rate: l.rate}
}

func (l *limiter) bucket(key string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.byKey[key]; ok {
		l.order.MoveToFront(e)
		return e.Value.(*bucket).limit
	}
	if l.order.Len() >= maxKeys {
		last := l.order.Back()
		delete(l.byKey, last.Value.(*bucket).key)
		l.order.Remove(last)
	}
	every := rate.Every(l.rate.Per / time.Duration(l.rate.N))
	b := &bucket{key: key, limit: rate.NewLimiter(every, l.rate.N)}
	l.byKey[key] = l.order.PushFront(b)
	return b.limit
}

// Limits are the buckets that the API and the pages count in together. They are
// safe for concurrent use.
type Limits struct{ replays, shareReplays, makes *limiter }

// NewLimits makes full buckets: replays per token or session, replays per share.
func NewLimits(replay, shareReplay Rate) *Limits {
	return &Limits{
		replays:      newLimiter("replays", replay),
		shareReplays: newLimiter("shared-replays", shareReplay),
		makes:        newLimiter("account", accountRate),
	}
}

// Replay counts a replay or release by a token or session; rate-limited when it may
// not be.
func (l *Limits) Replay(who relay.Actor) error {
	return l.replays.take(string(who.Kind) + ":" + who.Credential)
}

// ShareReplay counts a replay by a share, named by its id.
func (l *Limits) ShareReplay(share string) error { return l.shareReplays.take(share) }

// Make counts a link, share, token or key that an account makes.
func (l *Limits) Make(who relay.Actor) error {
	return l.makes.take(strconv.FormatInt(who.Account, 10))
}
