package client

import (
	"math/rand/v2"
	"time"
)

// How a lost connection is dialed again: at once, then after up to firstDelay,
// doubling to maxDelay. A connection that held for healthyAfter starts anew.
const (
	firstDelay   = 250 * time.Millisecond
	maxDelay     = 15 * time.Second
	healthyAfter = 30 * time.Second
	// fairAfter is how long it has to hold to be more than a try.
	fairAfter = time.Second
	// knockEvery is how often a relay that is not running is knocked at during a
	// longer wait: a refused connect costs it nothing, and it is back within that.
	knockEvery = time.Second
)

// backoff counts the tries since the last healthy connection.
type backoff struct {
	tries int
	// jitter gives a number in [0, 1); nil = random.
	jitter func() float64
}

// next is how long to wait before the next try: a random part of a bound that
// doubles (full jitter), so that the clients of a restarted server come back
// spread out.
func (b *backoff) next() time.Duration {
	n := b.tries
	b.tries++
	if n == 0 {
		return 0
	}
	bound := maxDelay
	if n < 8 { // 0.25 s << 7 is beyond the bound, and more would overflow in the end
		bound = min(maxDelay, firstDelay<<(n-1))
	}
	jitter := rand.Float64
	if b.jitter != nil {
		jitter = b.jitter
	}
	return time.Duration(jitter() * float64(bound))
}

// reset is told after a connection that held.
func (b *backoff) reset() { b.tries = 0 }
