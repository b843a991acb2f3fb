package sshgate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"relay"
	"relay/record"
)

// replayWait is how long the command replay waits for the end of its attempt.
const replayWait = 30 * time.Second

// replay sends an event again. It fails where the attempt has.
func (k *call) replay() error {
	id, err := k.id()
	if err != nil {
		return err
	}
	if err := k.countReplay(id); err != nil {
		return err
	}
	k.interruptible()
	e, n, err := k.srv.o.Replay.Replay(k.ctx, k.who, id, replayWait)
	if err != nil {
		return err
	}
	form := record.Of(e, k.srv.o.Site, time.Now())
	if e.State == relay.StateFailed || e.State == relay.StateInterrupted {
		k.code = exitFailure
	}
	return k.print(form, func() string {
		i := slices.IndexFunc(form.Attempts, func(a record.Attempt) bool { return a.Number == n })
		if i < 0 {
			return fmt.Sprintf("%s replayed: %s\n", form.ID, form.State)
		}
		return k.replayText(form, form.Attempts[i])
	})
}

// countReplay counts a replay against the limit, unless it would be refused anyway.
func (k *call) countReplay(id relay.ID) error {
	e, err := k.srv.o.Read.Event(k.ctx, k.who, id, 0)
	if err != nil || e.Blocker != "" {
		return err // the replay itself has the words for it
	}
	return k.srv.o.Limits.Replay(k.who)
}

func (k *call) replayText(e *record.Event, a record.Attempt) string {
	var b strings.Builder
	switch a.State {
	case relay.StateQueued:
		fmt.Fprintf(&b, "%s is queued; it goes out when %s is online\n", e.ID, e.Alias)
	case relay.StateDelivering:
		fmt.Fprintf(&b, "%s is still being delivered (attempt %d); see it with: show %s\n", e.ID, a.Number, e.ID)
	default:
		b.WriteString(k.s.screen.row(ofAttempt(endedAttempt{event: e.Summary, attempt: a})) + "\n")
		if before := attemptBefore(e.Attempts, a.Number); before != nil {
			b.WriteString(difference(before, &a))
		}
	}
	for _, w := range e.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", record.SafeText(w.Message))
	}
	return b.String()
}

// attemptBefore is the last attempt before number that has ended; nil without one.
func attemptBefore(attempts []record.Attempt, number int) *record.Attempt {
	for i := len(attempts) - 1; i >= 0; i-- {
		a := &attempts[i]
		switch a.State {
		case relay.StateDelivered, relay.StateFailed, relay.StateInterrupted:
			if a.Number < number {
				return a
			}
		}
	}
	return nil
}

// difference says in lines what another attempt gave.
func difference(before, after *record.Attempt) string {
	var b strings.Builder
	fmt.Fprintf(&b, "compared with attempt %d:\n", before.Number)
	was, is := outcome(before), outcome(after)
	if was == is {
		fmt.Fprintf(&b, "  status   %s, as before\n", is)
	} else {
		fmt.Fprintf(&b, "  status   %s, was %s\n", is, was)
	}
	if before.LatencyMs != nil && after.LatencyMs != nil {
		fmt.Fprintf(&b, "  latency  %.1f ms, was %.1f ms (%+.1f)\n", *after.LatencyMs, *before.LatencyMs, *after.LatencyMs-*before.LatencyMs)
	}
	if r, old := after.Response, before.Response; r != nil && old != nil {
		if names := changedHeaders(old.Headers, r.Headers); len(names) > 0 {
			fmt.Fprintf(&b, "  headers  changed: %s\n", strings.Join(names, ", "))
		}
		fmt.Fprintf(&b, "  body     %s\n", bodyChange(old.Body, r.Body))
	}
	return b.String()
}

// outcome is status or error of an attempt.
func outcome(a *record.Attempt) string {
	switch {
	case a.Response != nil:
		return fmt.Sprint(a.Response.Status)
	case a.Error != nil:
		return record.SafeTextMax(a.Error.Code, 64)
	}
	return record.SafeText(a.State)
}

func bodyChange(was, is *record.Body) string {
	size := func(b *record.Body) (int64, string) {
		if b == nil {
			return 0, ""
		}
		return b.Size, b.SHA256
	}
	oldSize, oldSum := size(was)
	newSize, newSum := size(is)
	switch {
	case oldSize == newSize && (oldSum == newSum || newSize == 0):
		return fmt.Sprintf("the same %d bytes", newSize)
	case oldSize == newSize:
		return fmt.Sprintf("changed, %d bytes as before", newSize)
	}
	return fmt.Sprintf("changed: %d bytes, was %d", newSize, oldSize)
}

// maxChanged is how many changed headers are named.
const maxChanged = 8

// changedHeaders names the response headers that differ, but for the noise.
func changedHeaders(was, is []record.Header) []string {
	lines, ok := record.CompareHeaders(was, is)
	if !ok {
		return []string{"too many to compare"}
	}
	var names []string
	for _, l := range lines {
		if l.Op != record.HeaderSame && !l.Noise {
			names = append(names, lower(l.Name))
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if more := len(names) - maxChanged; more > 0 {
		names = append(names[:maxChanged], fmt.Sprintf("and %d more", more))
	}
	for i := range names {
		names[i] = record.SafeTextMax(names[i], 64)
	}
	return names
}

func (k *call) replayQueued() error {
	label, err := k.label()
	if err != nil {
		return err
	}
	if _, err := k.alias(label); err != nil { // before it is counted
		return err
	}
	if err := k.srv.o.Limits.Replay(k.who); err != nil {
		return err
	}
	n, err := k.srv.o.Replay.Release(k.ctx, k.who, label)
	if err != nil {
		return err
	}
	return k.print(record.Released{Alias: label, Released: n}, func() string {
		return fmt.Sprintf("%d released of %s\n", n, label)
	})
}
