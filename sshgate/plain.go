package sshgate

import (
	"fmt"
	"strings"
)

// plainView is a live session for people: the five lines of relay up, then a line
// for each request.
type plainView struct {
	s     *session
	out   *outputQueue
	shown map[string]bool
}

func (v *plainView) output(out *outputQueue) { v.out = out }
func (v *plainView) patient() bool           { return true }
func (v *plainView) dropped(n int) string    { return fmt.Sprintf("… %d lines dropped", n) }
func (v *plainView) missed()                 { v.out.put("… some requests are not shown") }

func (v *plainView) begin(online, refused []notice) (int, bool) {
	v.shown = map[string]bool{}
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
	case noticeOnline:
		if v.online(n) {
			v.queued(n)
		}
	case noticeRefused:
		v.out.put(fmt.Sprintf("Alias %s was refused: %s", textOr(n.alias, "(none)"), n.message))
	case noticeOffline:
		delete(v.shown, n.alias)
		v.out.put("Alias " + n.alias + " is offline: its forward was canceled")
	case noticeSuperseded:
		v.out.put("Alias " + n.alias + ": " + n.message)
	case noticeRevoked:
		delete(v.shown, n.alias)
		v.out.put(n.message)
	case noticeStopping:
		v.out.put(n.message)
	}
}

func (v *plainView) request(r endedAttempt) { v.out.put(v.s.screen.row(ofAttempt(r))) }

func (v *plainView) released(alias string, n int, err error) {
	if err != nil {
		v.out.put("replay-queued " + alias + ": " + problemText(err))
		return
	}
	v.out.put(fmt.Sprintf("%d released of %s", n, alias))
}
