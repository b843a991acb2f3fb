package event

import (
	"net/url"
	"time"

	"relay"
	"relay/dashboard/page"
	"relay/record"
)

// providerView holds the known facts about the sender.
type providerView struct {
	Name, EventType, DeliveryID string
	Word                        string // the name in filters
	Signed                      time.Time
	Tolerance                   string
	Meaning                     string
	Until                       time.Time // ends the sentence of Meaning, zero = it has its own end
	Expired                     bool
	Same                        string // address of events that name the same delivery
}

// coreOf names the payload in the JSON of a sender: the member that holds it, within an envelope, or
// the members to fold because they are alike in every event.
type coreOf struct{ member, folded string }

var cores = map[string]coreOf{
	"stripe": {member: "data"}, "slack": {member: "event"}, "paddle": {member: "data"}, "standard-webhooks": {member: "data"}, "svix": {member: "data"},
	"cloudevents": {member: "data"}, "event-grid": {member: "data"}, "linear": {member: "data"}, "workos": {member: "data"}, "lemonsqueezy": {member: "data"},
	"paypal": {member: "resource"}, "square": {member: "data"}, "intercom": {member: "data"}, "calendly": {member: "payload"}, "zoom": {member: "payload"},
	"github": {folded: "repository organization sender installation enterprise"}, "gitlab": {folded: "project repository user"},
	"gitea": {folded: "repository sender"}, "forgejo": {folded: "repository sender"}, "gogs": {folded: "repository sender"},
}

// providerOf returns the sender of an event and the effect of a replay now on the check of its signature.
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
	age := max(0, now.Sub(p.SignedAt)) // the sender's clock may be ahead
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
