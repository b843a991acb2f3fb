package retention

import (
	"context"
	"time"

	"relay"
	"relay/store/db"
	"relay/store/events"
	"relay/store/usage"
)

// evictionSlice is the time for which EvictOverLimit evicts from one alias or account before it continues with
// the next one.
const evictionSlice = 2 * time.Second

// Capacity returns nil if a request can be stored for the alias; need is its approximate size in bytes. It
// returns storage-full if the disk is nearly full, or if the alias or its account has reached its limit and
// nothing can be evicted. It returns store-unavailable if Postgres is unreachable and the spool is full. If
// older events have to be evicted, Capacity evicts events of the alias and of the account, and spends at most
// the duration wait on each; otherwise it answers from memory. It reserves no space.
func (r *Retention) Capacity(alias, need int64, wait time.Duration) *relay.Error {
	if err := r.db.Disk.Low(); err != nil {
		return err
	}
	if err := r.spool.Admits(need); err != nil {
		return err
	}
	if !r.fits(usage.Holder{ID: alias}, need, wait) {
		return &relay.Error{
			Code: relay.CodeStorageFull, RetryAfter: 30 * time.Second,
			Detail: "this alias has reached its storage limit, and no event could be removed in time: pinned, shared, queued and running ones stay; this request was not stored",
		}
	}
	if owner := r.usage.OwnerOf(alias); owner != 0 && !r.fits(usage.Holder{Account: true, ID: owner}, need, wait) {
		return &relay.Error{
			Code: relay.CodeStorageFull, RetryAfter: 30 * time.Second,
			Detail: "the owner of this alias has reached the storage limit of all its aliases, and no event could be removed in time: pinned, shared, queued and running ones stay; this request was not stored",
		}
	}
	return nil
}

// fits reports whether a request fits into the limit of a holder; need is its size in bytes. If it does not
// fit, older events are evicted for at most the duration wait, but no more than the request needs, even if the
// holder is far above its limit. Requests of one holder evict one after another. They do not wait for evictions
// of other holders or of EvictOverLimit.
func (r *Retention) fits(h usage.Holder, need int64, wait time.Duration) bool {
	fits, evictable := r.usage.Admits(h, need)
	if fits || !evictable || wait <= 0 {
		return fits
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	// evict begins no transaction after the time until, so that its last transaction can end before ctx does.
	until, turn := time.Now().Add(wait*3/4), r.usage.Turn(h)
	again := time.NewTicker(wait / 20) // the eviction that another request runs may make enough space while it is still in progress
	defer again.Stop()
	for taken := false; !taken; {
		select {
		case turn <- struct{}{}:
			taken = true
		case <-again.C:
			if fits, _ = r.usage.Admits(h, need); fits {
				return true
			}
		case <-ctx.Done():
			fits, _ = r.usage.Admits(h, need)
			return fits
		}
	}
	defer func() { <-turn }()
	if fits, evictable = r.usage.Admits(h, need); fits || !evictable {
		return fits
	}
	r.evict(ctx, h, need, false, until)
	fits, _ = r.usage.Admits(h, need)
	return fits
}

// EvictOverLimit evicts events from the aliases, or the accounts, that exceed their limits, and then returns free
// pages to the file system.
func (r *Retention) EvictOverLimit(ctx context.Context, accounts bool) error {
	for _, h := range r.usage.OverLimit(accounts) {
		if r.usage.IsOver(h) { // the holder may be within its limit by now
			r.evict(ctx, h, 0, true, time.Now().Add(evictionSlice))
		}
	}
	if n := r.counts.Evicted.Load(); r.givenBack.Swap(n) == n {
		return nil
	}
	return r.vacuum(ctx)
}

// evict removes the oldest events of an alias or an account: if the parameter all is true, until the alias or
// account is within its limit, otherwise until it has space for a number of bytes (need). It begins no
// transaction after the time until. Several evictions of one alias or account may run at once: each
// transaction first counts what the others have removed.
func (r *Retention) evict(ctx context.Context, h usage.Holder, need int64, all bool, until time.Time) {
	ended := false
	most := func(c *db.Tx) (surplus int64, err error) {
		if !time.Now().Before(until) {
			ended = true
			return 0, nil
		}
		err = r.usage.HearEvictions(c, h)
		surplus = r.usage.Surplus(h, need, all)
		ended = err != nil || surplus <= 0
		return surplus, err
	}
	_, err := r.removeOldest(ctx, h, events.LastID, r.db.Now(), most, &r.counts.Evicted)
	if err != nil && ctx.Err() == nil {
		of := "alias"
		if h.Account {
			of = "account"
		}
		r.log.Warn("old events cannot be removed to make space", of, h.ID, "err", err)
	}
	if err == nil && !ended { // no event is left that can be evicted
		if fits, _ := r.usage.Admits(h, max(need, 1)); !fits {
			r.usage.NoteFull(h)
		}
	}
}
