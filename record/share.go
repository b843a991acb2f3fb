package record

import (
	"context"
	"strings"
	"time"

	"relay"
)

// SharedEvent is what the holder of a share token may see. Request and Response
// are null unless the share allows viewing. It says nothing about the owner: no
// account, no alias, and no host, from which the alias could be read.
type SharedEvent struct {
	Method       string    `json:"method"`
	Path         string    `json:"path"`
	ReceivedAt   Time      `json:"receivedAt" format:"date-time"`
	State        string    `json:"state"`
	PayloadSize  int64     `json:"payloadSize"`
	Status       *int      `json:"status"`
	LatencyMs    *float64  `json:"latencyMs"`
	ResponseSize *int64    `json:"responseSize"`
	Online       bool      `json:"online" doc:"a replay would be delivered at once"`
	Replayable   bool      `json:"replayable"`
	View         bool      `json:"view"`
	OneUse       bool      `json:"oneUse" doc:"the first replay ends the share"`
	ExpiresAt    *Time     `json:"expiresAt" format:"date-time"`
	Request      *Message  `json:"request"`
	Response     *Response `json:"response"`
}

// ReadShared reads of an event what a share shows of it: its request and the last attempt that
// ended; of each body at most maxBody bytes.
func ReadShared(ctx context.Context, from EventSource, who relay.Actor, id relay.ID, maxBody int) (*relay.Event, error) {
	e, err := from.Request(ctx, who, id, maxBody)
	if err == nil {
		e.Attempts, err = from.Attempts(ctx, who, id, relay.AttemptPage{Limit: 1, Ended: true, MaxBody: maxBody})
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

// OfShared gives what a share shows of its event, which ReadShared has read.
func OfShared(e *relay.Event, s relay.Share, online bool) *SharedEvent {
	full := Of(e, relay.Site{}, time.Time{})
	out := &SharedEvent{
		Method:      full.Method,
		Path:        maskTarget(full.Path),
		ReceivedAt:  full.ReceivedAt,
		State:       full.State,
		PayloadSize: full.PayloadSize,
		Status:      full.Status,
		LatencyMs:   full.LatencyMs,
		Online:      online,
		Replayable:  full.Replayable,
		View:        s.View,
		OneUse:      s.OneUse,
		ExpiresAt:   timeOf(s.ExpiresAt),
	}
	if full.Response != nil {
		out.ResponseSize = &full.Response.Body.Size
	}
	if !s.View {
		return out
	}
	host, _, _ := strings.Cut(strings.ToLower(e.Host), ":") // of the alias; "" where that says nothing
	host = strings.Trim(host, ".")
	maskBody(full.Request.Body, full.Request.Headers)
	maskHeaders(full.Request.Headers, host)
	maskHeaders(full.Request.Trailers, host)
	out.Request = full.Request
	if r := full.Response; r != nil {
		maskBody(r.Body, r.Headers)
		maskHeaders(r.Headers, host)
		maskHeaders(r.Trailers, host)
		for _, i := range r.Interim {
			maskHeaders(i.Headers, host)
		}
		out.Response = r
	}
	return out
}

// SharedReplay is the answer to a replay by share token.
type SharedReplay struct {
	Event   SharedReplayEvent   `json:"event"`
	Attempt SharedReplayAttempt `json:"attempt"`
}

// SharedReplayEvent is how the event stands after a replay by share token.
type SharedReplayEvent struct {
	State      string `json:"state"`
	ReceivedAt Time   `json:"receivedAt" format:"date-time"`
}

// SharedReplayAttempt is the attempt that a replay by share token made.
type SharedReplayAttempt struct {
	Number    int      `json:"number"`
	State     string   `json:"state"`
	Status    *int     `json:"status"`
	LatencyMs *float64 `json:"latencyMs"`
}

// OfSharedReplay gives the outcome of attempt n of an event.
func OfSharedReplay(e *relay.Event, n int) *SharedReplay {
	asked := e.LastReceivedAt
	if asked.IsZero() {
		asked = e.ReceivedAt
	}
	out := &SharedReplay{
		Event:   SharedReplayEvent{State: e.State, ReceivedAt: Time{asked}},
		Attempt: SharedReplayAttempt{Number: n, State: e.State},
	}
	if made := e.Attempt(n); made != nil {
		a := OfAttempt(made, false)
		out.Attempt.State, out.Attempt.LatencyMs = a.State, a.LatencyMs
		if a.Response != nil {
			out.Attempt.Status = &a.Response.Status
		}
	}
	return out
}
