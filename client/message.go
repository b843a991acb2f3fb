package client

import (
	"encoding/json"

	"relay"
	"relay/cli"
	"relay/record"
)

// Types of Message in addition to the kinds of relay.Notice.
const (
	TypeHello   = "hello"
	TypeRequest = "request"
	TypeMissed  = "missed" // requests may be missing in the log
)

// Message is one message that relay up shows. Type decides which fields are set. The texts are not safe to
// print.
type Message struct {
	Type         string `json:"type"`
	Host         string `json:"host,omitempty"` // hello: host of the base URL
	BaseURL      string `json:"baseUrl,omitempty"`
	Alias        string `json:"alias,omitempty"`
	URL          string `json:"url,omitempty"`
	QueuedEvents *int   `json:"queuedEvents,omitempty"`
	Paused       bool   `json:"paused,omitempty"`  // online: requests are queued all the same
	Code         string `json:"code,omitempty"`    // refused
	Message      string `json:"message,omitempty"` // refused, superseded, revoked, stopping, moving
	RetryAfterMs uint32 `json:"retryAfterMs,omitempty"`

	// Event and Attempt are set for a request, with the fields that AttemptLine needs.
	Event   *record.Summary `json:"-"`
	Attempt *record.Attempt `json:"-"`
	item    []byte          // for a request: the data of the item in the stream of the API
}

// MarshalJSON encodes event and attempt of a request as the relay sent them, because a newer relay may send
// fields that this program does not know.
func (m *Message) MarshalJSON() ([]byte, error) {
	var sent struct {
		Event   json.RawMessage `json:"event,omitempty"`
		Attempt json.RawMessage `json:"attempt,omitempty"`
	}
	if m.item != nil {
		if err := json.Unmarshal(m.item, &sent); err != nil {
			return nil, err
		}
	}
	type fields Message
	return json.Marshal(struct {
		*fields
		Event   json.RawMessage `json:"event,omitempty"`
		Attempt json.RawMessage `json:"attempt,omitempty"`
	}{(*fields)(m), sent.Event, sent.Attempt})
}

// Transient reports whether the relay may grant a refused alias later. Such an alias is requested again.
func (m *Message) Transient() bool { return m.Type == relay.NoticeRefused && !cli.Permanent(m.Code) }

// Superseded returns the text of a NoticeSuperseded: the alias was taken over by a newer tunnel, or is offline for
// the reason in m.Message.
func (m *Message) Superseded() string {
	if m.Message == "" || m.Message == relay.TakenOver {
		return "alias " + m.Alias + " was " + relay.TakenOver
	}
	return "alias " + m.Alias + " is offline: " + m.Message
}
