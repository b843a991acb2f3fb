package cli

import (
	"context"
	"math/rand/v2"
	"time"
)

// Delays before a lost connection is dialed again. The first try is made at once, or within the time that the
// relay has asked for. The delay of the next try is random, up to firstDelay; this bound doubles up to maxDelay.
// A connection that served an alias or a stream for HealthyAfter resets the delays.
const (
	firstDelay   = 250 * time.Millisecond
	maxDelay     = 15 * time.Second
	HealthyAfter = time.Second
)

// Backoff counts the tries since the last healthy connection.
type Backoff struct {
	Tries int
	// jitter returns a number in [0, 1); nil means a random number.
	jitter func() float64
}

// Next returns the time to wait before the next try: a random part of a bound (full jitter). The bound of the
// first try is the argument first. The bound of the second try is firstDelay, and then it doubles up to
// maxDelay. The random part spreads the clients of a restarted relay over time.
func (b *Backoff) Next(first time.Duration) time.Duration {
	bound := first
	if b.Tries > 0 {
		bound = min(maxDelay, firstDelay<<min(b.Tries-1, 6)) // a shift by 6 exceeds maxDelay; a longer shift could overflow
	}
	b.Tries++
	jitter := rand.Float64
	if b.jitter != nil {
		jitter = b.jitter
	}
	return time.Duration(jitter() * float64(bound))
}

// Reset makes Next count from the first try again.
func (b *Backoff) Reset() { b.Tries = 0 }

// Wait waits for d. It returns false if ctx ended first.
func Wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
