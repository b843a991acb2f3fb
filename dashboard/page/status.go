package page

import (
	"strconv"
	"strings"

	"relay"
	"relay/record"
)

// Part returns how much of a whole a value is, as a coordinate in a box of that size.
func Part(value, whole, size float64) string {
	if whole <= 0 {
		return "0"
	}
	return strconv.FormatFloat(size*value/whole, 'f', 1, 64)
}

// providerNames are names as their owners write them, where that is not the word of
// the record with a capital.
var providerNames = map[string]string{
	"github": "GitHub", "gitlab": "GitLab", "woocommerce": "WooCommerce", "standard-webhooks": "Standard Webhooks", "sendgrid": "SendGrid",
	"aws-sns": "Amazon SNS", "hubspot": "HubSpot", "paypal": "PayPal", "circleci": "CircleCI", "lemonsqueezy": "Lemon Squeezy", "cloudevents": "CloudEvents",
}

// ProviderName returns what people call a provider.
func ProviderName(word string) string {
	if name, special := providerNames[word]; special || word == "" {
		return name
	}
	return strings.ToUpper(word[:1]) + word[1:]
}

// Pill shows the result of an event or attempt: its status, or its state without one.
type Pill struct{ Outcome, Class string }

// PillOf shows the status, or the state where there is none.
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

// OptionalMillis is "" where no time was measured.
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
