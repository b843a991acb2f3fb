package dashboard

import (
	"net/url"
	"strings"
	"time"

	"relay"
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
	v := &providerView{Name: providerName(p.Name), EventType: record.SafeText(p.EventType), DeliveryID: record.SafeText(p.DeliveryID)}
	if p.DeliveryID != "" {
		v.Same = withQuery(aliasPath(e.Alias), url.Values{"q": {p.DeliveryID}})
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

// providerNames are names as their owners write them, where that is not the word of
// the record with a capital.
var providerNames = map[string]string{
	"github": "GitHub", "gitlab": "GitLab", "woocommerce": "WooCommerce", "standard-webhooks": "Standard Webhooks", "sendgrid": "SendGrid",
	"aws-sns": "Amazon SNS", "hubspot": "HubSpot", "paypal": "PayPal", "circleci": "CircleCI", "lemonsqueezy": "Lemon Squeezy", "cloudevents": "CloudEvents",
}

// providerName is what people call a provider.
func providerName(word string) string {
	if name, special := providerNames[word]; special || word == "" {
		return name
	}
	return strings.ToUpper(word[:1]) + word[1:]
}
