package server

import (
	"context"

	"relay"
)

// Capturer takes the requests to aliases. delivery satisfies it.
type Capturer interface {
	// Alias looks a lower-case label up; memory only, strangers' labels cost no query.
	Alias(label string) (*relay.Alias, bool)
	// Capture runs one request to its end: event, delivery or queue, answer. ctx
	// ends when the server stops for good.
	Capture(ctx context.Context, in *relay.Inbound) relay.Outcome
	// Reject keeps a refused request of a known alias as an event, best effort; it
	// never blocks. head is as much as was read.
	Reject(in *relay.Inbound, why *relay.Error)
}
