package relay

import "time"

// Figures count what came to an alias within a time, for plots. They are exact for
// the time from From to To; nothing is estimated.
type Figures struct {
	// From is where counting began: the time asked for, or later when counting took
	// too long and stopped, newest events first.
	From, To time.Time
	Partial  bool // From is later than asked for
	// Buckets are equal parts of the time asked for, oldest first; those before From
	// are empty.
	Buckets []Bucket
	Total   Bucket
}

// Bucket is one part of the time.
type Bucket struct {
	From   time.Time
	Events int // that arrived in it
	// Errors are those of them that got no answer (failed, interrupted, rejected,
	// incomplete) or whose last answer was 400 or above.
	Errors int
	Latency
}

// Latency says how long local servers took: quantiles by nearest rank, so each is a
// latency that was measured. All are 0 when N is.
type Latency struct {
	N                  int // latencies measured
	P50, P95, P99, Max time.Duration
}
