package sshgate

import (
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"relay"
)

// Stats are counts of the gate as they stand.
type Stats struct {
	Connections int    `json:"connections"` // all
	Handshaking int    `json:"handshaking"` // not logged in yet
	Prompting   int    `json:"prompting"`   // not logged in yet: the login waits for a person
	LoggedIn    int    `json:"loggedIn"`
	Enrolments  int    `json:"enrolments"` // keys that wait for approval
	Tunnels     int    `json:"tunnels"`
	Penalised   int    `json:"penalised"` // sources that are kept out
	Accepted    uint64 `json:"accepted"`  // since the start
	Dropped     uint64 `json:"dropped"`   // since the start, at a limit or by a penalty
	Refused     uint64 `json:"refused"`   // logins, since the start
}

// Results of connections, as far as logging in goes.
const (
	loginOK      = "ok"
	loginRefused = "refused"
	loginSlow    = "timeout"
	loginNone    = "none"        // nobody tried
	loginVain    = "unapproved"  // a proven key that nobody let in
	loginOurs    = "unavailable" // the store could not answer, a limit was reached, or the node was too busy
)

var loginResults = []string{loginOK, loginRefused, loginSlow, loginNone, loginVain, loginOurs}

// forwardCodes are why forwards are refused.
var forwardCodes = []string{
	relay.CodeNotFound, relay.CodeValidationFailed, relay.CodeConflict, relay.CodeOverloaded, relay.CodeStopping,
	relay.CodeStoreUnavailable, relay.CodeInternal, otherCode,
}

// otherCode stands for what was not foreseen.
const otherCode = "other"

// metrics are the figures of the gate; docs/metrics.md says what they mean.
type metrics struct {
	accepted, channelsCut            prometheus.Counter
	drops, logins, refusals, enrolls *prometheus.CounterVec

	came, dropped, refused atomic.Uint64 // of these, for Stats
}

// newMetrics makes the counters and registers them; nothing is registered on nil.
func newMetrics(srv *Server, reg prometheus.Registerer) *metrics {
	ends := make([]string, 0, len(enrolEnds))
	for _, how := range enrolEnds {
		ends = append(ends, string(how))
	}
	m := &metrics{
		accepted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "relay_sshgate_accepted_total",
			Help: "Connections accepted by the SSH listener, dropped ones included.",
		}),
		channelsCut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "relay_sshgate_channels_cut_total",
			Help: "Tunnel channels closed because what their peer sent found no buffer space.",
		}),
		drops: vector("relay_sshgate_dropped_total", "Connections closed at a limit or by a penalty, by reason.", "reason", dropReasons),
		logins: vector("relay_sshgate_logins_total", "Connections that have ended or logged in, by what became of their login.", "result",
			loginResults),
		refusals: vector("relay_sshgate_forwards_refused_total", "Forwards refused, by code.", "code", forwardCodes),
		enrolls:  vector("relay_sshgate_enrolments_total", "Keys that asked to be let in, by how that ended.", "result", ends),
	}
	if reg == nil {
		return m
	}
	for _, c := range []prometheus.Collector{m.accepted, m.channelsCut, m.drops, m.logins, m.refusals, m.enrolls, gauges{srv}} {
		if err := reg.Register(c); err != nil {
			srv.o.Log.Warn("register metrics of the ssh server", "err", err)
		}
	}
	return m
}

// vector makes counters for every value that a label can have.
func vector(name, help, label string, values []string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	for _, value := range values {
		v.WithLabelValues(value)
	}
	return v
}

func (m *metrics) accept() {
	m.came.Add(1)
	m.accepted.Inc()
}

func (m *metrics) drop(reason string) {
	m.dropped.Add(1)
	m.drops.WithLabelValues(reason).Inc()
}

func (m *metrics) forwardRefused(code string) {
	if !slices.Contains(forwardCodes, code) {
		code = otherCode
	}
	m.refusals.WithLabelValues(code).Inc()
}

func (m *metrics) enrolment(how string) { m.enrolls.WithLabelValues(how).Inc() }

func (m *metrics) login() { m.logins.WithLabelValues(loginOK).Inc() }

// noLogin counts a connection that ended without a login.
func (m *metrics) noLogin(f loginResult) {
	result := loginNone
	switch f {
	case resultRefused:
		m.refused.Add(1)
		result = loginRefused
	case resultTimeout:
		result = loginSlow
	case resultUnapproved:
		result = loginVain
	case resultUnavailable:
		result = loginOurs
	}
	m.logins.WithLabelValues(result).Inc()
}

// Stats counts. It takes locks for moments only.
func (srv *Server) Stats() Stats {
	by := srv.limiter.counts()
	return Stats{
		Connections: by.all(), Handshaking: by[stateUnauthenticated], Prompting: by[statePrompting],
		LoggedIn: by[stateLoggedIn], Enrolments: srv.enrolments.count(), Tunnels: srv.tunnels(),
		Penalised: srv.penalties.sources(),
		Accepted:  srv.metrics.came.Load(), Dropped: srv.metrics.dropped.Load(), Refused: srv.metrics.refused.Load(),
	}
}

// tunnels counts the forwards that are attached.
func (srv *Server) tunnels() (n int) {
	for _, c := range srv.all() {
		n += len(c.attached())
	}
	return n
}

// gauges are the figures that are counted when somebody looks.
type gauges struct{ srv *Server }

var (
	connectionsDesc = prometheus.NewDesc("relay_sshgate_connections", "SSH connections now, by the state of their login.", []string{"state"}, nil)
	tunnelsDesc     = prometheus.NewDesc("relay_sshgate_tunnels", "Aliases attached now.", nil, nil)
	bufferDesc      = prometheus.NewDesc("relay_buffer_bytes", "Bytes reserved for what peers sent and nobody took yet.", nil, nil)
	bufferLimitDesc = prometheus.NewDesc("relay_buffer_limit_bytes", "Most bytes that may be reserved so.", nil, nil)
	bufferFullDesc  = prometheus.NewDesc("relay_buffer_refused_total", "Reservations refused, of new requests and of answers under way.", nil, nil)
	peersDesc       = prometheus.NewDesc("relay_sshgate_peers", "Other living nodes, by whether this one has a connection to them.", []string{"state"}, nil)
	peerChanDesc    = prometheus.NewDesc("relay_sshgate_peer_channels_total", "Channels between nodes, by who opened them.", []string{"direction"}, nil)
	penalisedDesc   = prometheus.NewDesc("relay_sshgate_penalised_sources", "Sources kept out now for failed logins.", nil, nil)
)

// Describe implements prometheus.Collector.
func (gauges) Describe(to chan<- *prometheus.Desc) {
	to <- connectionsDesc
	to <- tunnelsDesc
	to <- penalisedDesc
	to <- peersDesc
	to <- peerChanDesc
	to <- bufferDesc
	to <- bufferLimitDesc
	to <- bufferFullDesc
}

// Collect implements prometheus.Collector.
func (c gauges) Collect(to chan<- prometheus.Metric) {
	s := c.srv.Stats()
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	gauge(connectionsDesc, s.Handshaking, "handshaking")
	gauge(connectionsDesc, s.Prompting, "prompting")
	gauge(connectionsDesc, s.LoggedIn, "logged_in")
	gauge(tunnelsDesc, s.Tunnels)
	gauge(penalisedDesc, s.Penalised)
	reached, all := c.srv.Reached()
	gauge(peersDesc, reached, "reachable")
	gauge(peersDesc, all-reached, "unreachable")
	out, in := c.srv.Forwarded()
	to <- prometheus.MustNewConstMetric(peerChanDesc, prometheus.CounterValue, float64(out), "out")
	to <- prometheus.MustNewConstMetric(peerChanDesc, prometheus.CounterValue, float64(in), "in")
	b := c.srv.o.Budget.Stats()
	to <- prometheus.MustNewConstMetric(bufferDesc, prometheus.GaugeValue, float64(b.Used))
	to <- prometheus.MustNewConstMetric(bufferLimitDesc, prometheus.GaugeValue, float64(b.Limit))
	to <- prometheus.MustNewConstMetric(bufferFullDesc, prometheus.CounterValue, float64(b.Refused))
}
