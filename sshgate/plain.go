package sshgate

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"relay"
	"relay/record"
)

// plainView prints a live session for people: the five lines of relay up, then a line
// for each request. Its methods are called by one goroutine.
type plainView struct {
	s     *session
	out   *outputQueue
	shown map[string]bool
}

func (v *plainView) dropped(n int) string { return fmt.Sprintf("… %d lines dropped", n) }
func (v *plainView) missed()              { v.out.put("… some requests are not shown") }

// begin says what is online and what was refused; false ends the session with exit.
func (v *plainView) begin(online, refused []notice) (exit int, ok bool) {
	if len(online)+len(refused) == 0 {
		if v.s.ctx.Err() != nil {
			return v.s.exit(exitFailure), false
		}
		v.put(v.s.c.helpText())
		return exitFailure, false
	}
	v.out.put("Connected to relay " + v.s.c.srv.o.Site.Base.Hostname())
	for _, n := range online {
		v.online(n)
	}
	for _, n := range refused {
		v.tell(n)
	}
	if len(online) == 0 {
		return refusedExit(refused), false
	}
	v.out.put("Press Ctrl+C to disconnect")
	for _, n := range online {
		v.queued(n)
	}
	return 0, true
}

// refusedExit is the exit code of a session none of whose forwards was accepted.
func refusedExit(refused []notice) int {
	for _, n := range refused {
		if n.code != "not-found" {
			return exitFailure
		}
	}
	return exitTaken
}

func (v *plainView) put(text string) {
	for line := range strings.Lines(text) {
		v.out.put(strings.TrimSuffix(line, "\n"))
	}
}

// online prints an alias once.
func (v *plainView) online(n notice) bool {
	if v.shown[n.alias] {
		return false
	}
	v.shown[n.alias] = true
	target := n.target
	if target == "" {
		target = "as given in your -R"
	}
	v.out.put("Alias " + n.alias + " is online")
	v.out.put("Public URL    " + v.s.c.srv.o.Site.AliasURL(n.alias))
	v.out.put("Local target  " + target)
	return true
}

func (v *plainView) queued(n notice) {
	if st, ok := v.s.status(n.of); ok && st.QueuedEvents > 0 {
		v.out.put(fmt.Sprintf("%s; press R or run: relay replay-queued %s", queuedEvents(st.QueuedEvents), n.alias))
	}
}

func (v *plainView) tell(n notice) {
	switch n.kind {
	case relay.NoticeOnline:
		if v.online(n) {
			v.queued(n)
		}
	case relay.NoticeRefused:
		v.out.put(fmt.Sprintf("Alias %s was refused: %s", textOr(n.alias, "(none)"), n.message))
	case relay.NoticeOffline:
		delete(v.shown, n.alias)
		v.out.put("Alias " + n.alias + " is offline: its forward was canceled")
	case relay.NoticeSuperseded:
		v.out.put("Alias " + n.alias + ": " + n.message)
	case relay.NoticeRevoked:
		delete(v.shown, n.alias)
		v.out.put(n.message)
	case relay.NoticeStopping, relay.NoticeMoving:
		v.out.put(n.message)
	}
}

func (v *plainView) request(r endedAttempt) {
	v.out.put(v.s.screen.line(record.AttemptLine(&r.event, &r.attempt)))
	v.warnHostRefused(&r)
}

// maxHostLooks is how many answers of a connection are read to find out whether the local
// server refuses the Host header; hostLookBytes is how much of each.
const maxHostLooks, hostLookBytes = 20, 16 << 10

// warnHostRefused says once per connection that the local server refuses the Host header.
// The live feed has no bodies, so an answer that may say so is read from the store.
func (v *plainView) warnHostRefused(r *endedAttempt) {
	c, answer := v.s.c, r.attempt.Response
	if answer == nil || answer.Status != http.StatusForbidden && answer.Status != http.StatusBadRequest || c.hostLooks.Add(1) > maxHostLooks {
		return
	}
	id, err := relay.ParseID(r.event.ID)
	if err != nil {
		return
	}
	ctx, cancel := c.ask()
	defer cancel()
	e, err := c.srv.o.Read.Event(ctx, c.who, id, hostLookBytes)
	if err != nil {
		return
	}
	for _, w := range record.Of(e, c.srv.o.Site, time.Now()).Warnings {
		if w.Code == record.WarningHostRefused {
			c.hostLooks.Store(maxHostLooks)
			v.out.put("warning: " + w.Message)
		}
	}
}

func (v *plainView) released(alias string, n int, err error) {
	if err != nil {
		v.out.put("replay-queued " + alias + ": " + problemText(err))
		return
	}
	v.out.put(fmt.Sprintf("%d released of %s", n, alias))
}
