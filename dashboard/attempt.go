package dashboard

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"relay"
	"relay/record"
	"relay/wire"
)

// attemptView is one column: the original or a replay.
type attemptView struct {
	N                   int
	Title, State, Actor string
	Asked               time.Time
	Queue, Error        string
	pill
	Latency, Connection   string
	Timing                *timingView
	Fidelity              string
	Changed               []string // lines that differ from the original
	Same                  bool     // byte for byte
	Response              *messageView
	RawRequest, RawAnswer string // addresses, "" = there is none
}

// stripView is an attempt in the strip from which the second column is chosen.
type stripView struct {
	N            int
	Title, State string
	pill
	Total  string
	Width  string // of its time bar, in a box of 100
	Link   string
	Column bool // shown as a column
}

// timingView is the bar of one attempt, drawn in a box of 1000 by 10.
type timingView struct {
	Phases []phaseView
	Total  string
	Label  string // all of it in words
}

type phaseView struct {
	Name, Text string
	X, Width   string
}

// addAttempts adds the columns: the original and the newest attempt, or the one that the
// address chooses, or all.
func (p *pages) addAttempts(r *http.Request, who relay.Actor, v *eventView, e *relay.Event) {
	list, q := e.Attempts, r.URL.Query()
	left, right := chosenAttempts(q, list)
	all := q.Get("attempts") == "all"
	longest := longestOf(list)
	for i := range list {
		a := &list[i]
		column := all || i == left || i == right
		if column {
			v.Attempts = append(v.Attempts, attemptOf(r, e, a, longest, v.auto))
		}
		if len(list) <= 2 || all {
			continue
		}
		if i > 0 && i <= len(list)-shownStrip && !column {
			v.HiddenCount++
			continue
		}
		v.Strip = append(v.Strip, stripOf(a, q, v.ID, longest, column))
	}
	q.Set("attempts", "all")
	v.AllAttempts = withQuery(eventPath(v.ID), q)
	for i := range list {
		if a := &list[i]; a.State == relay.StateQueued {
			v.Queued = "Attempt " + strconv.Itoa(a.N) + " " + queueText(a, v.auto)
			break
		}
	}
	if left < right && list[left].HasResponse && list[right].HasResponse && !all {
		v.Diff = p.compareAttempts(r.Context(), who, e.ID, list[left].N, list[right].N)
	}
}

// chosenAttempts are the indices of the two columns: diff=2,5 or attempt=5 in the address
// chooses them.
func chosenAttempts(q url.Values, list []relay.Attempt) (left, right int) {
	right = len(list) - 1
	one, two, _ := strings.Cut(q.Get("diff"), ",")
	if two == "" {
		two = q.Get("attempt")
	}
	if n, err := strconv.Atoi(two); err == nil && n >= 1 && n <= len(list) {
		right = n - 1
	}
	if n, err := strconv.Atoi(one); err == nil && n >= 1 && n <= len(list) {
		left = n - 1
	}
	return min(left, right), max(left, right)
}

func attemptTitle(a *relay.Attempt) string {
	if a.Kind == relay.KindReplay {
		return "Replay " + strconv.Itoa(a.N-1)
	}
	return "Original"
}

func stripOf(a *relay.Attempt, q url.Values, id string, longest float64, column bool) stripView {
	v := stripView{N: a.N, Title: attemptTitle(a), State: a.State, pill: attemptPill(a), Width: "0", Column: column}
	if t := record.OfAttempt(a, false).Timing; t != nil && longest > 0 {
		v.Total, v.Width = millisText(t.Total), coordinate(100*t.Total/longest)
	}
	q = maps.Clone(q)
	q.Del("diff")
	q.Set("attempt", strconv.Itoa(a.N))
	v.Link = withQuery(eventPath(id), q) + "#attempts"
	return v
}

// queueText says what a queued attempt waits for; auto is autoDeliver of its alias.
func queueText(a *relay.Attempt, auto bool) string {
	s := "queued until the tunnel is online"
	if a.Kind == relay.KindOriginal && !a.Released && !auto {
		s = "queued until it is released by “Replay all queued” or replayed"
	}
	if a.Position > 0 {
		s += ", position " + strconv.Itoa(a.Position)
	}
	return s
}

func attemptOf(r *http.Request, e *relay.Event, a *relay.Attempt, longest float64, auto bool) attemptView {
	out := record.OfAttempt(a, false)
	v := attemptView{
		N: a.N, Title: attemptTitle(a), State: a.State, Actor: record.SafeTextMax(a.Actor, 120),
		Asked: a.ReceivedAt,
		pill:  attemptPill(a), Connection: a.Connection,
	}
	if a.Error != nil {
		v.Error = a.Error.Code + ": " + record.SafeTextMax(a.Error.Message, 500)
	}
	if a.State == relay.StateQueued {
		v.Queue = queueText(a, auto)
	}
	if out.Timing != nil {
		v.Timing, v.Latency = timingOf(out.Timing, longest), millisText(*out.LatencyMs)
	}
	v.setFidelity(e, a)
	if a.HasResponse {
		v.Response = responseView(r, e, a)
		v.RawAnswer = attemptPath(e.ID.String(), a.N, "response.raw")
	}
	return v
}

func responseView(r *http.Request, e *relay.Event, a *relay.Attempt) *messageView {
	n := strconv.Itoa(a.N)
	m := &messageView{
		Start: startLine(a.Response.Head), Headers: pairsOf(wire.Fields, a.Response.Head),
		Trailers: pairsOf(wire.Trailers, a.Response.Lines),
	}
	for _, head := range a.Interim {
		m.Interim = append(m.Interim, messageView{Start: startLine(head), Headers: pairsOf(wire.Fields, head)})
	}
	switch a.ResponseState {
	case relay.ResponseTruncated:
		m.State = "The local server closed the connection before the response was complete."
	case relay.ResponseCut:
		m.State = "The relay stopped reading this response."
	case relay.ResponseUpgraded:
		m.State = "The connection was upgraded; the bytes after the upgrade are not recorded."
	}
	m.Body = showBody(bodySource{
		id: "response-" + n, what: "Response body of attempt " + n, body: &a.Response.Body, head: a.Response.Head,
		download: attemptPath(e.ID.String(), a.N, "response.body"), image: eventPath(e.ID.String(), "image", n), whole: eventPath(e.ID.String(), "json", n),
		param: "response", query: r.URL.Query(), path: eventPath(e.ID.String()),
	})
	return m
}

// setFidelity tells whether the bytes sent are those of the original request.
func (v *attemptView) setFidelity(e *relay.Event, a *relay.Attempt) {
	m := &e.Request
	if a.Identical == nil {
		v.Fidelity = unsentText(e, a)
		return
	}
	head := m.Head
	if len(a.SentHead) > 0 {
		head = a.SentHead
	}
	size := int64(len(head)+len(m.Lines)) + m.Body.Size
	v.RawRequest = attemptPath(e.ID.String(), a.N, "request.raw")
	v.Same = *a.Identical
	if v.Same {
		v.Fidelity = fmt.Sprintf("Identical to the original request: %d bytes, body SHA-256 %s", size, shortHash(&m.Body))
		return
	}
	v.Fidelity = fmt.Sprintf("Differs from the original request: %d bytes, body SHA-256 %s", size, shortHash(&m.Body))
	v.Changed = changedLines(m.Head, head)
}

// unsentText says what is known of an attempt that cannot be compared with the original.
func unsentText(e *relay.Event, a *relay.Attempt) string {
	switch {
	case a.State == relay.StateDelivering:
		return "Being delivered."
	case a.State == relay.StateInterrupted:
		return "It is not known how much of the request was sent."
	case !a.StartedAt.IsZero() && e.Request.Body.State != relay.BodyComplete:
		return "The request may not have been sent completely."
	default:
		return "Nothing was sent."
	}
}

func shortHash(b *relay.Body) string { return hex.EncodeToString(b.SHA256[:6]) + "…" }

// changedLines tells which lines of a head were taken away or added.
func changedLines(was, is []byte) []string {
	const most = 8
	var list []string
	tell := func(sign string, from, without []byte) {
		have := map[string]int{}
		for line := range bytes.Lines(without) {
			have[string(line)]++
		}
		for line := range bytes.Lines(from) {
			if have[string(line)]--; have[string(line)] < 0 && len(list) < most {
				list = append(list, sign+" "+record.SafeTextMax(string(bytes.TrimRight(line, "\r\n")), 300))
			}
		}
	}
	tell("−", was, is)
	tell("+", is, was)
	return list
}

// longestOf is the longest total of some attempts, in ms: bars side by side have
// one scale.
func longestOf(list []relay.Attempt) float64 {
	longest := 0.0
	for i := range list {
		if t := record.OfAttempt(&list[i], false).Timing; t != nil {
			longest = max(longest, t.Total)
		}
	}
	return longest
}

func timingOf(t *record.Timing, longest float64) *timingView {
	v := &timingView{Total: millisText(t.Total)}
	scale := 0.0
	if longest > 0 {
		scale = 1000 / longest
	}
	at := 0.0
	for _, phase := range []struct {
		name string
		ms   float64
	}{{"blocked", t.Blocked}, {"connect", t.Connect}, {"send", t.Send}, {"wait", t.Wait}, {"receive", t.Receive}} {
		v.Phases = append(v.Phases, phaseView{
			Name: phase.name, Text: millisText(phase.ms),
			X: strconv.FormatFloat(at*scale, 'f', 1, 64), Width: strconv.FormatFloat(phase.ms*scale, 'f', 1, 64),
		})
		v.Label += phase.name + " " + millisText(phase.ms) + ", "
		at += phase.ms
	}
	v.Label += "total " + v.Total
	return v
}
