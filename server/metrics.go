package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"relay"
)

// Kinds of answers, as metrics name them.
const (
	byCapture = "captured" // the capture wrote it, or nothing: the local server's
	byRelay   = "relay"    // relay-made
	byBase    = "base"     // base site
)

// codeQueued stands for the offline answer, which is no error and has no code;
// codeOther for a code that is in neither list.
const (
	codeQueued = "queued"
	codeOther  = "other"
)

// refusalCodes are those of requests that the front door refuses and has kept.
var refusalCodes = []string{
	relay.CodeRequestMalformed, relay.CodeMethodNotSupported, relay.CodeTransferCodingUnsupported,
	relay.CodeHTTPVersionUnsupported, relay.CodeRequestTimeout, relay.CodeTargetTooLong, relay.CodeHeadTooLarge,
	codeOther,
}

// otherCodes are the other ones of relay-made answers.
var otherCodes = []string{
	relay.CodeAliasNotFound, relay.CodeHostUnknown, relay.CodeBodyTooLarge,
	relay.CodeLocalRefused, relay.CodeLocalUnresolvable, relay.CodeLocalClosed, relay.CodeLocalMalformed,
	relay.CodeLocalTimeout, relay.CodeTunnelLost, relay.CodeQueueFull, relay.CodeStorageFull,
	relay.CodeStoreUnavailable, relay.CodeOverloaded, relay.CodeStopping, relay.CodeInternal,
	codeQueued,
}

// byLabel are counters that were resolved beforehand, by the one label that varies:
// counting a request allocates nothing.
type byLabel map[string]prometheus.Counter

// count adds one; labels that nobody foresaw are counted as other.
func (m byLabel) count(label string) {
	c, ok := m[label]
	if !ok {
		c = m[codeOther]
	}
	c.Inc()
}

// metrics are the figures of the front door; docs/metrics.md says what they mean.
type metrics struct {
	accepted, failed prometheus.Counter
	refused, shed    byLabel // by bound
	captured, base   prometheus.Counter
	made             byLabel // relay-made answers by code
	rejected         byLabel // by code
}

// newMetrics makes the counters and registers them; nothing is registered on nil.
func newMetrics(s *Server, reg prometheus.Registerer) *metrics {
	accepted := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "relay_http_accepted_total",
		Help: "Connections accepted by the HTTP and TLS listeners, refused ones included.",
	})
	failed := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "relay_http_accept_failures_total",
		Help: "Accepts that failed, as for want of file descriptors.",
	})
	refused := counters("relay_http_refused_total", "Connections turned away because every place was taken and busy, by the bound that was reached.", "bound")
	shed := counters("relay_http_shed_total", "Idle connections closed to make a place for another one, by the bound that was reached.", "bound")
	answered := counters("relay_http_requests_total", "Requests answered, by who made the answer and, for relay-made ones, its code.", "answer", "code")
	rejected := counters("relay_http_rejected_total", "Requests to aliases refused by the front door and given away as rejected events, by code.", "code")
	if reg != nil {
		for _, c := range []prometheus.Collector{accepted, failed, refused, shed, answered, rejected, phases{s}} {
			if err := reg.Register(c); err != nil {
				s.log.Warn("register metrics of the front door", "err", err)
			}
		}
	}
	m := &metrics{
		accepted: accepted, failed: failed,
		refused: byLabel{}, shed: byLabel{}, made: byLabel{}, rejected: byLabel{},
		captured: answered.WithLabelValues(byCapture, ""),
		base:     answered.WithLabelValues(byBase, ""),
	}
	for _, bound := range []string{forTotal, forSource} {
		m.refused[bound], m.shed[bound] = refused.WithLabelValues(bound), shed.WithLabelValues(bound)
	}
	m.shed[forFiles] = shed.WithLabelValues(forFiles)
	for _, code := range refusalCodes {
		m.made[code], m.rejected[code] = answered.WithLabelValues(byRelay, code), rejected.WithLabelValues(code)
	}
	for _, code := range otherCodes {
		m.made[code] = answered.WithLabelValues(byRelay, code)
	}
	return m
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// phases counts the connections by what they are at when it is asked, so that the
// requests need not.
type phases struct{ srv *Server }

var phaseDesc = prometheus.NewDesc("relay_http_connections",
	"Connections now, by phase.", []string{"phase"}, nil)

// phaseNames go by the phases of conn; the last one is that of connections that
// net/http owns.
var phaseNames = [...]string{
	phaseNew: "new", phaseIdle: "idle", phaseHead: "head", phaseBusy: "busy", phaseLinger: "linger",
	phaseLinger + 1: "base",
}

// Describe is part of prometheus.Collector.
func (p phases) Describe(to chan<- *prometheus.Desc) { to <- phaseDesc }

// Collect is part of prometheus.Collector.
func (p phases) Collect(to chan<- prometheus.Metric) {
	var n [len(phaseNames)]int
	p.srv.mu.Lock()
	for c := range p.srv.conns {
		n[c.phase.Load()]++
	}
	p.srv.mu.Unlock()
	_, n[len(n)-1] = p.srv.crowd.count()
	for i, name := range phaseNames {
		to <- prometheus.MustNewConstMetric(phaseDesc, prometheus.GaugeValue, float64(n[i]), name)
	}
}
