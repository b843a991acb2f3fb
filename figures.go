package relay

import "time"

// Figures count the events of an alias in a time span, for plots. They are exact for
// the time from From to To.
type Figures struct {
	// From is the start of the counted span. Events are counted from the newest one
	// backwards, so it is later than asked for if counting took too long.
	From, To time.Time
	Partial  bool // From is later than asked for
	// Buckets are equal parts of the requested span, oldest first; those before From
	// are empty.
	Buckets []Bucket
	Total   Bucket
}

// Bucket counts the events of one part of the span.
type Bucket struct {
	From   time.Time
	Events int
	// Errors counts events without a response (failed, interrupted, rejected,
	// incomplete) and those whose last response was 400 or above.
	Errors int
	Latency
}

// Latency has quantiles of the latency of local servers, by nearest rank, so that each
// is a measured value. All are 0 if N is.
type Latency struct {
	N                  int // latencies measured
	P50, P95, P99, Max time.Duration
}
