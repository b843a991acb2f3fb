package event

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"relay"
	"relay/dashboard/body"
	"relay/dashboard/page"
	"relay/record"
	"relay/wire"
)

// attemptView is the original delivery or a replay: as a full column, or only as an entry in the
// timeline from which the user chooses columns.
type attemptView struct {
	N                   int
	Title, State, Actor string
	Column              bool
	Link                string // address that shows the attempt as a column
	Asked               time.Time
	Queue, Error        string
	page.Pill
	Latency, Connection string
	Timing              *record.Timing // nil = no times are known
	Phases              []phaseView    // the parts of Timing, in their order
	TimingText          string         // Timing in words

	// The following fields are set only for columns.
	Fidelity              string
	CallerGone            bool
	Changed               []string // header lines in which the sent request differs from the original request
	Same                  bool     // the sent request is the same as the original request, byte for byte
	Response              *messageView
	RawRequest, RawAnswer string // addresses of the raw messages, "" = there is no such message
}

// allAttempts reports whether each attempt of the page is shown as a column.
func allAttempts(q url.Values) bool { return q.Get("attempts") == "all" }

// addAttempts adds the attempts of the page, and chooses the columns: attempt 1 and the newest attempt of the
// page, unless the address names others, or with attempts=all every attempt of the page. If two attempts are
// columns, it also compares their responses.
func (p pages) addAttempts(r *http.Request, who relay.Actor, v *eventView, e *relay.Event, most int) error {
	q := r.URL.Query()
	newest := e.Attempts
	read, err := p.readAttempts(r.Context(), who, e, q, most)
	if err != nil {
		return err
	}
	e.Attempts = read.list
	left, right := read.left, read.right
	all := allAttempts(q)
	v.Strip, v.Opened = e.AttemptCount > 2 && !all, opened(q, read)
	for i := range newest {
		if a := &newest[i]; a.State == relay.StateQueued {
			v.Queued = "Attempt " + strconv.Itoa(a.N) + " " + queueText(a, v.auto)
			break
		}
	}
	for i := range e.Attempts {
		a := &e.Attempts[i]
		shown := attemptOf(a, v.auto)
		if shown.Column = all || a.N == left || a.N == right; shown.Column {
			shown.addColumn(r, e, a)
		}
		if shown.Timing != nil {
			v.Longest = max(v.Longest, shown.Timing.Total)
		}
		chosen := maps.Clone(q)
		chosen.Del("diff")
		chosen.Set("attempt", strconv.Itoa(a.N))
		shown.Link = page.WithQuery(page.EventPath(v.ID), chosen) + "#attempts"
		v.Attempts = append(v.Attempts, shown)
	}
	v.linkAttempts(q, read.oldest)
	was, is := record.Compared{Event: e, N: left}, record.Compared{Event: e, N: right}
	if a, b := e.Attempt(left), e.Attempt(right); left == right || all || a == nil || b == nil || !a.HasResponse || !b.HasResponse {
		return nil
	}
	d, err := record.ReadDiff(r.Context(), p.Events, was, is, record.DiffResponse)
	if err != nil {
		p.Log.Warn("cannot compare attempts", "event", e.ID, "err", err)
		return nil
	}
	name := "Attempt " + strconv.Itoa(was.N)
	v.Diff = body.DiffOf(d, name+" and "+strconv.Itoa(is.N), [2]string{attemptTitle(e.Attempt(was.N)), attemptTitle(e.Attempt(is.N))})
	return nil
}

// opened returns the number of the attempt that is shown as chosen: the one in the query parameter attempt if
// it is the left of the two compared attempts, else the right one.
func opened(q url.Values, read attemptsPage) int {
	if n, err := strconv.Atoi(q.Get("attempt")); err == nil && n == read.left {
		return n
	}
	return read.right
}

// linkAttempts sets the addresses of other pages of attempts. oldest is the number of the oldest attempt of
// this page, apart from attempt 1.
func (v *eventView) linkAttempts(q url.Values, oldest int) {
	q = maps.Clone(q)
	if q.Has("before") {
		newest := maps.Clone(q)
		newest.Del("before")
		v.NewerReplays = page.WithQuery(page.EventPath(v.ID), newest) + "#attempts"
	}
	if oldest > 2 {
		older := maps.Clone(q)
		older.Set("before", strconv.Itoa(oldest))
		v.OlderReplays = page.WithQuery(page.EventPath(v.ID), older) + "#attempts"
	}
	q.Set("attempts", "all")
	v.AllAttempts = page.WithQuery(page.EventPath(v.ID), q)
}

// attemptsPage holds the attempts of a page, in order, and the numbers of the two that are compared.
type attemptsPage struct {
	list        []relay.Attempt
	left, right int
	oldest      int // number of the oldest attempt, besides the first one and those that the address chooses; 0 = none
}

// readAttempts returns the attempts of a page: those that were read with the event or, with before=N in the
// address, the first attempt and those before N. It adds the attempts that the address chooses by diff=2,5 or
// attempt=5.
func (p pages) readAttempts(ctx context.Context, who relay.Actor, e *relay.Event, q url.Values, most int) (read attemptsPage, err error) {
	list := slices.Clone(e.Attempts)
	if before, bad := strconv.Atoi(q.Get("before")); bad == nil && before > 2 && before <= e.AttemptCount {
		older, err := p.Events.Attempts(ctx, who, e.ID, relay.AttemptPage{Before: before, Limit: relay.ShownAttempts, MaxBody: most})
		if err != nil {
			return read, err
		}
		list = addMissing(slices.Clone(e.Attempts[:min(1, len(e.Attempts))]), older...)
	}
	if len(list) > 1 {
		read.oldest = list[1].N
	}
	left, right := 1, e.AttemptCount
	if len(list) > 0 {
		right = list[len(list)-1].N
	}
	one, two, _ := strings.Cut(q.Get("diff"), ",")
	if two == "" {
		two = q.Get("attempt")
	}
	if n, bad := strconv.Atoi(two); bad == nil && n >= 1 && n <= e.AttemptCount {
		right = n
	}
	if n, bad := strconv.Atoi(one); bad == nil && n >= 1 && n <= e.AttemptCount {
		left = n
	}
	for _, n := range []int{left, right} {
		if n < 1 || slices.ContainsFunc(list, func(a relay.Attempt) bool { return a.N == n }) {
			continue
		}
		chosen, err := p.Events.Attempts(ctx, who, e.ID, relay.AttemptPage{Before: n + 1, Limit: 1, MaxBody: most})
		if err != nil {
			return read, err
		}
		list = addMissing(list, chosen...)
	}
	read.list, read.left, read.right = list, min(left, right), max(left, right)
	return read, nil
}

// addMissing adds attempts that are not in a list, and keeps the list in the order of their numbers.
func addMissing(list []relay.Attempt, add ...relay.Attempt) []relay.Attempt {
	for _, a := range add {
		at, found := slices.BinarySearchFunc(list, a.N, func(x relay.Attempt, n int) int { return cmp.Compare(x.N, n) })
		if !found {
			list = slices.Insert(list, at, a)
		}
	}
	return list
}

// queueText says what a queued attempt waits for; auto is the setting autoDeliver of its alias.
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

// attemptTitle returns the name of an attempt, such as Attempt 2 (replay).
func attemptTitle(a *relay.Attempt) string { return "A" + record.AttemptName(a.N, a.Kind)[1:] }

func attemptOf(a *relay.Attempt, auto bool) attemptView {
	v := attemptView{
		N: a.N, Title: attemptTitle(a), State: a.State, Actor: record.SafeTextMax(a.Actor, 120), Asked: a.ReceivedAt,
		Pill: page.AttemptPill(a), Connection: a.Connection, CallerGone: a.CallerGone,
	}
	if a.Error != nil {
		v.Error = a.Error.Code + ": " + record.SafeTextMax(a.Error.Message, 500)
	}
	if a.State == relay.StateQueued {
		v.Queue = queueText(a, auto)
	}
	if out := record.OfAttempt(a, false); out.Timing != nil {
		t := out.Timing
		v.Timing, v.Latency = t, record.MillisText(*out.LatencyMs)
		v.Phases = []phaseView{{"blocked", 0, t.Blocked}, {"connect", 0, t.Connect}, {"send", 0, t.Send}, {"wait", 0, t.Wait}, {"receive", 0, t.Receive}}
		at := 0.0
		for i := range v.Phases {
			phase := &v.Phases[i]
			phase.At, at = at, at+phase.Taken
			v.TimingText += phase.Name + " " + record.MillisText(phase.Taken) + ", "
		}
		v.TimingText += "total " + record.MillisText(t.Total)
	}
	return v
}

// addColumn adds the response to a column, and says whether the sent bytes are the same as in the
// original request.
func (v *attemptView) addColumn(r *http.Request, e *relay.Event, a *relay.Attempt) {
	if a.HasResponse {
		v.Response = responseView(r, e, a)
		v.RawAnswer = page.AttemptPath(e.ID.String(), a.N, "response.raw")
	}
	switch {
	case a.Identical != nil:
		sent := a.SentHead
		if len(sent) == 0 {
			sent = e.Request.Head
		}
		v.RawRequest = page.AttemptPath(e.ID.String(), a.N, "request.raw")
		v.Same, v.Fidelity = *a.Identical, "Identical to"
		if !v.Same {
			v.Fidelity, v.Changed = "Differs from", changedLines(e.Request.Head, sent)
		}
		size := int64(len(sent)+len(e.Request.Lines)) + e.Request.Body.Size
		v.Fidelity += fmt.Sprintf(" the original request: %d bytes, body SHA-256 %x…", size, e.Request.Body.SHA256[:6])
	case a.State == relay.StateDelivering:
		v.Fidelity = "Being delivered."
	case a.State == relay.StateInterrupted:
		v.Fidelity = "It is not known how much of the request was sent."
	case !a.StartedAt.IsZero() && e.Request.Body.State != relay.BodyComplete:
		v.Fidelity = "The request may not have been sent completely."
	default:
		v.Fidelity = "Nothing was sent."
	}
}

func responseView(r *http.Request, e *relay.Event, a *relay.Attempt) *messageView {
	n := strconv.Itoa(a.N)
	m := messageViewOf(r, e, a.N, &a.Response, body.Source{
		ID: "response-" + n, What: "Response body of attempt " + n, Param: "response", Download: page.AttemptPath(e.ID.String(), a.N, "response.body"),
	})
	for _, head := range a.Interim {
		m.Interim = append(m.Interim, messageView{Start: startLine(head), Headers: pairsOf(wire.Fields(head))})
	}
	switch a.ResponseState {
	case relay.ResponseTruncated:
		m.State = "The local server closed the connection before the response was complete."
	case relay.ResponseCut:
		m.State = "The relay stopped reading this response."
	case relay.ResponseUpgraded:
		m.State = "The connection was upgraded; the bytes after the upgrade are not recorded."
	}
	return m
}

// changedLines returns the lines of a head that were removed or added.
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

// phaseView is one part of the time of an attempt, in ms.
type phaseView struct {
	Name      string
	At, Taken float64
}

// shows reports whether a phase is long enough to have a label in the bar. The text of the bar names
// all phases.
func (p *phaseView) shows(t *record.Timing) bool { return p.Taken >= t.Total/20 && p.Taken > 0 }

// waits returns the text that is shown in place of the times of an attempt that has none.
func (v *attemptView) waits() string {
	if v.Queue != "" {
		return "waits in the queue"
	}
	return ""
}
