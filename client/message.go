package client

import (
	"encoding/json"

	"relay"
	"relay/cli"
	"relay/record"
)

// Types of Message beside the kinds of relay.Notice, which are about a forward or a connection.
const (
	TypeHello   = "hello"
	TypeRequest = "request"
	TypeMissed  = "missed" // requests are missing in the log
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
	Paused       bool   `json:"paused,omitempty"`  // online: requests are queued all the same
	Code         string `json:"code,omitempty"`    // refused
	Message      string `json:"message,omitempty"` // refused, superseded, revoked, stopping, moving
	RetryAfterMs uint32 `json:"retryAfterMs,omitempty"`

	// Of a request, as much as AttemptLine needs.
	Event   *record.Summary `json:"-"`
	Attempt *record.Attempt `json:"-"`
	item    []byte          // of a request, as the stream has sent it
}

// MarshalJSON encodes event and attempt of a request as the relay has sent them: a newer one
// may send fields that this program does not know.
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

// Transient reports whether a refused alias is asked for again, because the reason may
// pass.
func (m *Message) Transient() bool { return m.Type == relay.NoticeRefused && !cli.Permanent(m.Code) }

// Superseded returns a message that says how the alias of a superseded tunnel was lost.
func (m *Message) Superseded() string {
	if m.Message == "" || m.Message == relay.TakenOver {
		return "alias " + m.Alias + " was " + relay.TakenOver
	}
	return "alias " + m.Alias + " is offline: " + m.Message
}
