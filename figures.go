package relay

import "time"

// Figures are counts of the events of an alias in a time span, for plots. They are exact
// for the time between From and To.
type Figures struct {
	// From is the start of the counted span. Events are counted from the newest to the
	// oldest, so From is later than requested if counting took too long.
	From, To time.Time
	Partial  bool // From is later than requested
	// Buckets are equal parts of the requested span, oldest first; those before From
	// are empty.
	Buckets []Bucket
	Total   Bucket
	Types   []FigureType // counts by event type, the most frequent type first; requests without a type are left out
}

// FigureType counts the events of one type.
type FigureType struct {
	Type           string
	Events, Errors int
	Latency
}

// Bucket counts the events of one part of the span.
type Bucket struct {
	From   time.Time
	Events int
	Errors int // events for which IsError is true
	// Classes[n] is the number of events whose last response has a status with the first digit n; Classes[0] is
	// that of events without a response.
	Classes [10]int
	States  map[string]int // number of events by their state; nil without events
	Latency
}

// Latency has quantiles of the latency of local servers. They are computed by nearest
// rank, so that each is a measured value. All are 0 if N is 0.
type Latency struct {
	N                  int // number of measured latencies
	P50, P95, P99, Max time.Duration
}

// AliasHealth summarises the newest events of an alias in a time span.
type AliasHealth struct {
	Events, Errors int
	Parts          []AliasHealthPart // equal parts of the span, oldest first
	Partial        bool              // the span has older events that were not counted
	LastState      string            // state of the newest event; "" = no event in the span
	LastStatus     int
}

// AliasHealthPart counts the events of one part of the span.
type AliasHealthPart struct{ Events, Errors int }

// Failing reports whether the newest event counts as an error.
func (h *AliasHealth) Failing() bool { return h.LastState != "" && IsError(h.LastState, h.LastStatus) }
