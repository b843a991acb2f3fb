package api

import (
	"crypto/sha256"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"relay"
)

// maxKeys bounds how many keys a limiter remembers; forgetting one only ever gives
// somebody more.
const maxKeys = 10_000

// Bounds that are no settings.
var (
	// accountRate bounds what an account may make: logins, links, shares, tokens and
	// keys.
	accountRate = Rate{N: 120, Per: time.Minute}
	// sourceRate bounds wrong credentials of one source. Secrets of 256 bits are not
	// guessed at any rate: it keeps guesses from being work for the store.
	sourceRate = Rate{N: 6000, Per: time.Minute}
)

// Calls that stay open, at once.
const (
	openPerAccount = 100
	openInAll      = 4096
)

// Kinds of limit, as they are named in RateLimit headers and figures.
const (
	kindReplays      = "replays"
	kindShareReplays = "shared-replays"
	kindMakes        = "account"
	kindSources      = "source"
	kindStreams      = "streams"
	kindWaits        = "waits"
)

// limiter is a token bucket per key. It is safe for concurrent use.
type limiter struct {
	name    string
	rate    Rate
	buckets *recent[*rate.Limiter]
	refused atomic.Int64
}

func newLimiter(name string, r Rate) *limiter {
	return &limiter{name: name, rate: r, buckets: newRecent[*rate.Limiter](maxKeys)}
}

func (l *limiter) off() bool { return l.rate.N <= 0 || l.rate.Per <= 0 }

func (l *limiter) bucket(key string) *rate.Limiter {
	b, _ := l.buckets.get(key, func() *rate.Limiter {
		return rate.NewLimiter(rate.Every(l.rate.Per/time.Duration(l.rate.N)), l.rate.N)
	})
	return b
}

// take counts one call of key, or says when the next one may come.
func (l *limiter) take(key string) error {
	if l.off() {
		return nil
	}
	r := l.bucket(key).Reserve()
	wait := r.Delay()
	if wait == 0 {
		return nil
	}
	r.Cancel()
	return l.refuse(wait)
}

// empty is an error when a call of key would not be let through now; it counts none.
func (l *limiter) empty(key string) error {
	if l.off() {
		return nil
	}
	b, known := l.buckets.get(key, nil)
	if !known {
		return nil
	}
	missing := 1 - b.Tokens()
	if missing <= 0 {
		return nil
	}
	return l.refuse(time.Duration(missing * float64(l.rate.Per) / float64(l.rate.N)))
}

func (l *limiter) refuse(wait time.Duration) error {
	l.refused.Add(1)
	e := relay.Errorf(relay.CodeRateLimited, "too many of these calls: %d in %s are allowed; wait and try again", l.rate.N, relay.FormatDuration(l.rate.Per))
	e.RetryAfter = max(wait, time.Millisecond)
	return &limited{refused: e, name: l.name, rate: l.rate}
}

// Limits are the buckets that the API and the pages count in together. They are
// safe for concurrent use.
type Limits struct {
	replays, shareReplays, makes, sources *limiter

	// good are hashes of credentials that were right lately: a neighbour who guesses
	// does not shut them out. Being in it proves nothing.
	good *recent[struct{}]

	streams, waits *places
}

// NewLimits makes full buckets: replays per token or session, replays per share.
func NewLimits(replay, shareReplay Rate) *Limits {
	return &Limits{
		replays:      newLimiter(kindReplays, replay),
		shareReplays: newLimiter(kindShareReplays, shareReplay),
		makes:        newLimiter(kindMakes, accountRate),
		sources:      newLimiter(kindSources, sourceRate),
		good:         newRecent[struct{}](maxKeys),
		streams:      newPlaces(kindStreams),
		waits:        newPlaces(kindWaits),
	}
}

// Replay counts a replay or release by a token or session; rate-limited when it may
// not be.
func (l *Limits) Replay(who relay.Actor) error {
	return l.replays.take(string(who.Kind) + ":" + who.Credential)
}

// ShareReplay counts a replay by a share, named by its id.
func (l *Limits) ShareReplay(share string) error { return l.shareReplays.take(share) }

// Make counts a login, link, share, token or key that an account makes.
func (l *Limits) Make(who relay.Actor) error { return l.makes.take(accountKey(who)) }

// Try is asked before a secret that remote (host:port) shows is looked up:
// rate-limited when too many wrong ones came from there lately. A secret that was
// right here lately is let through.
func (l *Limits) Try(remote, secret string) error {
	if _, was := l.good.get(secretKey(secret), nil); was {
		return nil
	}
	return l.sources.empty(sourceKey(remote))
}

// Tried tells how a look-up ended.
func (l *Limits) Tried(remote, secret string, right bool) {
	if right {
		l.good.get(secretKey(secret), func() struct{} { return struct{}{} })
	} else if !l.sources.off() {
		l.sources.bucket(sourceKey(remote)).Allow()
	}
}

func accountKey(who relay.Actor) string { return strconv.FormatInt(who.Account, 10) }

func secretKey(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return string(sum[:])
}

// sourceKey is an IPv4 address or the /64 of an IPv6 one: what one party has.
func sourceKey(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return "unknown"
	}
	addr := at.Addr().Unmap().WithZone("")
	if addr.Is4() {
		return addr.String()
	}
	net, _ := addr.Prefix(64) // cannot fail for an IPv6 address
	return net.String()
}

// LimitStats count what was limited since the start.
type LimitStats struct {
	// Refused are calls answered by rate-limited, by the kind of limit.
	Refused map[string]int64 `json:"refused"`
	// Keys are the credentials, accounts and sources that are remembered, by the kind
	// of limit; at most 10,000 each.
	Keys    map[string]int `json:"keys"`
	Streams int            `json:"streams"` // open now
	Waits   int            `json:"waits"`   // open now
}

// Stats gives the counts for /debug/stats.
func (l *Limits) Stats() LimitStats {
	s := LimitStats{Refused: l.refusals(), Keys: map[string]int{}, Streams: l.streams.open(), Waits: l.waits.open()}
	for _, b := range []*limiter{l.replays, l.shareReplays, l.makes, l.sources} {
		s.Keys[b.name] = b.buckets.size()
	}
	return s
}

func (l *Limits) refusals() map[string]int64 {
	counts := map[string]int64{l.streams.name: l.streams.refused.Load(), l.waits.name: l.waits.refused.Load()}
	for _, b := range []*limiter{l.replays, l.shareReplays, l.makes, l.sources} {
		counts[b.name] = b.refused.Load()
	}
	return counts
}
