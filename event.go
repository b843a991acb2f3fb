package relay

import (
	"net/netip"
	"time"
)

// States of an event. The first six are also states of attempts; an event has the state
// of its last attempt.
const (
	StateDelivering  = "delivering"
	StateQueued      = "queued"
	StateDelivered   = "delivered"
	StateFailed      = "failed"
	StateInterrupted = "interrupted"
	StateCanceled    = "canceled"
	StateRejected    = "rejected"
	StateIncomplete  = "incomplete"
	StateAnswered    = "answered" // the relay itself has answered a registration challenge; also a state of attempts
)

// Replay blockers are the reasons why an event cannot be replayed.
const (
	BlockedRejected   = "rejected"
	BlockedIncomplete = "incomplete"
	BlockedBody       = "body"
	BlockedUpgraded   = "upgraded"
)

// FaultSent precedes the bytes that a local server sent, in the message of a Fault.
const FaultSent = "; it sent "

// Fault is the error of an event or attempt as it is stored and shown.
type Fault struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Provider describes the sender of a webhook as recognised at capture. The zero value
// means that the sender was not recognised.
type Provider struct {
	Name       string
	EventType  string
	DeliveryID string
	SignedAt   time.Time     // the timestamp that the signature covers; zero = none
	Tolerance  time.Duration // age at which the libraries of the provider refuse the signature; 0 = never
}

// Event is a captured request. In lists only the fields up to the first blank line and Request.Body.Size
// are filled. A new field whose value is known before the end of the first attempt has a tag spool: it is
// the format of the steps in the spool that have the field. The number is one more than the highest tag of this
// struct and the highest constant stepWith in store/spool/step.go; the first is `spool:"7"`.
type Event struct {
	ID             ID
	AliasID        int64
	Alias          string    // name
	ReceivedAt     time.Time // first arrival; it is part of ID and decides order, cursors and retention
	LastReceivedAt time.Time // ReceivedAt of the last attempt; the JSON form in package record shows it as receivedAt
	Remote         netip.AddrPort
	TLS            bool
	Method         string
	Target         []byte // request-target as shown; of an absolute-form target, only what follows scheme and authority
	HTTPMinor      int
	Host           string
	Provider       Provider
	State          string
	Error          *Fault
	Status         int // status of the last attempt that ended; 0 = it had no response, or no attempt has ended
	Latency        time.Duration
	HasLatency     bool
	AttemptCount   int
	Blocker        string // replay blocker; "" = the event can be replayed
	Cause          string // error text of the last attempt that ended, as record.Cause reads it from an error response; filled in lists and the live feed
	HostRefusedBy  string // how the local server rejected the address of the request in the last attempt that ended: a result of record.RefusedBy, or record.RedirectedToSelf; "" = it did not
	// Handshake names the challenge that the relay has answered. MissedHandshake names the challenge that
	// was queued because the alias does not answer it; see package handshake.
	Handshake, MissedHandshake string
	Mark                       Mark
	Sent                       *Sent      // nil = a caller sent the event
	Signature                  *Signature // nil = the signature was not checked

	Request        Message
	ForwardedLines []byte // Forwarded header lines computed at capture; they are sent before the empty line that ends the head
	// Attempts are in the order of their numbers. An event from the store has only some of them: the first
	// one and the newest ShownAttempts.
	Attempts []Attempt
	// Ended is the last attempt that ended. It is nil if Attempts contains that attempt, or no attempt has
	// ended. Attempts does not contain it if the newest ShownAttempts are all queued or in progress.
	Ended *Attempt
}

// ShownAttempts is the number of newest attempts that are read with an event, besides the first.
const ShownAttempts = 20

// HeldBytes returns the number of bytes of heads and bodies that the event holds in memory.
func (e *Event) HeldBytes() int64 {
	n := e.Request.heldBytes() + HeldBytes(e.Attempts)
	if e.Ended != nil {
		n += e.Ended.heldBytes()
	}
	return n
}

// HeldBytes returns the number of bytes of heads and bodies that attempts hold in memory.
func HeldBytes(attempts []Attempt) (n int64) {
	for i := range attempts {
		n += attempts[i].heldBytes()
	}
	return n
}

func (a *Attempt) heldBytes() int64 {
	n := a.Response.heldBytes() + int64(len(a.SentHead))
	for _, head := range a.Interim {
		n += int64(len(head))
	}
	return n
}

// LastEnded returns the last attempt that ended; nil = no attempt has ended.
func (e *Event) LastEnded() *Attempt {
	if e.Ended != nil {
		return e.Ended
	}
	for i := len(e.Attempts) - 1; i >= 0; i-- {
		if a := &e.Attempts[i]; a.State != StateQueued && a.State != StateDelivering {
			return a
		}
	}
	return nil
}

// AttemptPage selects attempts of an event, the newest first.
type AttemptPage struct {
	Before   int  // selects the attempts with a number below this one; 0 = all
	Limit    int  // 1 to MaxAttempts
	Answered bool // selects only attempts that got a response
	Ended    bool // selects only attempts that have ended
	MaxBody  int  // largest number of bytes that are read of each body; fewer are read if all bodies together are too large
}

// MaxAttempts is the maximum number of attempts on a page.
const MaxAttempts = 200

// Attempt returns the attempt with the given number, or nil if the event has none.
func (e *Event) Attempt(n int) *Attempt {
	for i := range e.Attempts {
		if e.Attempts[i].N == n {
			return &e.Attempts[i]
		}
	}
	return nil
}

// Mark holds the pin, label and note of an event. Retention keeps a pinned event, which still counts in the
// storage of its alias.
type Mark struct {
	Pinned      bool
	Label, Note string
}

// Origins of an event: a caller sent it to its alias, or a user made it with Relay.
const (
	OriginCaller = "caller"
	OriginSend   = "send"
)

// Sent describes how a new event was made: the actor, the source event and the changes.
type Sent struct {
	Actor    string   `json:"actor"`
	MadeFrom string   `json:"madeFrom,omitempty"` // id of the source event
	Changes  []string `json:"changes,omitempty"`  // differences from the source event
	SignedBy string   `json:"signedBy,omitempty"` // id of the secret of the alias, or SignedByClient
}

// SignedByClient is the SignedBy of a Sent whose request was already signed by the client that made
// it.
const SignedByClient = "client"

// Outgoing is a request from which a new event of an alias is made.
type Outgoing struct {
	Alias          *Alias
	Request        Message // complete, with all of its body
	ForwardedLines []byte  // as Event.ForwardedLines
	From           netip.AddrPort
	TLS            bool
	Sent           Sent
}

// Signature is the verdict on the signature of a request. It was made on arrival with the secrets that
// the alias had then, or later, when a user asked for a new verdict.
type Signature struct {
	Provider string    `json:"provider"`
	Verdict  string    `json:"verdict"` // one of the verdicts of package signature
	Reason   string    `json:"reason"`
	Message  string    `json:"message"`
	SignedAt time.Time `json:"signedAt,omitzero"`
	SecretID string    `json:"secretId,omitempty"` // id of the secret that matches
}

// SavedSearch is a search of an alias that an account has saved under a name.
type SavedSearch struct {
	Name  string `json:"name"`
	Words string `json:"words" doc:"as typed in the dashboard"` // see record.ParseFilterWords
}

// Choices are values by which the events of an alias can be filtered.
type Choices struct{ Types, Providers, Labels []string }

// Attempt kinds.
const (
	KindOriginal = "original"
	KindReplay   = "replay"
)

// Connection values of an attempt.
const (
	ConnectionNew    = "new"
	ConnectionReused = "reused"
)

// Timing has the phases of an attempt in the terms of HAR, measured by the monotonic clock. Blocked is the
// wait in a queue or for a slot, and Connect the opening of the channel.
type Timing struct {
	Blocked, Connect, Send, Wait, Receive time.Duration
}

// Micros returns t with every phase truncated to microseconds, the precision in which
// timings are stored and shown.
func (t Timing) Micros() Timing {
	cut := func(d time.Duration) time.Duration { return d.Truncate(time.Microsecond) }
	return Timing{Blocked: cut(t.Blocked), Connect: cut(t.Connect), Send: cut(t.Send), Wait: cut(t.Wait), Receive: cut(t.Receive)}
}

// Latency returns Connect + Send + Wait + Receive, each truncated to microseconds, so
// that the sum is the same before and after the timing was stored.
func (t Timing) Latency() time.Duration {
	t = t.Micros()
	return t.Connect + t.Send + t.Wait + t.Receive
}

// AttemptRef names an attempt.
type AttemptRef struct {
	Event ID
	N     int
}

// Attempt is one delivery of an event to the local server, numbered from 1.
type Attempt struct {
	N          int
	Kind       string
	State      string
	ReceivedAt time.Time // arrival of the request, or of the command to replay it
	StartedAt  time.Time // zero = not started
	EndedAt    time.Time // zero = not ended
	Actor      string    // "" for an original
	Via        string    // Via of the actor
	Error      *Fault
	Released   bool
	Position   int // position in the queue, from 1; it is not stored but computed when the attempt is read; 0 = not queued
	Connection string
	Node       string // name of the node that ran the attempt and, for an original, received the request; "" = none, or unknown
	SentHead   []byte // the head as sent, only if it differs from the head of the request
	CallerGone bool   // the caller had left, or was cut off, before it got the whole response
	Identical  *bool  // whether exactly the bytes of the request were sent; nil = nothing was sent yet, or the request is incomplete
	Timing     Timing
	HasTiming  bool

	HasResponse   bool
	Status        int
	Interim       [][]byte // heads of 1xx responses in order, except 101
	ResponseState string
	Response      Message
	Cause         string // error text of an error response, as record.Cause reads it; set where the attempt is read from the store without its body
	Handshake     string // name of the challenge that the relay answered itself; set only in the state StateAnswered
}

// Filter selects events of a list; zero fields do not filter. record.ParseFilter and
// record.ParseFilterWords make one from the input of a user or a program.
type Filter struct {
	Alias     string // name; ErrNotFound if it is unknown or belongs to another account
	Method    string
	Status    string // "404", "2xx", or StatusError
	Path      string // prefix of the shown target
	State     string
	Provider  string
	Handshake string // name of a challenge that the relay has answered
	Type      string // event type; a * at the end matches any ending, as in invoice.*
	Replayed  *bool  // whether there is an attempt besides the original
	Pinned    *bool
	Label     string // same form as Type
	Origin    string // OriginCaller or OriginSend
	// Signature is a verdict. The verdict unchecked also selects events that have no verdict although their
	// provider signs its requests.
	Signature string
	JSON      []FieldFilter
	Since     time.Time    // first arrival, inclusive
	Until     time.Time    // first arrival, exclusive
	Texts     []TextFilter // all must be found in path, headers or body
	Cursor    string       // opaque, from Page.Next; an event id is also valid and selects all older events
	Limit     int          // 1-200
	Budget    time.Duration
}

// StatusError is a value of Filter.Status that selects the events for which IsError is true.
const StatusError = "error"

// IsError reports whether an event counts as an error: it ended without being delivered,
// or its last response had a status of 400 or above.
func IsError(state string, status int) bool {
	switch state {
	case StateFailed, StateInterrupted, StateCanceled, StateRejected, StateIncomplete:
		return true
	}
	return status >= 400
}

// FieldFilter selects events whose decoded request body is JSON with the text Value at Path: a string,
// a number, true, false or null. A step of the path that is a number selects an element of an array;
// any other step searches all elements.
type FieldFilter struct {
	Path  []string
	Value string
}

// TextFilter selects events that contain the text. If Exact is set, letter case matters.
type TextFilter struct {
	Text  string
	Exact bool
}

// Page is one page of a list, newest first.
type Page struct {
	Events         []Event
	Next           string    // "" = there are no older events
	SearchedBackTo time.Time // first arrival of the oldest examined event
}

// NextClaim asks for the oldest attempt in the queue of an alias. If Auto is false, only replays
// and released events of callers are taken.
type NextClaim struct {
	Alias  int64
	Auto   bool
	Tunnel string // id of the tunnel that the attempt will go through
}

// Claim is an attempt with its event: one that this process may deliver, or a replay that has just been queued.
type Claim struct {
	Event *Event // event with its request and the claimed attempt; the parts of a large body are read with BodyPart
	N     int
}
