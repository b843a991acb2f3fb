package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/record"
)

func TestColorsStandAroundTheStatusOnly(t *testing.T) {
	var out strings.Builder
	w := &Printer{Out: &out, Terminal: func() Terminal { return Terminal{Color: true} }}
	l := record.Line{Time: "05:17:53", Status: 404, Method: "GET", Path: "/[404]\x1b[31m", ID: "evt_1"}
	if err := w.Event(l); err != nil {
		t.Fatal(err)
	}
	if want := "05:17:53 \x1b[33m[404]\x1b[0m GET /[404]\\x1b[31m"; !strings.HasPrefix(out.String(), want) {
		t.Errorf("%q", out.String())
	}
}

func TestListsArePrintedNewestLast(t *testing.T) {
	for in, want := range map[string]string{
		`{"data":[{"id":"evt_2"},{"id":"evt_1"}],"nextCursor":null}`: `{"id":"evt_1"} {"id":"evt_2"}`,
		`{"data":[{"id":"evt_1"},{"id":"evt_2"}]}`:                   `{"id":"evt_1"} {"id":"evt_2"}`,
		`{"id":"evt_3"}`: `{"id":"evt_3"}`,
		`{"data":[]}`:    "",
		"no JSON":        "no JSON",
	} {
		var got []string
		for _, item := range items(json.RawMessage(in)) {
			got = append(got, string(item))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s", in, got)
		}
	}
	w := &Printer{Out: &strings.Builder{}}
	if _, err := decode[record.Event](json.RawMessage("no JSON")); err == nil || w.JSON(json.RawMessage("no JSON")) == nil {
		t.Error("an answer that is no JSON is fine")
	}
}

// TestPathFitsTheWindow: a line is at most as wide as the window, with a shortened path, unless the
// path would become too short to be useful.
func TestPathFitsTheWindow(t *testing.T) {
	t.Parallel()
	latency := 23.4
	status := 200
	e := &record.Summary{
		ID: "evt_01k0000000000000000000000", Method: "POST", Path: "/webhooks/stripe/live", State: relay.StateDelivered, Status: &status,
		LatencyMs: &latency, AttemptCount: 2, ReceivedAt: record.Time{Time: time.Date(2026, 11, 21, 15, 4, 5, 0, time.Local)},
	}
	at := e.ReceivedAt.Local().Format(time.RFC3339) // the time is shorter in the zone UTC, and with it the line
	for columns, path := range map[int]string{
		0: "/webhooks/stripe/live", 121: "/webhooks/stripe/live", 82 + len(at): "/webhooks/stripe/l…", 80: "/webhooks/s…", 2: "/webhooks/s…",
	} {
		w := &Printer{Terminal: func() Terminal { return Terminal{Columns: columns} }}
		want := at + " [200] POST " + path + " (23ms) evt_01k0000000000000000000000 (2 attempts)"
		if got := w.EventText(record.EventLine(e)); got != want {
			t.Errorf("%d columns: %q, want %q", columns, got, want)
		}
	}
}

// TestRowOfFailure: for an attempt without a response, the row shows the response that the caller got, and why
// the attempt failed.
func TestRowOfFailure(t *testing.T) {
	t.Parallel()
	w := &Printer{}
	for _, x := range []struct {
		state string
		fault *relay.Fault
		want  string
	}{
		{relay.StateFailed, &relay.Fault{Code: relay.CodeLocalRefused, Message: "x"}, "[502] GET / evt_1 local-refused: x"},
		{relay.StateInterrupted, &relay.Fault{Code: relay.CodeTunnelLost}, "[502] GET / evt_1 tunnel-lost"},
		{relay.StateIncomplete, &relay.Fault{Code: relay.CodeCallerGone}, "[incomplete] GET / evt_1 caller-gone"},
		{relay.StateInterrupted, &relay.Fault{Code: "interrupted"}, "[interrupted] GET / evt_1 interrupted"},
		{relay.StateRejected, &relay.Fault{Code: relay.CodeBodyTooLarge}, "[413] GET / evt_1 body-too-large"},
		{relay.StateQueued, nil, "[queued] GET / evt_1"},
		{relay.StateCanceled, &relay.Fault{Code: relay.CodeSuperseded}, "[canceled] GET / evt_1"},
	} {
		if got := w.EventText(record.EventLine(&record.Summary{ID: "evt_1", Method: "GET", Path: "/", State: x.state, Error: x.fault})); !strings.HasSuffix(got, x.want) {
			t.Errorf("%s: %q, want %q", x.state, got, x.want)
		}
	}
}

// TestRequestLogIsBounded: the memory of a RequestLog does not grow with the number of attempts.
func TestRequestLogIsBounded(t *testing.T) {
	t.Parallel()
	var l RequestLog
	for i := range 5000 {
		data := []byte(fmt.Sprintf(`{"event":{"id":"evt_%d"},"attempt":{"number":1,"state":"delivered"}}`, i))
		_, a := l.Take("attempt", data)
		if _, again := l.Take("attempt", data); a == nil || again != nil || len(l.taken) > maxLogged {
			t.Fatalf("%+v, then %+v, %d are remembered", a, again, len(l.taken))
		}
	}
}

// TestRequestLogTellsThatTheCallerLeft: the line of the live log about an attempt whose caller had left says so, as
// the event does in the dashboard.
func TestRequestLogTellsThatTheCallerLeft(t *testing.T) {
	t.Parallel()
	var l RequestLog
	e, a := l.Take("attempt", []byte(`{"event":{"id":"evt_1"},"attempt":{"number":1,"kind":"original","state":"delivered","callerGone":true}}`))
	if e == nil || !strings.Contains(record.AttemptLine(e, a).String(), record.CallerHadLeft) {
		t.Errorf("%+v, %+v", e, a)
	}
}
