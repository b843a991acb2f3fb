package sshgate

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"relay"
	"relay/record"
)

// row is one line about an event. Its texts are safe to print.
//
//	15:04:05 [200] POST /hook (23ms) evt_…
type row struct {
	at           time.Time
	what         string // status or state
	tone         tone
	method, path string
	took         string // "" = not known
	id           string
	note         string // what stands behind the id
}

// What is kept of a method and a path on a wide screen.
const rowMethod, rowPath = 32, 512

// ofAttempt is the row of an attempt that has ended.
func ofAttempt(r endedAttempt) row {
	at := time.Now()
	if r.attempt.StartedAt != nil {
		at = r.attempt.StartedAt.Local()
	}
	status := 0
	if r.attempt.Response != nil {
		status = r.attempt.Response.Status
	}
	out := newRow(at, status, r.attempt.State, r.attempt.Error, &r.event, r.attempt.LatencyMs)
	if r.attempt.Kind == relay.KindReplay {
		out.note = strings.TrimSpace("(replay) " + out.note)
	}
	return out
}

// ofSummary is the row of an event in a list.
func ofSummary(e *record.Summary) row {
	status := 0
	if e.Status != nil && e.State == relay.StateDelivered {
		status = *e.Status
	}
	return newRow(e.ReceivedAt.Local(), status, e.State, e.Error, e, e.LatencyMs)
}

// newRow makes a row. Where no response came the status is the one that the relay
// itself answered with, and the note says why.
func newRow(at time.Time, status int, state string, fault *record.Fault, e *record.Summary, latencyMs *float64) row {
	r := row{
		at: at, method: record.SafeTextMax(e.Method, rowMethod), path: record.SafeTextMax(e.Path, rowPath), id: e.ID,
	}
	switch state {
	case relay.StateFailed, relay.StateInterrupted, relay.StateRejected, relay.StateIncomplete:
		if fault != nil {
			r.note = record.SafeTextMax(fault.Code, 64)
			if status == 0 {
				status = relay.Status(fault.Code)
			}
		}
	}
	if r.what, r.tone = record.SafeText(state), toneNone; status != 0 {
		r.what, r.tone = strconv.Itoa(status), toneOf(status)
	}
	if latencyMs != nil {
		r.took = fmt.Sprintf("(%.0fms)", *latencyMs)
	}
	return r
}

func toneOf(status int) tone {
	switch {
	case status < 200:
		return toneNone
	case status < 300:
		return toneGood
	case status < 400:
		return toneElse
	case status < 500:
		return toneHere
	}
	return toneBad
}

func (r row) words(paint func(tone, string) string) string {
	words := []string{r.at.Format(time.TimeOnly), paint(r.tone, "["+r.what+"]")}
	for _, w := range []string{r.method, r.path, r.took, r.id, r.note} {
		if w != "" {
			words = append(words, w)
		}
	}
	return strings.Join(words, " ")
}

// minPath is how much of a path is worth its place: rather than less of it, other
// parts of the line go.
const minPath = 12

// fit shortens a row to so many columns. What goes first can be looked up.
func (r row) fit(columns int) row {
	plain := func(_ tone, text string) string { return text }
	for _, step := range []struct {
		drop func()
		path int // is enough
	}{
		{func() {}, minPath},
		{func() { r.note = "" }, minPath},
		{func() { r.id = "" }, minPath},
		{func() { r.took = "" }, 4},
		{func() { r.method = shorten(r.method, 7) }, 4},
	} {
		step.drop()
		path := columnsOf(r.path)
		room := columns - (columnsOf(r.words(plain)) - path)
		if room >= min(path, step.path) {
			r.path = shorten(r.path, room)
			return r
		}
	}
	r.method = ""
	r.path = shorten(r.path, max(1, columns-columnsOf(r.words(plain))+columnsOf(r.path)))
	return r
}

// row gives the line as the terminal shows it best.
func (s *screen) row(r row) string {
	if room := s.room(); room > 0 {
		r = r.fit(room)
	}
	return r.words(s.paint)
}
