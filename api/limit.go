package api

import (
	"crypto/sha256"
	"errors"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"relay"
	"relay/sockets"
)

// maxKeys bounds the number of keys that a limiter remembers. A forgotten key starts again with a full
// bucket.
const maxKeys = 10_000

// Rate limits that no setting changes.
var (
	// accountRate limits how often an account may create logins, links, shares, tokens
	// and keys.
	accountRate = Rate{N: 120, Per: time.Minute}
	// sourceRate limits wrong credentials from one source. Secrets of 256 bits cannot be
	// guessed at any rate: the limit protects the store from the look-ups.
	sourceRate = Rate{N: 6000, Per: time.Minute}
)

// Largest numbers of streams and waiting calls that are open at the same time. Each program `relay up` has an
// open stream, so the bounds equal those of SSH connections, with some more in total for dashboards.
const (
	maxOpenPerAccount = 256
	maxAgentWaits     = 8 // open waits of one credential
	maxOpenTotal      = 16384
)

// refusals counts the refused calls of one limit.
type refusals struct {
	name  string
	count atomic.Int64
}

// refuse counts a refused call and returns its error, which names the limit and the time to wait.
func (f *refusals) refuse(r Rate, wait time.Duration, format string, args ...any) error {
	f.count.Add(1)
	e := relay.Errorf(relay.CodeRateLimited, format, args...)
	e.RetryAfter = max(wait, time.Millisecond)
	return &rateLimitError{error: e, name: f.name, rate: r}
}

// rateLimiter is a token bucket per key. It is safe for concurrent use.
type rateLimiter struct {
	refusals
	rate    Rate
	buckets *lru.Cache[string, *rate.Limiter]
}

func newLimiter(name string, r Rate) *rateLimiter {
	return &rateLimiter{refusals: refusals{name: name}, rate: r, buckets: newLRU[string, *rate.Limiter]()}
}

func newLRU[K comparable, V any]() *lru.Cache[K, V] {
	c, err := lru.New[K, V](maxKeys)
	if err != nil {
		panic(err) // lru.New fails only for a size below 1
	}
	return c
}

func (l *rateLimiter) disabled() bool { return l.rate.N <= 0 || l.rate.Per <= 0 }

func (l *rateLimiter) bucket(key string) *rate.Limiter {
	if b, ok := l.buckets.Get(key); ok {
		return b
	}
	b := rate.NewLimiter(rate.Every(l.rate.Per/time.Duration(l.rate.N)), l.rate.N)
	if earlier, ok, _ := l.buckets.PeekOrAdd(key, b); ok { // a concurrent call has added a bucket for the key since the look-up
		return earlier
	}
	return b
}

// allow counts one call of key. If the limit is reached, it returns an error with the time until the
// next call is allowed.
func (l *rateLimiter) allow(key string) error {
	if l.disabled() {
		return nil
	}
	r := l.bucket(key).Reserve()
	wait := r.Delay()
	if wait == 0 {
		return nil
	}
	r.Cancel()
	return l.refusal(wait)
}

// check returns the error that allow would return for key, without counting a call.
func (l *rateLimiter) check(key string) error {
	if b, known := l.buckets.Get(key); known {
		if missing := 1 - b.Tokens(); missing > 0 {
			return l.refusal(time.Duration(missing * float64(l.rate.Per) / float64(l.rate.N)))
		}
	}
	return nil
}

func (l *rateLimiter) refusal(wait time.Duration) error {
	return l.refuse(l.rate, wait, "too many of these calls: %d in %s are allowed; wait and try again", l.rate.N, relay.FormatDuration(l.rate.Per))
}

// concurrencyLimiter bounds the number of calls that are open at the same time, per key and in total. A key
// is an account or a credential. It is safe for concurrent use.
type concurrencyLimiter struct {
	refusals

	perKey int // largest number of open calls of one key

	mu    sync.Mutex
	byKey map[string]int // number of open calls; a key without one is not in the map
	total int
}

func newConcurrencyLimiter(name string, perKey int) *concurrencyLimiter {
	return &concurrencyLimiter{refusals: refusals{name: name}, perKey: perKey, byKey: map[string]int{}}
}

// acquire takes a slot for key, until the function leave is called. The error is rate-limited when all slots
// are taken.
func (p *concurrencyLimiter) acquire(key string) (leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byKey[key] >= p.perKey || p.total >= maxOpenTotal {
		return nil, p.refuse(Rate{N: p.perKey, Per: time.Second}, time.Second,
			"too many of these calls are open: %d at once are allowed; end one first", p.perKey)
	}
	p.byKey[key]++
	p.total++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.total--
		if p.byKey[key]--; p.byKey[key] == 0 {
			delete(p.byKey, key)
		}
	}), nil
}

func (p *concurrencyLimiter) open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}

// Limits are the rate and concurrency limits that the API, the pages and the SSH
// commands share. They are safe for concurrent use.
type Limits struct {
	replays, shareReplays, creations, sources, verifies *rateLimiter

	// validSecrets holds hashes of recently valid credentials. Such credentials are looked up even while
	// their source is limited, because a client that guesses behind the same address must not lock out its
	// neighbours. An entry alone does not authenticate.
	validSecrets *lru.Cache[[sha256.Size]byte, struct{}]

	streams, waits, agentWaits *concurrencyLimiter
}

// NewLimits returns limits with full buckets. replay is the rate per token or session, shareReplay the rate
// per share. RateLimit headers and metrics use the names of the limits.
func NewLimits(replay, shareReplay Rate) *Limits {
	return &Limits{
		replays:      newLimiter("replays", replay),
		shareReplays: newLimiter("shared-replays", shareReplay),
		creations:    newLimiter("account", accountRate),
		sources:      newLimiter("source", sourceRate),
		verifies:     newLimiter("verifications", verifyRate),
		validSecrets: newLRU[[sha256.Size]byte, struct{}](),
		streams:      newConcurrencyLimiter("streams", maxOpenPerAccount),
		waits:        newConcurrencyLimiter("waits", maxOpenPerAccount),
		agentWaits:   newConcurrencyLimiter("agent-waits", maxAgentWaits),
	}
}

// Stream takes one of the account's slots for a live stream, until the function release is called. The error
// is rate-limited when all slots are taken.
func (l *Limits) Stream(who relay.Actor) (release func(), err error) {
	return l.streams.acquire(accountKey(who))
}

// Wait takes one of the account's slots for a call that waits. A call by an agent also takes one of the few
// slots of its credential. The function release frees these slots. The error is rate-limited when all slots
// are taken.
func (l *Limits) Wait(who relay.Actor) (release func(), err error) {
	account, err := l.waits.acquire(accountKey(who))
	if err != nil || who.Via == "" {
		return account, err
	}
	credential, err := l.agentWaits.acquire(string(who.Kind) + ":" + who.Credential)
	if err != nil {
		account()
		return nil, err
	}
	return func() { credential(); account() }, nil
}

// Replay counts a replay or release by a token or session; the error is rate-limited beyond the limit.
func (l *Limits) Replay(who relay.Actor) error {
	return l.replays.allow(string(who.Kind) + ":" + who.Credential)
}

// ShareReplay counts a replay by a share, named by its id.
func (l *Limits) ShareReplay(share string) error { return l.shareReplays.allow(share) }

// Create counts a login, link, share, token or key that an account makes.
func (l *Limits) Create(who relay.Actor) error { return l.creations.allow(accountKey(who)) }

// LookUpSecret calls the function look, which looks up a secret that the client at the address remote
// (host:port) has sent, and notes whether the secret was right; look returns ErrNotFound for a wrong one. If
// too many wrong secrets have come from this source lately, LookUpSecret returns a rate-limited error without
// calling look, unless the secret itself was right lately.
func (l *Limits) LookUpSecret(remote, secret string, look func() error) error {
	source, key := sourceKey(remote), sha256.Sum256([]byte(secret))
	if _, was := l.validSecrets.Get(key); !was {
		if err := l.sources.check(source); err != nil {
			return err
		}
	}
	err := look()
	switch {
	case err == nil:
		l.validSecrets.Add(key, struct{}{})
	case errors.Is(err, relay.ErrNotFound) && !l.sources.disabled():
		l.sources.bucket(source).Allow()
	}
	return err
}

// Verify counts a verification of a signature by an account.
func (l *Limits) Verify(who relay.Actor) error { return l.verifies.allow(accountKey(who)) }

func accountKey(who relay.Actor) string { return strconv.FormatInt(who.Account, 10) }

// sourceKey returns the source of host:port. Everything that is not an IP address is one source.
func sourceKey(remote string) string {
	at, _ := netip.ParseAddrPort(remote)
	return sockets.SourceOf(at.Addr()).String()
}

// LimitStats counts the limited calls since relayd started.
type LimitStats struct {
	// Refused is the number of calls that got rate-limited, by the kind of limit.
	Refused map[string]int64 `json:"refused"`
	// Keys is the number of credentials, accounts and sources that are remembered, by the kind of limit; at
	// most 10,000 each.
	Keys    map[string]int `json:"keys"`
	Streams int            `json:"streams"` // open now
	Waits   int            `json:"waits"`   // open now
}

// Stats returns the counts for /debug/stats.
func (l *Limits) Stats() LimitStats {
	s := LimitStats{Refused: map[string]int64{}, Keys: map[string]int{}, Streams: l.streams.open(), Waits: l.waits.open()}
	for _, b := range []*rateLimiter{l.replays, l.shareReplays, l.creations, l.sources, l.verifies} {
		s.Keys[b.name] = b.buckets.Len()
	}
	for _, f := range l.refusals() {
		s.Refused[f.name] = f.count.Load()
	}
	return s
}

func (l *Limits) refusals() []*refusals {
	return []*refusals{
		&l.replays.refusals, &l.shareReplays.refusals, &l.creations.refusals, &l.sources.refusals, &l.verifies.refusals, &l.streams.refusals, &l.waits.refusals, &l.agentWaits.refusals,
	}
}
