package event

import (
	"net/url"
	"time"

	"relay"
	"relay/dashboard/page"
	"relay/record"
)

// providerView holds the known facts about the sender of an event.
type providerView struct {
	Name, EventType, DeliveryID string
	Word                        string // name of the sender in filters
	Signed                      time.Time
	Tolerance                   string
	Meaning                     string
	Until                       time.Time // time at the end of the sentence in Meaning, zero = the sentence has no time
	Expired                     bool
	Same                        string // address of the events with the same delivery id
}

// coreOf names members in the JSON of a sender: the member of an envelope that holds the payload, or
// the members that are folded because they are the same in every event.
type coreOf struct{ member, folded string }

var cores = map[string]coreOf{
	"stripe": {member: "data"}, "slack": {member: "event"}, "paddle": {member: "data"}, "standard-webhooks": {member: "data"}, "svix": {member: "data"},
	"cloudevents": {member: "data"}, "event-grid": {member: "data"}, "linear": {member: "data"}, "workos": {member: "data"}, "lemonsqueezy": {member: "data"},
	"paypal": {member: "resource"}, "square": {member: "data"}, "intercom": {member: "data"}, "calendly": {member: "payload"}, "zoom": {member: "payload"},
	"github": {folded: "repository organization sender installation enterprise"}, "gitlab": {folded: "project repository user"},
	"gitea": {folded: "repository sender"}, "forgejo": {folded: "repository sender"}, "gogs": {folded: "repository sender"},
}

// providerOf returns the sender of an event, and whether the sender's signature is still valid in a
// replay at the time now.
func providerOf(e *relay.Event, now time.Time) *providerView {
	p := &e.Provider
	if p.Name == "" {
		return nil
	}
	v := &providerView{Name: page.ProviderName(p.Name), Word: p.Name, EventType: record.SafeText(p.EventType), DeliveryID: record.SafeText(p.DeliveryID)}
	if p.DeliveryID != "" {
		v.Same = page.WithQuery(page.AliasPath(e.Alias), url.Values{"q": {p.DeliveryID}})
	}
	if p.SignedAt.IsZero() {
		return v
	}
	// The clock of the sender may be ahead, so that the signed time is later than now.
	age := max(0, now.Sub(p.SignedAt))
	v.Signed = p.SignedAt
	switch {
	case p.Tolerance <= 0:
		v.Meaning = "The provider's libraries do not check the age of signatures: a replay is verified like the original."
	case age > p.Tolerance:
		v.Tolerance, v.Expired = relay.FormatDuration(p.Tolerance), true
		v.Meaning = "Expired: a replay sends the old signature, which the provider's libraries refuse."
	default:
		v.Tolerance = relay.FormatDuration(p.Tolerance)
		v.Meaning, v.Until = "Valid for replays until", p.SignedAt.Add(p.Tolerance)
	}
	return v
}
