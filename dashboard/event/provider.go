package event

import (
	"net/url"
	"time"

	"relay"
	"relay/dashboard/page"
	"relay/record"
)

// providerView is what is known about the sender.
type providerView struct {
	Name, EventType, DeliveryID string
	Signed                      time.Time
	Tolerance                   string
	Meaning                     string
	Until                       time.Time // ends the sentence of Meaning, zero = it has its own end
	Expired                     bool
	Same                        string // address of events that name the same delivery
}

// providerOf says who sent it and what a replay now would mean to the check of its
// signature.
func providerOf(e *relay.Event, now time.Time) *providerView {
	p := &e.Provider
	if p.Name == "" {
		return nil
	}
	v := &providerView{Name: page.ProviderName(p.Name), EventType: record.SafeText(p.EventType), DeliveryID: record.SafeText(p.DeliveryID)}
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
		v.Meaning = "Expired: a replay sends the signature unchanged and the provider's libraries reject it. Raise the tolerance in your code while you replay."
	default:
		v.Tolerance = relay.FormatDuration(p.Tolerance)
		v.Meaning, v.Until = "Valid for replays until", p.SignedAt.Add(p.Tolerance)
	}
	return v
}
