package record

import (
	"cmp"

	"relay"
)

// Timing has the phases of an attempt in milliseconds, with the names of HAR. The latency is the sum of
// the phases other than Blocked; Total includes Blocked.
type Timing struct {
	Blocked float64 `json:"blocked"`
	Connect float64 `json:"connect"`
	Send    float64 `json:"send"`
	Wait    float64 `json:"wait"`
	Receive float64 `json:"receive"`
	Total   float64 `json:"total"`
}

// Attempt is one delivery of an event.
type Attempt struct {
	Number        int          `json:"number"`
	Kind          string       `json:"kind" enum:"original,replay"`
	State         string       `json:"state" enum:"delivering,queued,delivered,failed,interrupted,canceled,answered"`
	ReceivedAt    Time         `json:"receivedAt" format:"date-time"`
	StartedAt     *Time        `json:"startedAt" format:"date-time"`
	Actor         *string      `json:"actor"`
	Via           *string      `json:"via" doc:"mcp where an agent acted for the actor, or null"`
	Client        *string      `json:"client" doc:"program that the agent says it runs in, or null"`
	Error         *relay.Fault `json:"error"`
	Released      bool         `json:"released"`
	QueuePosition *int         `json:"queuePosition"`
	Connection    *string      `json:"connection" doc:"new or reused"`
	Node          *string      `json:"node" doc:"name of the relayd that had the caller and ran it"`
	Identical     *bool        `json:"identical"`
	CallerGone    bool         `json:"callerGone" doc:"the caller had left, or was cut off, before it got the whole answer"`
	LatencyMs     *float64     `json:"latencyMs"`
	Timing        *Timing      `json:"timing"`
	Cause         *string      `json:"cause" doc:"what an error answer says, in one line"`
	Response      *Response    `json:"response"`
}

// AttemptMessage is the message of the live feed about a new or changed attempt, with its event. The response
// of the attempt comes without its body.
type AttemptMessage struct {
	EventID string   `json:"eventId"`
	Alias   string   `json:"alias"`
	Event   *Summary `json:"event"` // null = the event does not exist any more
	Attempt *Attempt `json:"attempt" nullable:"false"`
}

// OfAttempt returns the JSON form of an attempt. If bodies is false, the response has no key body.
func OfAttempt(a *relay.Attempt, bodies bool) *Attempt {
	via, client := viaOf(a.Via)
	out := &Attempt{
		Number:     a.N,
		Kind:       a.Kind,
		State:      a.State,
		ReceivedAt: Time{a.ReceivedAt},
		StartedAt:  timeOf(a.StartedAt),
		Actor:      textOf(actorOf(a)),
		Via:        via,
		Client:     client,
		Error:      a.Error,
		Released:   a.Released,
		Connection: textOf(a.Connection), Node: textOf(a.Node),
		Identical: a.Identical, CallerGone: a.CallerGone,
		Cause:    textOf(cmp.Or(a.Cause, Cause(a.Status, a.Response.Head, &a.Response.Body))),
		Response: responseOf(a, bodies),
	}
	if a.Position > 0 {
		out.QueuePosition = new(a.Position)
	}
	if a.HasTiming {
		// Each phase is truncated to the microsecond before the sum is taken, so that the shown figures add
		// up.
		t := a.Timing.Micros()
		out.LatencyMs = new(millis(t.Latency()))
		out.Timing = &Timing{
			Blocked: millis(t.Blocked), Connect: millis(t.Connect), Send: millis(t.Send), Wait: millis(t.Wait), Receive: millis(t.Receive),
			Total: millis(t.Blocked + t.Latency()),
		}
	}
	return out
}

// actorOf returns the actor of an attempt, or the word relay if the relay itself answered the request.
func actorOf(a *relay.Attempt) string {
	if a.State == relay.StateAnswered {
		return "relay"
	}
	return a.Actor
}
