package page

import (
	"strconv"
	"strings"

	"relay"
	"relay/record"
)

// Part returns value/whole as a coordinate in a box of the given size.
func Part(value, whole, size float64) string {
	if whole <= 0 {
		return "0"
	}
	return strconv.FormatFloat(size*value/whole, 'f', 1, 64)
}

// providerNames are the display names of the providers for which the name in the record with a capital first
// letter is not the usual spelling.
var providerNames = map[string]string{
	"github": "GitHub", "gitlab": "GitLab", "woocommerce": "WooCommerce", "standard-webhooks": "Standard Webhooks", "sendgrid": "SendGrid",
	"aws-sns": "Amazon SNS", "hubspot": "HubSpot", "paypal": "PayPal", "circleci": "CircleCI", "lemonsqueezy": "Lemon Squeezy", "cloudevents": "CloudEvents",
}

// ProviderName returns the usual spelling of a provider's name.
func ProviderName(word string) string {
	if name, special := providerNames[word]; special || word == "" {
		return name
	}
	return strings.ToUpper(word[:1]) + word[1:]
}

// ProviderMark returns the first two letters of a provider's name, for places that are too narrow for
// the name.
func ProviderMark(word string) string {
	name := []rune(ProviderName(word))
	return string(name[:min(2, len(name))])
}

// Pill is the label for the result of an event or attempt: the status of the response, or the state if
// there is no response.
type Pill struct{ Outcome, Class string }

// PillOf returns the label for a status, or for a state if there is no status.
func PillOf(state string, status *int) Pill {
	if status == nil {
		return Pill{state, "state " + state}
	}
	return Pill{strconv.Itoa(*status), "s" + strconv.Itoa(*status/100%10)}
}

// AttemptPill returns the pill of an attempt.
func AttemptPill(a *relay.Attempt) Pill {
	if a.HasResponse {
		return PillOf(a.State, &a.Status)
	}
	return PillOf(a.State, nil)
}

// OptionalMillis formats milliseconds; "" = no time was measured.
func OptionalMillis(ms *float64) string {
	if ms == nil {
		return ""
	}
	return record.MillisText(*ms)
}

// sentence adds a full stop to the text of an error, which has none in the API.
func sentence(text string) string {
	if text == "" || strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}
