package delivery

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"relay"
	"relay/delivery/spares"
)

// Label values that are not error codes.
const (
	outcomeAnswered  = "answered" // the local server's answer was sent, or the caller had left
	outcomeQueued    = "queued"
	outcomeHandshake = "handshake" // the relay has answered a registration challenge
	outcomeRefused   = "refused"   // any other outcome, in the durations only; captures_total has the error code instead
	labelOther       = "other"

	kindQueued = "queued" // an attempt from the queue: an original or a replay
)

var outcomes = []string{
	outcomeAnswered, outcomeQueued, outcomeHandshake,
	relay.CodeRequestMalformed, relay.CodeRequestTimeout, relay.CodeBodyTooLarge, relay.CodeLocalRefused, relay.CodeLocalUnresolvable,
	relay.CodeLocalClosed, relay.CodeLocalMalformed, relay.CodeLocalTimeout, relay.CodeTunnelLost, relay.CodeQueueFull,
	relay.CodeStorageFull, relay.CodeStoreUnavailable, relay.CodeOverloaded, relay.CodeStopping, labelOther,
}

// counts holds the metrics; docs/metrics.md explains each. Labels are resolved once, so that an
// observation costs no lookup by several labels.
type counts struct {
	outcomes map[string]prometheus.Counter    // outcomes of captures
	opened   map[string]prometheus.Counter    // channels that requests got, by way: new, reused or spare
	refused  map[string]prometheus.Counter    // requests that got no channel, by error code
	ended    map[[2]string]prometheus.Counter // attempts, by kind and state
	statuses [10]prometheus.Counter           // responses of local servers, by the first digit of the status; element 0 is nil

	requeued, attached, takenOver prometheus.Counter
	reuseEnded                    prometheus.Counter
	rejected, dropped             prometheus.Counter
	waiting                       prometheus.Gauge // requests that wait for a slot
	storageFull                   atomic.Int64

	capture                   map[string]prometheus.Observer    // durations of captures, by outcome
	attempt                   map[[2]string]prometheus.Observer // durations of attempts, by kind and state
	connect, firstByte, added prometheus.Histogram
}

const namespace = "relay_delivery_"

// resolve returns the metric of each value in labels, for a vector with one label.
func resolve[M any](vector func(...string) M, labels ...string) map[string]M {
	m := make(map[string]M, len(labels))
	for _, l := range labels {
		m[l] = vector(l)
	}
	return m
}

// count adds 1 to the counter of a label; an unknown label counts as other.
func count(m map[string]prometheus.Counter, label string) {
	c, ok := m[label]
	if !ok {
		c = m[labelOther]
	}
	c.Inc()
}

// init makes the metrics and registers them, unless reg is nil.
func (c *counts) init(d *Delivery, reg prometheus.Registerer) {
	f := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: namespace + name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: namespace + name, Help: help}, labels)
	}
	c.outcomes = resolve(counters("captures_total", "Requests of callers that ended, by outcome.", "outcome").WithLabelValues, outcomes...)
	c.opened = resolve(counters("channels_total", "Channels given to a request, by way.", "way").WithLabelValues,
		relay.ConnectionNew, relay.ConnectionReused, spares.Way)
	c.refused = resolve(counters("channels_refused_total", "Requests that got no channel, by reason.", "reason").WithLabelValues,
		relay.CodeOverloaded, relay.CodeLocalRefused, relay.CodeLocalUnresolvable, relay.CodeLocalTimeout, relay.ErrNotSent.Code, labelOther)
	classes := counters("responses_total", "Final answers of local servers, by class of their status.", "class")
	for i := 1; i < len(c.statuses); i++ {
		c.statuses[i] = classes.WithLabelValues(strconv.Itoa(i) + "xx")
	}
	c.requeued = counter("requeued_total", "Attempts put back into the queue because not one byte of them left.")
	c.attached = counter("attached_total", "Tunnels that took an alias.")
	c.takenOver = counter("taken_over_total", "Tunnels that lost their alias to a newer one.")
	c.reuseEnded = counter("reuse_ended_total", "Tunnels whose connections to the local server are not reused any more, because it misunderstood a request.")
	c.rejected = counter("rejected_total", "Refused requests that were stored as events.")
	c.dropped = counter("rejected_dropped_total", "Refused requests that were not stored: more than 60 a minute at an alias, or no room.")
	c.waiting = f.NewGauge(prometheus.GaugeOpts{Name: namespace + "channels_waiting", Help: "Requests that wait for a slot on their tunnel."})
	f.NewCounterFunc(prometheus.CounterOpts{Name: namespace + "storage_full_total", Help: "Requests that were not taken for want of room."},
		func() float64 { return float64(c.storageFull.Load()) })
	c.initGauges(d, f)

	options := func(name, help string) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{
			Name: namespace + name, Help: help,
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60},
		}
	}
	c.connect = f.NewHistogram(options("connect_seconds", "Time to open a channel through the tunnel; reused channels are not counted."))
	c.firstByte = f.NewHistogram(options("first_byte_seconds", "Time from the opening of the channel to the first byte of the local server's answer."))
	c.added = f.NewHistogram(options("added_seconds", "Time that the relay added to an answered request: its duration without sending, waiting and receiving."))
	capture := f.NewHistogramVec(options("capture_seconds", "Time from the head of a caller's request to its answer, by outcome."), []string{"outcome"})
	c.capture = resolve(capture.WithLabelValues, outcomeAnswered, outcomeQueued, outcomeHandshake, outcomeRefused)
	ended := counters("attempts_total", "Attempts that ended, by kind and state.", "kind", "state")
	attempt := f.NewHistogramVec(options("attempt_seconds", "Latency of attempts that ended, by kind and state."), []string{"kind", "state"})
	c.ended, c.attempt = map[[2]string]prometheus.Counter{}, map[[2]string]prometheus.Observer{}
	for _, kind := range []string{relay.KindOriginal, relay.KindReplay, kindQueued} {
		for _, state := range []string{relay.StateDelivered, relay.StateFailed, relay.StateInterrupted, relay.StateAnswered} {
			if state == relay.StateAnswered && kind != relay.KindOriginal {
				continue
			}
			c.ended[[2]string{kind, state}] = ended.WithLabelValues(kind, state)
			c.attempt[[2]string{kind, state}] = attempt.WithLabelValues(kind, state)
		}
	}
}

// initGauges makes the metrics that are read from d when Prometheus asks for them.
func (c *counts) initGauges(d *Delivery, f promauto.Factory) {
	gauge := func(name, help string, labels prometheus.Labels, get func() int) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Name: namespace + name, Help: help, ConstLabels: labels}, func() float64 { return float64(get()) })
	}
	gauge("running", "Captures, replays and queued deliveries under way.", nil, d.countRunning)
	gauge("channels", "Channels of tunnels that are open, idle ones included.", nil, d.registry.Channels)
	gauge("viewers", "Subscribers of the live feed.", nil, d.feed.Viewers)
	gauge("feed_bytes", "Bytes of the changes that wait for subscribers of the live feed.", nil, d.feed.Bytes)
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: namespace + "account_queue_max_ratio", Help: "Largest part of its limit that an account has queued at all its aliases; 0 without a limit."},
		func() float64 { return d.registry.FullestQueue(d.queueLimits()) })
	gauge("queued", "Attempts that wait in queues.", nil, func() int { return d.Stats().Queued })
	for _, state := range []relay.TunnelState{relay.TunnelOnline, relay.TunnelStale} {
		gauge("tunnels", "Aliases with a tunnel, by its state.", prometheus.Labels{"state": string(state)}, func() int {
			tunnels, _ := d.registry.Count()
			return tunnels[state]
		})
	}
}

// tunnelAttached counts a tunnel that was attached to an alias.
func (c *counts) tunnelAttached(takenOver bool) {
	c.attached.Inc()
	if takenOver {
		c.takenOver.Inc()
	}
}

// captured counts the outcome of a capture that began at start, and returns the outcome.
func (c *counts) captured(start time.Time, o relay.Outcome) relay.Outcome {
	outcome, code := outcomeRefused, outcomeQueued
	switch {
	case o.Answer == nil:
		outcome, code = outcomeAnswered, outcomeAnswered
	case o.Answer.Handshake != "":
		outcome, code = outcomeHandshake, outcomeHandshake
	case o.Answer.Error == nil:
		outcome = outcomeQueued
	default:
		code = o.Answer.Error.Code
	}
	count(c.outcomes, code)
	c.capture[outcome].Observe(time.Since(start).Seconds())
	return o
}

// finished counts the end of an attempt and observes its phases. queued means that the attempt was delivered
// from the queue.
func (c *counts) finished(a *relay.Attempt, queued bool) {
	key, t := [2]string{a.Kind, a.State}, &a.Timing
	if queued {
		key[0] = kindQueued
	}
	if ended := c.ended[key]; ended != nil {
		ended.Inc()
		c.attempt[key].Observe((t.Connect + t.Send + t.Wait + t.Receive).Seconds())
	}
	if a.Connection == relay.ConnectionNew {
		c.connect.Observe(t.Connect.Seconds())
	}
	if !a.HasResponse || a.State == relay.StateAnswered {
		// No local server has sent this response.
		return
	}
	c.firstByte.Observe((t.Connect + t.Send + t.Wait).Seconds())
	if class := min(a.Status/100, len(c.statuses)-1); class > 0 {
		c.statuses[class].Inc()
	}
}
