package dashboard

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"relay"
	"relay/dashboard/body"
	"relay/record"
	"relay/wire"
)

// attemptView is the original or a replay: a column, or only an entry of the strip from
// which columns are chosen.
type attemptView struct {
	N                   int
	Title, State, Actor string
	Column              bool
	Link                string // shows it as a column
	Asked               time.Time
	Queue, Error        string
	pill
	Latency, Connection string
	Timing              *record.Timing // nil = not known
	Phases              []phaseView    // of Timing, in their order
	TimingText          string         // the same in words

	// Of columns only.
	Fidelity              string
	Changed               []string // lines that differ from the original
	Same                  bool     // byte for byte
	Response              *messageView
	RawRequest, RawAnswer string // addresses, "" = there is none
}

// addAttempts adds the columns: the original and the newest attempt, or the one that the
// address chooses, or all. Two columns are compared.
func (p *pages) addAttempts(r *http.Request, v *eventView, e *relay.Event) {
	list, q := e.Attempts, r.URL.Query()
	left, right := chosenAttempts(q, list)
	all := q.Get("attempts") == "all"
	v.Strip = len(list) > 2 && !all
	for i := range list {
		a := &list[i]
		column := all || i == left || i == right
		if v.Queued == "" && a.State == relay.StateQueued {
			v.Queued = "Attempt " + strconv.Itoa(a.N) + " " + queueText(a, v.auto)
		}
		if i > 0 && i <= len(list)-shownStrip && !column {
			v.HiddenCount++
			continue
		}
		shown := attemptOf(a, v.auto)
		if shown.Column = column; column {
			shown.addColumn(r, e, a)
		}
		if shown.Timing != nil {
			v.Longest = max(v.Longest, shown.Timing.Total)
		}
		chosen := maps.Clone(q)
		chosen.Del("diff")
		chosen.Set("attempt", strconv.Itoa(a.N))
		shown.Link = withQuery(eventPath(v.ID), chosen) + "#attempts"
		v.Attempts = append(v.Attempts, shown)
	}
	q.Set("attempts", "all")
	v.AllAttempts = withQuery(eventPath(v.ID), q)
	if left == right || !list[left].HasResponse || !list[right].HasResponse || all {
		return
	}
	was, is := record.Compared{Event: e, N: list[left].N}, record.Compared{Event: e, N: list[right].N}
	d, err := record.ReadDiff(r.Context(), p.Events, was, is, record.DiffResponse)
	if err != nil {
		p.Log.Warn("attempts not compared", "event", e.ID, "error", err)
		return
	}
	name := "Attempt " + strconv.Itoa(was.N)
	v.Diff = body.DiffOf(d, name+" and "+strconv.Itoa(is.N), [2]string{name, "Attempt " + strconv.Itoa(is.N)})
}

// chosenAttempts are the indices of the two columns: diff=2,5 or attempt=5 in the address
// chooses them.
func chosenAttempts(q url.Values, list []relay.Attempt) (left, right int) {
	right = max(0, len(list)-1)
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

func attemptOf(a *relay.Attempt, auto bool) attemptView {
	v := attemptView{
		N: a.N, Title: "Original", State: a.State, Actor: record.SafeTextMax(a.Actor, 120), Asked: a.ReceivedAt,
		pill: attemptPill(a), Connection: a.Connection,
	}
	if a.Kind == relay.KindReplay {
		v.Title = "Replay " + strconv.Itoa(a.N-1)
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

// addColumn adds the response, and whether the bytes sent are those of the original request.
func (v *attemptView) addColumn(r *http.Request, e *relay.Event, a *relay.Attempt) {
	if a.HasResponse {
		v.Response = responseView(r, e, a)
		v.RawAnswer = attemptPath(e.ID.String(), a.N, "response.raw")
	}
	switch {
	case a.Identical != nil:
		sent := a.SentHead
		if len(sent) == 0 {
			sent = e.Request.Head
		}
		v.RawRequest = attemptPath(e.ID.String(), a.N, "request.raw")
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
		ID: "response-" + n, What: "Response body of attempt " + n, Param: "response", Download: attemptPath(e.ID.String(), a.N, "response.body"),
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

// phaseView is one part of the time of an attempt, in ms.
type phaseView struct {
	Name      string
	At, Taken float64
}

// part is how much of a whole a value is, as a coordinate in a box of that size.
func part(value, whole, size float64) string {
	if whole <= 0 {
		return "0"
	}
	return strconv.FormatFloat(size*value/whole, 'f', 1, 64)
}
