package shell

import (
	"context"
	"fmt"
	"time"

	"relay"
	"relay/record"
)

// waitTime is how long the command wait waits unless it is told otherwise, maxWaitTime
// the longest.
const waitTime, maxWaitTime = 30 * time.Second, time.Hour

// wait shows the first event that comes to an alias from now on and matches, once
// it has ended. An event that is still under way when time is up is shown as it is.
func (k *call) wait() error {
	f, timeout, err := k.waitFor()
	if err != nil {
		return err
	}
	alias, err := k.alias(f.Alias)
	if err != nil {
		return err
	}
	k.interruptible()
	sub, err := k.s.Tunnels.Subscribe(k.s.Ctx, k.s.Who, alias.ID, "") // before the first look: nothing is missed between
	if err != nil {
		return err
	}
	defer sub.Close()
	ctx, cancel := context.WithTimeout(k.s.Ctx, timeout)
	defer cancel()
	e, err := k.await(ctx, sub, f)
	switch {
	case k.s.Ctx.Err() != nil:
		return relay.Errorf(relay.CodeCanceled, "interrupted")
	case err != nil:
		return err
	case e == nil:
		return relay.Errorf(relay.CodeRequestTimeout, "no such event came within %s", relay.FormatDuration(timeout))
	}
	form := record.Of(e, k.s.Site, time.Now())
	return k.print(form, func() string { return k.s.Screen.line(record.EventLine(&form.Summary)) + "\n" })
}

// waitFor reads what is waited for, and how long.
func (k *call) waitFor() (f relay.Filter, timeout time.Duration, err error) {
	label, err := k.label()
	if err != nil {
		return f, 0, err
	}
	timeout = waitTime
	if text, given := k.flags["timeout"]; given {
		if timeout, err = relay.ParseDuration(text); err != nil || timeout <= 0 || timeout > maxWaitTime {
			return f, 0, usage("--timeout takes a duration such as 30s, at most 1h")
		}
	}
	if f, err = k.filter(label); err != nil {
		return f, 0, err
	}
	if now := time.Now().Truncate(time.Millisecond); f.Since.Before(now) { // ids have milliseconds
		f.Since = now
	}
	f.Limit = 200
	return f, timeout, nil
}

// await gives the oldest event that matches, nil when none came until ctx ends.
func (k *call) await(ctx context.Context, sub relay.Subscription, f relay.Filter) (*relay.Event, error) {
	var found *relay.Event
	for {
		if found == nil {
			page, err := k.s.Read.Events(k.s.Ctx, k.s.Who, f)
			if err != nil {
				return nil, err
			}
			if n := len(page.Events); n > 0 {
				found = &page.Events[n-1]
			} else if f.Cursor = page.Next; f.Cursor != "" && ctx.Err() == nil {
				continue // the search ran out of its time, not of events
			}
		}
		if found != nil {
			e, err := k.s.Read.Event(k.s.Ctx, k.s.Who, found.ID, record.MaxBody)
			if err != nil || e.State != relay.StateDelivering {
				return e, err
			}
			found = e
		}
		if _, err := sub.Next(ctx); err != nil {
			if ctx.Err() != nil {
				return found, nil
			}
			return nil, fmt.Errorf("wait for the live feed: %w", err)
		}
	}
}
