package shell

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
	e, n, err := k.s.Replay.Replay(k.s.Ctx, k.s.Who, id, replayWait)
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
		return k.replayText(form, form.Attempts[i])
	})
}

// countReplay counts a replay against the limit, unless it would be refused anyway.
func (k *call) countReplay(id relay.ID) error {
	e, err := k.s.Read.Event(k.s.Ctx, k.s.Who, id, 0)
	if err != nil || e.Blocker != "" {
		return err // the replay itself has the words for it
	}
	return k.s.Limits.Replay(k.s.Who)
}

func (k *call) replayText(e *record.Event, a record.Attempt) string {
	var b strings.Builder
	switch a.State {
	case relay.StateQueued:
		fmt.Fprintf(&b, "%s is queued; it goes out when %s is online\n", e.ID, e.Alias)
	case relay.StateDelivering:
		fmt.Fprintf(&b, "%s is still being delivered (attempt %d); see it with: show %s\n", e.ID, a.Number, e.ID)
	default:
		b.WriteString(k.s.Screen.line(record.AttemptLine(&e.Summary, &a)) + "\n")
		b.WriteString(k.compare(e, a.Number))
	}
	for _, w := range e.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", record.SafeText(w.Message))
	}
	return b.String()
}

// compare returns a line that says what an attempt answered compared with the one before
// it that got a response; "" where either has none.
func (k *call) compare(e *record.Event, number int) string {
	id, err := relay.ParseID(e.ID)
	if err != nil {
		return ""
	}
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
