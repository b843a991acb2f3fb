package db

import (
	"context"
	"time"
)

// WhileLocked repeats a step of the start while another session keeps a lock that the step needs. A
// node that lost its connection leaves its transaction and its locks behind until Postgres ends the
// session: see sessionSettings.
func WhileLocked(ctx context.Context, step func() error) error {
	return tryAgain(ctx, 3*OpTimeout, IsLocked, step)
}

// tryAgain repeats a step of the start for up to limit, as long as mayPass reports that its error may
// be temporary. No caller waits at this time. It returns the last error of the step.
func tryAgain(ctx context.Context, limit time.Duration, mayPass func(error) bool, step func() error) error {
	for began := time.Now(); ; {
		err := step()
		if !mayPass(err) || time.Since(began) > limit || Pause(ctx, RetryPause) != nil {
			return err
		}
	}
}

// Pause waits for a time, or until ctx ends, and returns the error of ctx.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err()
}

// Signal puts a signal into a channel with one place, unless the place is taken.
func Signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

const RetryPause = 20 * time.Millisecond // wait before a transaction that failed is tried again
