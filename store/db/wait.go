package db

import (
	"context"
	"errors"
	"net"
	"time"
)

// WhileBusy calls the function step again while another session keeps a lock that step needs, or the server did not
// answer a statement in time. A node that lost its connection leaves its transaction and its locks behind until
// Postgres ends the session: see sessionSettings. A busy server may report the end of a wait for a lock later than the
// connection waits for it. After a commit without an answer WhileBusy does not call step again, because step may have
// been done.
func WhileBusy(ctx context.Context, step func() error) error {
	return tryAgain(ctx, 3*OpTimeout, func(err error) bool {
		var commit *unansweredCommit
		return IsLocked(err) || isTimeout(err) && !errors.As(err, &commit)
	}, step)
}

// isTimeout reports whether the server did not answer in time.
func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

// tryAgain calls the function step again while it returns a temporary error, for which mayPass returns true,
// but for no longer than limit. It is for the start of relayd, when no caller waits. It returns the last
// error of step.
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
