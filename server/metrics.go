package server

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"relay"
	"relay/admission"
)

// codeQueued is the label of the offline answer, and codeAnswered that of the answer to a challenge: neither
// is an error, so neither has a code. codeOther is the label of the codes that have no counter of their own.
const (
	codeQueued   = "queued"
	codeAnswered = "answered"
	codeOther    = "other"
)

// refusalCodes are the codes of requests that this package refuses and has stored as rejected events.
var refusalCodes = []string{
	relay.CodeRequestMalformed, relay.CodeMethodNotSupported, relay.CodeTransferCodingUnsupported,
	relay.CodeHTTPVersionUnsupported, relay.CodeRequestTimeout, relay.CodeTargetTooLong, relay.CodeHeadTooLarge,
	codeOther,
}

// otherCodes are the other codes of relay-made answers.
var otherCodes = []string{
	relay.CodeAliasNotFound, relay.CodeHostUnknown, relay.CodeBodyTooLarge,
	relay.CodeLocalRefused, relay.CodeLocalUnresolvable, relay.CodeLocalClosed, relay.CodeLocalMalformed,
	relay.CodeLocalTimeout, relay.CodeTunnelLost, relay.CodeQueueFull, relay.CodeStorageFull,
	relay.CodeStoreUnavailable, relay.CodeOverloaded, relay.CodeStopping, relay.CodeInternal,
	codeQueued, codeAnswered,
}

// counterByLabel holds the counters of a vector by its single label. They are resolved at the start,
// so that counting a request allocates nothing.
type counterByLabel map[string]prometheus.Counter

// count adds one. A label that is not in the map counts as other.
func (m counterByLabel) count(label string) {
	c, ok := m[label]
	if !ok {
		c = m[codeOther]
	}
	c.Inc()
}

// metrics are the counters of docs/metrics.md that this package keeps.
type metrics struct {
	accepted, failed prometheus.Counter
	panics           prometheus.Counter
	refused, evicted counterByLabel // by the limit that was reached
	captured, base   prometheus.Counter
	made             counterByLabel // relay-made answers, by code
	rejected         counterByLabel // rejected requests, by code
}

// newMetrics makes the counters and registers them, unless reg is nil.
func newMetrics(s *Server, reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	answered := counter("relay_http_requests_total", "Requests answered, by who made the answer and, for relay-made ones, its code.", "answer", "code")
	refused := counter("relay_http_refused_total", "Connections refused because a bound was reached and no connection was idle, by bound.", "bound")
	evicted := counter("relay_http_evicted_total", "Idle connections closed to make way for others, by the bound that was reached.", "bound")
	rejected := counter("relay_http_rejected_total", "Requests to aliases that were refused before delivery, by code.", "code")
	// The count runs only when the metrics are read, so it costs requests nothing.
	connections := func(phase string, count func() int) {
		o := prometheus.GaugeOpts{Name: "relay_http_connections", Help: "Connections now, by phase.", ConstLabels: prometheus.Labels{"phase": phase}}
		f.NewGaugeFunc(o, func() float64 { return float64(count()) })
	}
	for phase, name := range phaseNames {
		connections(name, func() (n int) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for c := range s.conns {
				if c.phase.Load() == int32(phase) {
					n++
				}
			}
			return n
		})
	}
	connections("base", func() int { return s.Stats().Base }) // connections that net/http owns
	return &metrics{
		accepted: counter("relay_http_accepted_total", "Connections accepted by the HTTP and TLS listeners, refused ones included.").WithLabelValues(),
		failed:   counter("relay_http_accept_failures_total", "Accepts that failed, for example because no file descriptors were left.").WithLabelValues(),
		panics:   counter("relay_http_panics_total", "Connections that ended because serving them panicked; the log has the stack.").WithLabelValues(),
		captured: answered.WithLabelValues("captured", ""), // answers of local servers, and captures without an answer
		base:     answered.WithLabelValues("base", ""),
		made:     byLabel(answered.MustCurryWith(prometheus.Labels{"answer": "relay"}), slices.Concat(refusalCodes, otherCodes)...),
		rejected: byLabel(rejected, refusalCodes...),
		refused:  byLabel(refused, admission.ReasonTotal, admission.ReasonSource, admission.ReasonFiles),
		evicted:  byLabel(evicted, admission.ReasonTotal, admission.ReasonSource, admission.ReasonFiles),
	}
}

// byLabel returns the counters of a vector for the values of its single label.
func byLabel(vec *prometheus.CounterVec, values ...string) counterByLabel {
	m := counterByLabel{}
	for _, v := range values {
		m[v] = vec.WithLabelValues(v)
	}
	return m
}

// phaseNames holds the metric labels of the phases of a conn.
var phaseNames = [...]string{
	phaseNew: "new", phaseIdle: "idle", phaseHead: "head", phaseBusy: "busy", phaseLinger: "linger",
}
