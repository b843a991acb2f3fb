package shell

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"relay"
	"relay/record"
)

// showBody is how much of a body the command show prints.
const showBody = 4 << 10

// events lists the newest events of an alias, the newest last, so that those that
// follow continue the list.
func (k *call) events() error {
	label, err := k.label()
	if err != nil {
		return err
	}
	n := 20
	if text, given := k.flags["n"]; given {
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > 200 {
			return usage("-n takes a number from 1 to 200")
		}
	}
	newest, err := k.filter(label)
	if err != nil {
		return err
	}
	newest.Limit = n
	if _, follow := k.flags["f"]; follow {
		return k.followEvents(newest)
	}
	k.interruptible()
	page, err := k.list(newest)
	if err != nil {
		return err
	}
	form := record.PageOf(page, k.s.Site, time.Now())
	return k.print(form, func() string {
		slices.Reverse(form.Data)
		var b strings.Builder
		for i := range form.Data {
			b.WriteString(k.s.Screen.line(record.EventLine(&form.Data[i])) + "\n")
		}
		return b.String()
	})
}

// list returns as many events as f allows, newest first. A page has fewer when the search for
// them took too long.
func (k *call) list(f relay.Filter) (relay.Page, error) {
	var all relay.Page
	for n := f.Limit; ; {
		f.Limit = n - len(all.Events)
		page, err := k.s.Read.Events(k.s.Ctx, k.s.Who, f)
		if err != nil {
			return all, err
		}
		page.Events = append(all.Events, page.Events...)
		if all = page; all.Next == "" || len(all.Events) >= n {
			return all, nil
		}
		f.Cursor = all.Next
	}
}

// followEvents prints the list, then what ends from now on; with --json one
// summary a line, whenever an event changes.
func (k *call) followEvents(newest relay.Filter) error {
	alias, err := k.alias(newest.Alias)
	if err != nil {
		return err
	}
	feed := k.s.feed(alias.ID) // before the list: nothing is missed between
	if feed == nil {
		return relay.Errorf(relay.CodeStoreUnavailable, "the live feed cannot be had right now; try again")
	}
	page, err := k.list(newest)
	if err != nil {
		return err
	}
	log := newFollower(func(id int64) bool { return id == alias.ID })
	out := newOutput()
	defer k.s.print(out, k.missing)()
	summaries := record.PageOf(page, k.s.Site, time.Now()).Data
	slices.Reverse(summaries)
	for _, e := range summaries {
		out.line(k.summary(e))
		log.printed[printedKey{e.ID, e.AttemptCount}] = hasEnded(e.State) // not printed again
	}
	for { // until somebody leaves, or may not look any more
		select {
		case items, ok := <-feed:
			if !ok && k.s.Ctx.Err() == nil {
				return k.whyFeedEnded(alias.ID)
			}
			k.more(out, log, items, &newest)
		case key := <-k.s.Keys:
			if key == "q" {
				return nil
			}
		case <-k.s.Ctx.Done():
			return nil
		}
	}
}

// whyFeedEnded tells what ended the live feed of an alias that its viewer did not.
func (k *call) whyFeedEnded(alias int64) error {
	if k.s.Session.Stopping() {
		return relay.Errorf(relay.CodeStopping, "%s", StoppingText)
	}
	aliases, err := k.s.Accounts.Aliases(k.s.Ctx, k.s.Who)
	switch {
	case err != nil:
		return err
	case !slices.ContainsFunc(aliases, func(a relay.Alias) bool { return a.ID == alias }):
		return relay.Errorf(relay.CodeNotFound, "the live feed has ended: the alias was removed, or you may not use it any more")
	}
	return relay.Errorf(relay.CodeStoreUnavailable, "the live feed has ended, because the store did not answer; run the command again")
}

// summary is one line of a list that is followed.
func (k *call) summary(e record.Summary) string {
	if !k.json {
		return k.s.Screen.line(record.EventLine(&e))
	}
	line, err := record.MarshalSafe(e)
	if err != nil {
		return "{}"
	}
	return line
}

// missing says within the output that lines are not there.
func (k *call) missing(n int) string {
	if k.json {
		return fmt.Sprintf(`{"dropped":%d}`, n)
	}
	return linesDropped(n)
}

// more prints what has happened, and that something is missing: with --json as a resync.
func (k *call) more(out *output, log *follower, items []relay.FeedItem, f *relay.Filter) {
	ended, missed := log.take(items)
	if k.json {
		if missed {
			out.line(`{"resync":true}`)
		}
		for _, item := range items {
			var e record.Summary
			if item.Name == "event" && log.wants(item.Alias) && json.Unmarshal(item.Data, &e) == nil && k.fits(f, &e) {
				out.line(record.SafeJSON(item.Data))
			}
		}
		return
	}
	if missed {
		out.line(requestsMissed)
	}
	for _, m := range ended {
		if k.fits(f, m.Event) {
			out.line(k.s.Screen.line(record.AttemptLine(m.Event, m.Attempt)))
		}
	}
}

// alias finds an alias that the account may see.
func (k *call) alias(label string) (relay.Alias, error) {
	aliases, err := k.s.Accounts.Aliases(k.s.Ctx, k.s.Who)
	if err != nil {
		return relay.Alias{}, err
	}
	for _, a := range aliases {
		if a.Name == label {
			return a, nil
		}
	}
	return relay.Alias{}, relay.ErrNotFound
}

func (k *call) show() error {
	most := showBody
	if k.json {
		most = record.MaxBody
	}
	e, err := k.event(most)
	if err != nil {
		return err
	}
	form := record.Of(e, k.s.Site, time.Now())
	return k.print(form, func() string { return record.EventText(form) })
}

// export prints an event in another form, as it belongs into a file. With --json it
// stands in one object: a form that is JSON as it is, another one as its text.
func (k *call) export() error {
	format := cmp.Or(k.flags["format"], "curl")
	if !slices.Contains(record.ExportFormats, format) {
		return usage("--format is one of " + strings.Join(record.ExportFormats, ", "))
	}
	e, err := k.event(record.MaxBody)
	if err != nil {
		return err
	}
	id := e.ID.String()
	out, err := record.Export(e, format, k.s.Site, k.s.Version, time.Now())
	if err != nil {
		return err
	}
	isJSON := format == "har" || format == "json"
	if k.json {
		if isJSON {
			return k.print(json.RawMessage(out.Body), nil)
		}
		return k.print(struct {
			Format string `json:"format"`
			ID     string `json:"id"`
			Name   string `json:"name"`
			Text   string `json:"text"`
		}{format, id, out.Name, string(out.Body)}, nil)
	}
	text := string(out.Body)
	if isJSON {
		text = record.SafeJSON(out.Body)
	}
	if file := id + "-request.body"; format == "curl" && strings.Contains(text, "@"+file) {
		k.talk("the body is too large for a command line; save " +
			k.s.Site.URL("/api/v1/events/"+id+"/request.body") + " as " + file)
	}
	_, err = io.WriteString(k.s.Stdout, text)
	return err
}

// waitTime is how long the command wait waits unless it is told otherwise, maxWaitTime
// the longest.
const waitTime, maxWaitTime = 30 * time.Second, time.Hour

// wait shows the first event that comes to an alias from now on and matches, once
// it has ended. An event that is still under way when time is up is shown as it is.
func (k *call) wait() error {
	label, err := k.label()
	if err != nil {
		return err
	}
	timeout := waitTime
	if text, given := k.flags["timeout"]; given {
		if timeout, err = relay.ParseDuration(text); err != nil || timeout <= 0 || timeout > maxWaitTime {
			return usage("--timeout takes a duration such as 30s, at most 1h")
		}
	}
	f, err := k.filter(label)
	if err != nil {
		return err
	}
	if now := time.Now().Truncate(time.Millisecond); f.Since.Before(now) { // ids have milliseconds
		f.Since = now
	}
	f.Limit = 200
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

// replayWait is how long the command replay waits for the end of its attempt.
const replayWait = 30 * time.Second

// replay sends an event again. It fails where the attempt has.
func (k *call) replay() error {
	e, err := k.event(0)
	if err == nil && e.Blocker == "" { // else the replay itself has the words for it
		err = k.s.Limits.Replay(k.s.Who)
	}
	if err != nil {
		return err
	}
	k.interruptible()
	e, n, err := k.s.Replay.Replay(k.s.Ctx, k.s.Who, e.ID, replayWait)
	if err != nil {
		return err
	}
	form := record.Of(e, k.s.Site, time.Now())
	if e.State == relay.StateFailed || e.State == relay.StateInterrupted {
		k.code = ExitFailure
	}
	return k.print(form, func() string {
		i := slices.IndexFunc(form.Attempts, func(a record.Attempt) bool { return a.Number == n })
		if i < 0 {
			return fmt.Sprintf("%s replayed: %s\n", form.ID, form.State)
		}
		return k.replayText(e.ID, form, form.Attempts[i])
	})
}

func (k *call) replayText(id relay.ID, e *record.Event, a record.Attempt) string {
	var b strings.Builder
	switch a.State {
	case relay.StateQueued:
		fmt.Fprintf(&b, "%s is queued; it goes out when %s is online\n", e.ID, e.Alias)
	case relay.StateDelivering:
		fmt.Fprintf(&b, "%s is still being delivered (attempt %d); see it with: show %s\n", e.ID, a.Number, e.ID)
	default:
		b.WriteString(k.s.Screen.line(record.AttemptLine(&e.Summary, &a)) + "\n")
		b.WriteString(k.compare(id, e, a.Number))
	}
	for _, w := range e.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", record.SafeText(w.Message))
	}
	return b.String()
}

// compare returns a line that says what an attempt answered compared with the one before
// it that got a response; "" where either has none.
func (k *call) compare(id relay.ID, e *record.Event, number int) string {
	for _, a := range slices.Backward(e.Attempts) {
		if a.Number >= number || a.Response == nil {
			continue
		}
		left, right := relay.AttemptRef{Event: id, N: a.Number}, relay.AttemptRef{Event: id, N: number}
		d, err := record.ReadDiff(k.s.Ctx, k.s.Read, k.s.Who, left, right, record.DiffResponse)
		if err != nil {
			return ""
		}
		return fmt.Sprintf("compared with attempt %d: %s\n", a.Number, d.Headline)
	}
	return ""
}

func (k *call) replayQueued() error {
	label, err := k.label()
	if err != nil {
		return err
	}
	if _, err := k.alias(label); err != nil { // before it is counted
		return err
	}
	if err := k.s.Limits.Replay(k.s.Who); err != nil {
		return err
	}
	n, err := k.s.Replay.Release(k.s.Ctx, k.s.Who, label)
	if err != nil {
		return err
	}
	return k.print(record.Released{Alias: label, Released: n}, func() string {
		return fmt.Sprintf("%d released of %s\n", n, label)
	})
}
