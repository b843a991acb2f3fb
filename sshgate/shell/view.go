package shell

import (
	"cmp"
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
	s     *Shell
	out   *outputQueue
	shown map[string]bool
	// hostChecks counts the answers that were searched for a refused Host header.
	hostChecks int
}

func (v *plainView) dropped(n int) string { return fmt.Sprintf("… %d lines dropped", n) }
func (v *plainView) missed()              { v.out.put("… some requests are not shown") }

// begin says what is online and what was refused; false ends the session with exit.
func (v *plainView) begin(online, refused []Notice) (exit int, ok bool) {
	if len(online)+len(refused) == 0 {
		if v.s.Ctx.Err() != nil {
			return v.s.Session.Exit(ExitFailure), false
		}
		v.put(v.s.helpText())
		return ExitFailure, false
	}
	v.out.put("Connected to relay " + v.s.Site.Base.Hostname())
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
func refusedExit(refused []Notice) int {
	for _, n := range refused {
		if n.Code != relay.CodeNotFound {
			return ExitFailure
		}
	}
	return ExitTaken
}

func (v *plainView) put(text string) {
	for line := range strings.Lines(text) {
		v.out.put(strings.TrimSuffix(line, "\n"))
	}
}

// online prints an alias once.
func (v *plainView) online(n Notice) bool {
	if v.shown[n.Alias] {
		return false
	}
	v.shown[n.Alias] = true
	target := n.Target
	if target == "" {
		target = "as given in your -R"
	}
	v.out.put("Alias " + n.Alias + " is online")
	v.out.put("Public URL    " + v.s.Site.AliasURL(n.Alias))
	v.out.put("Local target  " + target)
	return true
}

func (v *plainView) queued(n Notice) {
	if st, ok := v.s.status(n.Of); ok && st.QueuedEvents > 0 {
		v.out.put(fmt.Sprintf("%s; press R or run: relay replay-queued %s", QueuedEvents(st.QueuedEvents), n.Alias))
	}
}

// tellAll prints the notices that wait.
func (v *plainView) tellAll() {
	for _, n := range v.s.Notices.all() {
		v.tell(n)
	}
}

func (v *plainView) tell(n Notice) {
	switch n.Kind {
	case relay.NoticeOnline:
		if v.online(n) {
			v.queued(n)
		}
	case relay.NoticeRefused:
		v.out.put(fmt.Sprintf("Alias %s was refused: %s", cmp.Or(n.Alias, "(none)"), n.Message))
	case relay.NoticeOffline:
		delete(v.shown, n.Alias)
		v.out.put("Alias " + n.Alias + " is offline: its forward was canceled")
	case relay.NoticeSuperseded:
		v.out.put("Alias " + n.Alias + ": " + n.Message)
	case relay.NoticeRevoked:
		delete(v.shown, n.Alias)
		v.out.put(n.Message)
	case relay.NoticeStopping, relay.NoticeMoving:
		v.out.put(n.Message)
	}
}

func (v *plainView) request(r endedAttempt) {
	v.out.put(v.s.Screen.line(record.AttemptLine(&r.event, &r.attempt)))
	v.warnHostRefused(&r)
}

// maxHostChecks is how many answers of a session are read to find out whether the local
// server refuses the Host header; hostCheckBytes is how much of each.
const maxHostChecks, hostCheckBytes = 20, 16 << 10

// warnHostRefused says once per session that the local server refuses the Host header.
// The live feed has no bodies, so an answer that may say so is read from the store.
func (v *plainView) warnHostRefused(r *endedAttempt) {
	answer := r.attempt.Response
	if answer == nil || answer.Status != http.StatusForbidden && answer.Status != http.StatusBadRequest || v.hostChecks >= maxHostChecks {
		return
	}
	v.hostChecks++
	id, err := relay.ParseID(r.event.ID)
	if err != nil {
		return
	}
	ctx, cancel := v.s.ask()
	defer cancel()
	e, err := v.s.Read.Event(ctx, v.s.Who, id, hostCheckBytes)
	if err != nil {
		return
	}
	for _, w := range record.Of(e, v.s.Site, time.Now()).Warnings {
		if w.Code == record.WarningHostRefused {
			v.hostChecks = maxHostChecks
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
