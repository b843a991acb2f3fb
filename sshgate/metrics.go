package sshgate

import (
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"relay"
	"relay/admission"
	"relay/sshgate/login"
)

// Stats are current counts of the SSH server.
type Stats struct {
	Connections int   `json:"connections"` // all
	Handshaking int   `json:"handshaking"` // not logged in yet
	Prompting   int   `json:"prompting"`   // not logged in yet: the login waits for a person
	LoggedIn    int   `json:"loggedIn"`
	Enrolments  int   `json:"enrolments"` // keys that wait for approval
	Tunnels     int   `json:"tunnels"`
	Penalised   int   `json:"penalised"` // sources that are rejected for failed logins
	Accepted    int64 `json:"accepted"`  // since the start
	Dropped     int64 `json:"dropped"`   // since the start, at a limit or by a penalty
	Refused     int64 `json:"refused"`   // logins, since the start
}

// loginOK is the result of a successful login, in the metrics.
const loginOK = "ok"

// forwardCodes are the known codes of refused forwards; otherCode stands for all others.
var forwardCodes = []string{
	relay.CodeNotFound, relay.CodeValidationFailed, relay.CodeConflict, relay.CodeOverloaded, relay.CodeStopping,
	relay.CodeStoreUnavailable, relay.CodeInternal, otherCode,
}

const otherCode = "other"

// dropReasons are the reasons, in the metrics, for closing connections at a limit or by a penalty.
var dropReasons = []string{
	admission.ReasonPenalty, admission.ReasonTotal, admission.ReasonSource, admission.ReasonUnauthenticated, admission.ReasonFiles,
}

// metrics holds the metrics of the SSH server; docs/metrics.md explains them.
type metrics struct {
	channelsCut                      prometheus.Counter
	drops, logins, refusals, enrolls *prometheus.CounterVec

	accepted, dropped, refused atomic.Int64 // counts for Stats
}

// newMetrics makes the counters and registers them, unless reg is nil.
func newMetrics(srv *Server, reg prometheus.Registerer) *metrics {
	logins := append([]string{loginOK}, login.Names()...)
	f := promauto.With(reg)
	m := &metrics{
		channelsCut: f.NewCounter(prometheus.CounterOpts{
			Name: "relay_sshgate_channels_cut_total",
			Help: "Tunnel channels closed because what their peer sent found no buffer space.",
		}),
		drops:    vector(f, "relay_sshgate_dropped_total", "Connections closed at a limit or by a penalty, by reason.", "reason", dropReasons),
		logins:   vector(f, "relay_sshgate_logins_total", "Connections that have ended or logged in, by what became of their login.", "result", logins),
		refusals: vector(f, "relay_sshgate_forwards_refused_total", "Forwards refused, by code.", "code", forwardCodes),
		enrolls:  vector(f, "relay_sshgate_enrolments_total", "Keys that asked to be let in, by how that ended.", "result", login.EnrolEnds),
	}
	m.counted(srv, f)
	return m
}

// counted registers the metrics that are computed at each scrape.
func (m *metrics) counted(srv *Server, f promauto.Factory) {
	gauge := func(name, help string, labels prometheus.Labels, count func() int) {
		o := prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}
		f.NewGaugeFunc(o, func() float64 { return float64(count()) })
	}
	counter := func(name, help string, labels prometheus.Labels, count func() int64) {
		o := prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}
		f.NewCounterFunc(o, func() float64 { return float64(count()) })
	}
	state := func(s string) prometheus.Labels { return prometheus.Labels{"state": s} }
	direction := func(d string) prometheus.Labels { return prometheus.Labels{"direction": d} }
	connections := func(s string, is admission.Class) {
		gauge("relay_sshgate_connections", "SSH connections now, by the state of their login.", state(s), func() int { return srv.front.Counts()[is] })
	}
	connections("handshaking", admission.Unknown)
	connections("prompting", admission.Prompting)
	connections("logged_in", admission.LoggedIn)
	connections("node", admission.Node)
	connections("node_handshaking", admission.NodeLogin)
	counter("relay_sshgate_accepted_total", "Connections accepted by the SSH listener, dropped ones included.", nil, m.accepted.Load)
	gauge("relay_sshgate_left_calls", "Goroutines of ended connections that wait in the SSH library for an answer that never comes.", nil,
		func() int { return int(srv.work.Left()) })
	gauge("relay_sshgate_tunnels", "Aliases attached now.", nil, func() int { return srv.Stats().Tunnels })
	gauge("relay_sshgate_penalised_sources", "Sources rejected now for failed logins.", nil, srv.penalties.Sources)
	const nodes, channels = "Other living nodes, by whether this one has a connection to them.", "Channels between nodes, by who opened them."
	gauge("relay_sshgate_peers", nodes, state("reachable"), func() int { n, _ := srv.Reached(); return n })
	gauge("relay_sshgate_peers", nodes, state("unreachable"), func() int { n, all := srv.Reached(); return all - n })
	counter("relay_sshgate_peer_channels_total", channels, direction("out"), func() int64 { n, _ := srv.Forwarded(); return n })
	counter("relay_sshgate_peer_channels_total", channels, direction("in"), func() int64 { _, n := srv.Forwarded(); return n })
	buffer := srv.o.Budget.Stats
	gauge("relay_buffer_bytes", "Bytes reserved for what peers sent, and for answers built for them, that nobody took yet.", nil, func() int { return int(buffer().Used) })
	gauge("relay_buffer_limit_bytes", "Most bytes that may be reserved so.", nil, func() int { return int(buffer().Limit) })
	counter("relay_buffer_refused_total", "Reservations refused, of new requests and of answers under way.", nil, func() int64 { return buffer().Refused })
}

// vector makes a counter for each value of a label.
func vector(f promauto.Factory, name, help, label string, values []string) *prometheus.CounterVec {
	v := f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	for _, value := range values {
		v.WithLabelValues(value)
	}
	return v
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

// Stats returns current counts. It holds locks only briefly.
func (srv *Server) Stats() Stats {
	by := srv.front.Counts()
	s := Stats{
		Connections: by.All(), Handshaking: by[admission.Unknown], Prompting: by[admission.Prompting],
		LoggedIn: by[admission.LoggedIn], Penalised: srv.penalties.Sources(),
		Accepted: srv.metrics.accepted.Load(), Dropped: srv.metrics.dropped.Load(), Refused: srv.metrics.refused.Load(),
	}
	for _, c := range srv.all() {
		s.Tunnels += len(c.attached())
		if c.login.Enrolling() {
			s.Enrolments++
		}
	}
	return s
}
