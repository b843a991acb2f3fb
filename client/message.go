package client

import (
	"encoding/json"
	"net/url"

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
	Type         string          `json:"type"`
	Host         string          `json:"host,omitempty"` // hello: host of the base URL
	BaseURL      string          `json:"baseUrl,omitempty"`
	Alias        string          `json:"alias,omitempty"`
	URL          string          `json:"url,omitempty"`
	QueuedEvents *int            `json:"queuedEvents,omitempty"`
	Code         string          `json:"code,omitempty"`    // refused
	Message      string          `json:"message,omitempty"` // refused, superseded, revoked, stopping, moving
	RetryAfterMs uint32          `json:"retryAfterMs,omitempty"`
	RawEvent     json.RawMessage `json:"event,omitempty"`   // request: as the API has them
	RawAttempt   json.RawMessage `json:"attempt,omitempty"` // request

	Event   *record.Summary `json:"-"` // request
	Attempt *record.Attempt `json:"-"` // request
}

// Transient reports whether a refused alias is asked for again, because the reason may
// pass.
func (m *Message) Transient() bool { return m.Type == TypeRefused && !permanent(m.Code) }

func helloMessage(told *record.SSH) *Message {
	m := &Message{Type: TypeHello, BaseURL: told.BaseURL}
	if u, err := url.Parse(told.BaseURL); err == nil {
		m.Host = u.Hostname()
	}
	return m
}

// maxLogged is how many events and attempts the request log remembers.
const maxLogged = 512

// requestLog makes messages of the ended attempts of a stream. It is used by one goroutine.
type requestLog struct {
	last    string                     // id of the last item of the stream
	events  map[string]json.RawMessage // summaries by id
	waiting map[string][]*Message      // attempts whose event has not come, by its id
	logged  map[attemptKey]bool
}

type attemptKey struct {
	event  string
	number int
}

func newRequestLog() *requestLog {
	return &requestLog{events: map[string]json.RawMessage{}, waiting: map[string][]*Message{}, logged: map[attemptKey]bool{}}
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
	id := idOf(data)
	if len(l.events) >= maxLogged {
		clear(l.events)
	}
	raw := append(json.RawMessage(nil), data...)
	l.events[id] = raw
	for _, m := range l.waiting[id] {
		if m.setEvent(raw) {
			ended = append(ended, m)
		}
	}
	delete(l.waiting, id)
	return ended
}

func (l *requestLog) attempt(data []byte) []*Message {
	var item struct {
		EventID string          `json:"eventId"`
		Attempt json.RawMessage `json:"attempt"`
	}
	m := &Message{Type: TypeRequest, Attempt: &record.Attempt{}}
	if json.Unmarshal(data, &item) != nil || json.Unmarshal(item.Attempt, m.Attempt) != nil {
		return nil
	}
	switch m.Attempt.State {
	case relay.StateDelivered, relay.StateFailed, relay.StateInterrupted:
	default:
		return nil
	}
	key := attemptKey{item.EventID, m.Attempt.Number}
	if l.logged[key] {
		return nil
	}
	if len(l.logged) >= maxLogged {
		clear(l.logged)
	}
	l.logged[key] = true
	m.RawAttempt = append(json.RawMessage(nil), item.Attempt...)
	if raw, known := l.events[item.EventID]; known && m.setEvent(raw) {
		return []*Message{m}
	}
	if len(l.waiting) >= maxLogged {
		clear(l.waiting)
	}
	l.waiting[item.EventID] = append(l.waiting[item.EventID], m)
	return nil
}

func (m *Message) setEvent(raw json.RawMessage) bool {
	m.RawEvent, m.Event = raw, &record.Summary{}
	return json.Unmarshal(raw, m.Event) == nil
}
