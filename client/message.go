package client

import (
	"encoding/json"
	"time"

	"relay/record"
)

// Types of Message. Unknown types are ignored: a newer relay may send more.
const (
	TypeHello      = "hello"
	TypeOnline     = "online"
	TypeRefused    = "refused"
	TypeStale      = "stale"
	TypeOffline    = "offline"
	TypeRequest    = "request"
	TypeSuperseded = "superseded"
	TypeStopping   = "stopping"
	TypeReleased   = "released" // answer to Release
	TypeError      = "error"    // the same
	TypeRevoked    = "revoked"  // the key is no longer registered
	TypeDropped    = "dropped"  // requests are missing in the log
)

// Message is one line that a relay sends to the session of relay up. Type says which
// fields are set. No text in it is safe to print.
type Message struct {
	Type         string          `json:"type"`
	Host         string          `json:"host"` // hello: host of the base URL
	BaseURL      string          `json:"baseUrl"`
	User         string          `json:"user"`
	Version      string          `json:"version"`
	Alias        string          `json:"alias"`
	URL          string          `json:"url"`
	QueuedEvents int             `json:"queuedEvents"`
	Code         string          `json:"code"`    // refused, error
	Message      string          `json:"message"` // refused, superseded, error
	Released     int             `json:"released"`
	Lines        int             `json:"lines"` // dropped
	RetryAfterMs int64           `json:"retryAfterMs"`
	Event        *record.Summary `json:"event"`
	Attempt      *record.Attempt `json:"attempt"`

	Raw []byte `json:"-"` // the line as it came
}

// parseMessage parses a line; it returns nil for a line that is no message.
func parseMessage(line []byte) *Message {
	m := &Message{}
	if err := json.Unmarshal(line, m); err != nil || m.Type == "" {
		return nil
	}
	m.Raw = append([]byte(nil), line...)
	return m
}

// Transient reports whether a refused alias is asked for again, because the reason may
// pass.
func (m *Message) Transient() bool { return m.Type == TypeRefused && !permanent(m.Code) }

func (m *Message) retryAfter() time.Duration {
	return min(max(0, time.Duration(m.RetryAfterMs)*time.Millisecond), time.Minute)
}
