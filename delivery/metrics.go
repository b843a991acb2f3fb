package delivery

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"relay"
)

// Labels that are no codes.
const (
	outcomeAnswered = "answered" // the local server's answer went out, or its caller had gone
	outcomeQueued   = "queued"
	outcomeRefused  = "refused" // in durations: any other outcome
	labelOther      = "other"

	kindQueued  = "queued" // an attempt that waited, of either kind
	originSpare = "spare"
)

var outcomes = []string{
	outcomeAnswered, outcomeQueued,
	relay.CodeRequestMalformed, relay.CodeRequestTimeout, relay.CodeBodyTooLarge, relay.CodeLocalRefused, relay.CodeLocalUnresolvable,
	relay.CodeLocalClosed, relay.CodeLocalMalformed, relay.CodeLocalTimeout, relay.CodeTunnelLost, relay.CodeQueueFull,
	relay.CodeStorageFull, relay.CodeStoreUnavailable, relay.CodeOverloaded, relay.CodeStopping, labelOther,
}

var refusals = []string{
	relay.CodeOverloaded, relay.CodeLocalRefused, relay.CodeLocalUnresolvable, relay.CodeLocalTimeout, relay.ErrNotSent.Code, labelOther,
}

var (
	kinds   = []string{relay.KindOriginal, relay.KindReplay, kindQueued}
	ends    = []string{relay.StateDelivered, relay.StateFailed, relay.StateInterrupted}
	origins = []string{relay.ConnectionNew, relay.ConnectionReused, originSpare}
	states  = []relay.TunnelState{relay.TunnelOnline, relay.TunnelStale}
)

// counterVec are counters by one label whose values are known beforehand; counting is one
// atomic addition.
type counterVec map[string]*atomic.Int64

func newCounterVec(labels []string) counterVec {
	t := make(counterVec, len(labels))
	for _, l := range labels {
		t[l] = new(atomic.Int64)
	}
	return t
}

// add counts one more; an unknown label counts as other.
func (t counterVec) add(label string) {
	c := t[label]
	if c == nil {
		c = t[labelOther]
	}
	if c != nil {
		c.Add(1)
	}
}

// counts are what metrics and Stats show; docs/metrics.md says what they mean.
type counts struct {
	outcomes counterVec            // of captures
	ended    map[string]counterVec // attempts, by kind and state
	opened   counterVec            // channels, by way
	refused  counterVec            // requests that got no channel
	statuses [10]atomic.Int64      // answers of local servers, by hundreds

	requeued, attached, takenOver atomic.Int64
	rejected, dropped             atomic.Int64
	storageFull                   atomic.Int64
	queuedAtOwner                 atomic.Int64 // requests queued because the node of their tunnel could not be reached
	waiting                       atomic.Int64 // for a slot

	durations durations
}

// durations are histograms. Their labels are resolved once, so that an observation costs no
// lookup by several labels.
type durations struct {
	collectors []prometheus.Collector
	capture    map[string]prometheus.Observer            // by outcome
	attempt    map[string]map[string]prometheus.Observer // by kind and state
	connect    prometheus.Histogram
	firstByte  prometheus.Histogram
	added      prometheus.Histogram
}

func (h *durations) init() {
	options := func(name, help string) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{
			Name: "relay_delivery_" + name, Help: help,
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60},
		}
	}
	capture := prometheus.NewHistogramVec(options("capture_seconds", "Time from the head of a caller's request to its answer, by outcome."), []string{"outcome"})
	attempt := prometheus.NewHistogramVec(options("attempt_seconds", "Latency of attempts that ended, by kind and state."), []string{"kind", "state"})
	h.connect = prometheus.NewHistogram(options("connect_seconds", "Time to open a channel through the tunnel; reused channels are not counted."))
	h.firstByte = prometheus.NewHistogram(options("first_byte_seconds", "Time from the opening of the channel to the first byte of the local server's answer."))
	h.added = prometheus.NewHistogram(options("added_seconds", "Time that the relay added to an answered request: its duration without sending, waiting and receiving."))
	h.collectors = []prometheus.Collector{capture, attempt, h.connect, h.firstByte, h.added}
	h.capture, h.attempt = map[string]prometheus.Observer{}, map[string]map[string]prometheus.Observer{}
	for _, o := range []string{outcomeAnswered, outcomeQueued, outcomeRefused} {
		h.capture[o] = capture.WithLabelValues(o)
	}
	for _, k := range kinds {
		h.attempt[k] = map[string]prometheus.Observer{}
		for _, e := range ends {
			h.attempt[k][e] = attempt.WithLabelValues(k, e)
		}
	}
}

// ended observes the phases of an attempt.
func (h *durations) ended(kind string, a *relay.Attempt) {
	t := &a.Timing
	if o := h.attempt[kind][a.State]; o != nil {
		o.Observe((t.Connect + t.Send + t.Wait + t.Receive).Seconds())
	}
	if a.Connection == relay.ConnectionNew {
		h.connect.Observe(t.Connect.Seconds())
	}
	if a.HasResponse {
		h.firstByte.Observe((t.Connect + t.Send + t.Wait).Seconds())
	}
}

// observeAdded observes the time that the relay added to a request whose answer has ended.
// The times of an upgraded connection say nothing about that.
func (x *exchange) observeAdded() {
	if x.final == nil || x.at.open.IsZero() || x.at.end.IsZero() || x.state == relay.ResponseUpgraded {
		return
	}
	x.d.counters.durations.added.Observe((time.Since(x.at.start) - x.at.end.Sub(x.at.open)).Seconds())
}

func (c *counts) init() {
	c.outcomes, c.opened, c.refused = newCounterVec(outcomes), newCounterVec(origins), newCounterVec(refusals)
	c.ended = map[string]counterVec{}
	for _, k := range kinds {
		c.ended[k] = newCounterVec(ends)
	}
	c.durations.init()
}

// captured counts how a capture ended that began at start.
func (c *counts) captured(start time.Time, o relay.Outcome) relay.Outcome {
	outcome := outcomeRefused
	switch {
	case o.Answer == nil:
		outcome = outcomeAnswered
		c.outcomes.add(outcomeAnswered)
	case o.Answer.Error == nil:
		outcome = outcomeQueued
		c.outcomes.add(outcomeQueued)
	default:
		c.outcomes.add(o.Answer.Error.Code)
	}
	c.durations.capture[outcome].Observe(time.Since(start).Seconds())
	return o
}

// finished counts the end of an attempt.
func (x *exchange) finished(a *relay.Attempt) {
	kind := a.Kind
	if x.queued {
		kind = kindQueued
	}
	if t := x.d.counters.ended[kind]; t != nil {
		t.add(a.State)
	}
	x.d.counters.durations.ended(kind, a)
	if a.HasResponse && a.Status > 0 {
		x.d.counters.statuses[min(a.Status/100, len(x.d.counters.statuses)-1)].Add(1)
	}
}

// collector reads the metrics from the counters when Prometheus asks for them.
type collector struct{ d *Delivery }

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("relay_delivery_"+name, help, labels, nil)
}

var (
	descRunning   = describe("running", "Captures, replays and queued deliveries under way.")
	descCaptures  = describe("captures_total", "Requests of callers that ended, by outcome.", "outcome")
	descAttempts  = describe("attempts_total", "Attempts that ended, by kind and state.", "kind", "state")
	descResponses = describe("responses_total", "Final answers of local servers, by class of their status.", "class")
	descQueued    = describe("queued", "Attempts that wait in queues.")
	descRequeued  = describe("requeued_total", "Attempts put back into the queue because not one byte of them left.")
	descTunnels   = describe("tunnels", "Aliases with a tunnel, by its state.", "state")
	descAttached  = describe("attached_total", "Tunnels that took an alias.")
	descTakenOver = describe("taken_over_total", "Tunnels that lost their alias to a newer one.")
	descChannels  = describe("channels", "Channels of tunnels that are open, idle ones included.")
	descWaiting   = describe("channels_waiting", "Requests that wait for a slot on their tunnel.")
	descOpened    = describe("channels_total", "Channels given to a request, by way.", "way")
	descRefused   = describe("channels_refused_total", "Requests that got no channel, by reason.", "reason")
	descRejected  = describe("rejected_total", "Refused requests that were kept as events.")
	descDropped   = describe("rejected_dropped_total", "Refused requests that were not kept: more than 60 a minute at an alias, or no room.")
	descFull      = describe("storage_full_total", "Requests that were not taken for want of room.")
	descViewers   = describe("viewers", "Subscribers of the live feed.")
	descFeedBytes = describe("feed_bytes", "Bytes of the changes kept for subscribers of the live feed that come back.")
)

// Describe is part of prometheus.Collector.
func (f collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descRunning, descCaptures, descAttempts, descResponses, descQueued, descRequeued, descTunnels, descAttached, descTakenOver,
		descChannels, descWaiting, descOpened, descRefused, descRejected, descDropped, descFull, descViewers, descFeedBytes,
	} {
		to <- d
	}
	for _, h := range f.d.counters.durations.collectors {
		h.Describe(to)
	}
}

// Collect is part of prometheus.Collector.
func (f collector) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	counter := func(d *prometheus.Desc, n *atomic.Int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n.Load()), labels...)
	}
	each := func(d *prometheus.Desc, t counterVec, labels ...string) {
		for label, n := range t {
			counter(d, n, append(labels, label)...)
		}
	}
	n := &f.d.counters
	for _, h := range n.durations.collectors {
		h.Collect(to)
	}
	f.d.mu.Lock()
	running := f.d.running
	f.d.mu.Unlock()
	gauge(descRunning, int64(running))
	each(descCaptures, n.outcomes)
	for kind, t := range n.ended {
		each(descAttempts, t, kind)
	}
	for i := 1; i < len(n.statuses); i++ {
		counter(descResponses, &n.statuses[i], string(rune('0'+i))+"xx")
	}
	counter(descRequeued, &n.requeued)
	counter(descAttached, &n.attached)
	counter(descTakenOver, &n.takenOver)
	gauge(descChannels, f.d.channels.Load())
	gauge(descWaiting, n.waiting.Load())
	each(descOpened, n.opened)
	each(descRefused, n.refused)
	counter(descRejected, &n.rejected)
	counter(descDropped, &n.dropped)
	counter(descFull, &n.storageFull)
	f.d.feed.mu.Lock()
	viewers, kept := len(f.d.feed.viewers), f.d.feed.size
	f.d.feed.mu.Unlock()
	gauge(descViewers, int64(viewers))
	gauge(descFeedBytes, int64(kept))
	tunnels, queued := f.d.countTunnels()
	gauge(descQueued, int64(queued))
	for _, s := range states {
		gauge(descTunnels, int64(tunnels[s]), string(s))
	}
}

// countTunnels counts the tunnels of this node by state, and what waits, over all aliases. A paused alias
// counts by what its tunnel is.
func (d *Delivery) countTunnels() (byState map[relay.TunnelState]int, queued int) {
	byState = map[relay.TunnelState]int{}
	d.registry.each(func(st *aliasState) {
		n, _ := st.queue.get()
		queued += n
		st.mu.Lock()
		defer st.mu.Unlock()
		switch {
		case st.attached == nil, st.attached.remote != nil:
		case st.attached.isStale():
			byState[relay.TunnelStale]++
		default:
			byState[relay.TunnelOnline]++
		}
	})
	return byState, queued
}
