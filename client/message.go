package client

import (
	"bytes"
	"encoding/json"

	"relay"
	"relay/record"
)

// Types of Message; those about a forward or a connection are the kinds of relay.Notice.
const (
	TypeHello      = "hello"
	TypeOnline     = relay.NoticeOnline
	TypeRefused    = relay.NoticeRefused
	TypeStale      = relay.NoticeStale
	TypeOffline    = relay.NoticeOffline
	TypeSuperseded = relay.NoticeSuperseded
	TypeStopping   = relay.NoticeStopping
	TypeMoving     = relay.NoticeMoving
	TypeRevoked    = relay.NoticeRevoked
	TypeRequest    = "request"
	TypeMissed     = "missed" // requests are missing in the log
)

// Message is one thing that relay up shows. Type says which fields are set. No text in it
// is safe to print.
type Message struct {
	Type         string `json:"type"`
	Host         string `json:"host,omitempty"` // hello: host of the base URL
	BaseURL      string `json:"baseUrl,omitempty"`
	Alias        string `json:"alias,omitempty"`
	URL          string `json:"url,omitempty"`
	QueuedEvents *int   `json:"queuedEvents,omitempty"`
	Code         string `json:"code,omitempty"`    // refused
	Message      string `json:"message,omitempty"` // refused, superseded, revoked, stopping, moving
	RetryAfterMs uint32 `json:"retryAfterMs,omitempty"`

	// Of a request, as much as AttemptLine needs.
	Event   *record.Summary `json:"-"`
	Attempt *record.Attempt `json:"-"`
	// Of a request, what the stream has sent: the summary, and the item with the attempt.
	rawEvent, rawItem []byte
}

// MarshalJSON encodes event and attempt of a request as the relay has sent them: a newer one
// may send fields that this program does not know.
func (m *Message) MarshalJSON() ([]byte, error) {
	var item struct {
		Attempt json.RawMessage `json:"attempt"`
	}
	if m.rawItem != nil {
		if err := json.Unmarshal(m.rawItem, &item); err != nil {
			return nil, err
		}
	}
	type fields Message
	return json.Marshal(struct {
		*fields
		Event   json.RawMessage `json:"event,omitempty"`
		Attempt json.RawMessage `json:"attempt,omitempty"`
	}{(*fields)(m), m.rawEvent, item.Attempt})
}

// Transient reports whether a refused alias is asked for again, because the reason may
// pass.
func (m *Message) Transient() bool { return m.Type == TypeRefused && !permanent(m.Code) }

// maxLogged is how many events and attempts the request log remembers.
const maxLogged = 512

// requestLog makes messages of the ended attempts of a stream. It is used by one goroutine.
type requestLog struct {
	last    string                  // id of the last item of the stream
	events  map[string]*loggedEvent // by id
	waiting map[string][]*Message   // attempts whose event has not come, by its id
	logged  map[attemptKey]bool
}

// loggedEvent is what is known of an event.
type loggedEvent struct {
	raw []byte
	record.Summary
}

type attemptKey struct {
	event  string
	number int
}

func newRequestLog() *requestLog {
	return &requestLog{events: map[string]*loggedEvent{}, waiting: map[string][]*Message{}, logged: map[attemptKey]bool{}}
}

// take takes an item of the stream and returns the messages that it leads to. The summary
// of an event may come after its attempt.
func (l *requestLog) take(name string, data []byte) []*Message {
	switch name {
	case "event":
		return l.event(data)
	case "attempt":
		return l.attempt(data)
	}
	return nil
}

func (l *requestLog) event(data []byte) (ended []*Message) {
	// Decoding the whole summary, and below the whole attempt, took a seventh of the CPU of
	// a request, and a line shows little of them.
	var item struct {
		ID     string `json:"id"`
		Alias  string `json:"alias"`
		Method string `json:"method"`
		Path   string `json:"path"`
	}
	if json.Unmarshal(data, &item) != nil {
		return nil
	}
	if len(l.events) >= maxLogged {
		clear(l.events)
	}
	e := &loggedEvent{bytes.Clone(data), record.Summary{ID: item.ID, Alias: item.Alias, Method: item.Method, Path: item.Path}}
	l.events[e.ID] = e
	ended = l.waiting[e.ID]
	delete(l.waiting, e.ID)
	for _, m := range ended {
		m.Event, m.rawEvent = &e.Summary, e.raw
	}
	return ended
}

func (l *requestLog) attempt(data []byte) []*Message {
	var item struct {
		EventID string `json:"eventId"`
		Attempt *struct {
			Number     int          `json:"number"`
			Kind       string       `json:"kind"`
			State      string       `json:"state"`
			ReceivedAt record.Time  `json:"receivedAt"`
			StartedAt  *record.Time `json:"startedAt"`
			Error      *relay.Fault `json:"error"`
			LatencyMs  *float64     `json:"latencyMs"`
			Response   *struct {
				Status int `json:"status"`
			} `json:"response"`
		} `json:"attempt"`
	}
	if json.Unmarshal(data, &item) != nil || item.Attempt == nil {
		return nil
	}
	a := item.Attempt
	switch a.State {
	case relay.StateDelivered, relay.StateFailed, relay.StateInterrupted:
	default:
		return nil
	}
	key := attemptKey{item.EventID, a.Number}
	if l.logged[key] {
		return nil
	}
	if len(l.logged) >= maxLogged {
		clear(l.logged)
	}
	l.logged[key] = true
	m := &Message{Type: TypeRequest, rawItem: bytes.Clone(data), Attempt: &record.Attempt{
		Number: a.Number, Kind: a.Kind, State: a.State, ReceivedAt: a.ReceivedAt, StartedAt: a.StartedAt, Error: a.Error, LatencyMs: a.LatencyMs,
	}}
	if a.Response != nil {
		m.Attempt.Response = &record.Response{Status: a.Response.Status}
	}
	if e := l.events[item.EventID]; e != nil {
		m.Event, m.rawEvent = &e.Summary, e.raw
		return []*Message{m}
	}
	if len(l.waiting) >= maxLogged {
		clear(l.waiting)
	}
	l.waiting[item.EventID] = append(l.waiting[item.EventID], m)
	return nil
}
