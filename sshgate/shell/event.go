package shell

import (
	"encoding/json"
	"fmt"
	"slices"
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
	n, err := k.number()
	if err != nil {
		return err
	}
	newest, err := k.filter(label)
	if err != nil {
		return err
	}
	newest.Limit = n
	if _, follow := k.flags["f"]; follow {
		return k.followEvents(newest)
	}
	page, err := k.s.Read.Events(k.s.Ctx, k.s.Who, newest)
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
	page, err := k.s.Read.Events(k.s.Ctx, k.s.Who, newest)
	if err != nil {
		return err
	}
	log := newFollower(k.s)
	log.only = alias.ID
	out := newOutputQueue()
	defer k.s.print(out, k.missing)()
	summaries := record.PageOf(page, k.s.Site, time.Now()).Data
	slices.Reverse(summaries)
	for _, e := range summaries {
		out.put(k.summary(e))
		log.listed(&e)
	}
	return k.followFeed(out, log, feed, &newest)
}

// followFeed prints what ends until somebody leaves, or may not look any more.
func (k *call) followFeed(out *outputQueue, log *follower, feed <-chan []relay.FeedItem, f *relay.Filter) error {
	for {
		select {
		case items, ok := <-feed:
			if !ok && k.s.Ctx.Err() == nil {
				return k.whyFeedEnded(log.only)
			}
			k.more(out, log, items, f)
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
	return fmt.Sprintf("… %d lines dropped", n)
}

func (k *call) more(out *outputQueue, log *follower, items []relay.FeedItem, f *relay.Filter) {
	if k.json {
		for _, item := range items {
			var e record.Summary
			if item.Name == "event" && item.Alias == log.only && json.Unmarshal(item.Data, &e) == nil && k.fits(f, &e) {
				out.put(record.SafeJSON(item.Data))
			}
		}
		return
	}
	requests, missed := log.take(items)
	if missed {
		out.put("… some requests are not shown")
	}
	for _, r := range requests {
		if k.fits(f, &r.event) {
			out.put(k.s.Screen.line(record.AttemptLine(&r.event, &r.attempt)))
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
	id, err := k.id()
	if err != nil {
		return err
	}
	most := showBody
	if k.json {
		most = record.MaxBody
	}
	e, err := k.s.Read.Event(k.s.Ctx, k.s.Who, id, most)
	if err != nil {
		return err
	}
	form := record.Of(e, k.s.Site, time.Now())
	return k.print(form, func() string { return record.EventText(form) })
}
