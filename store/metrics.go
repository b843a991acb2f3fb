package store

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// meter holds the counters of the journal, which are atomic. docs/metrics.md explains them.
type meter struct {
	batch  prometheus.Histogram // steps of a transaction
	commit prometheus.Histogram // its seconds

	failed atomic.Int64 // steps that failed

	reconciled atomic.Int64 // attempts that nobody ran
	retried    atomic.Int64 // transactions that were tried again
	spooled    atomic.Int64 // steps that went to the spool
}

func (m *meter) init() {
	m.batch = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "relay_store_batch_steps", Help: "Steps of one transaction of the journal.",
		Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 1024},
	})
	m.commit = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "relay_store_commit_seconds", Help: "How long one transaction of the journal took, commit included.",
		Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 2.5},
	})
}

// recordBatch counts a transaction of the journal.
func (s *Store) recordBatch(steps int, took time.Duration) {
	s.committed.Add(int64(steps))
	s.batches.Add(1)
	s.meter.batch.Observe(float64(steps))
	s.meter.commit.Observe(took.Seconds())
}

// Register registers the metrics of the store.
func (s *Store) Register(reg prometheus.Registerer) {
	for _, c := range []prometheus.Collector{s.meter.batch, s.meter.commit, collector{s}} {
		if err := reg.Register(c); err != nil {
			s.log.Warn("register metrics of the store", "err", err)
		}
	}
}

// collector reads metrics when they are scraped.
type collector struct{ s *Store }

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("relay_store_"+name, help, labels, nil)
}

var (
	descSteps    = describe("steps_total", "Steps of the journal that are in the database.")
	descQueue    = describe("queued_steps", "Steps that wait to be written or are being written.")
	descFailed   = describe("failed_steps_total", "Steps that could not be stored: the caller got 503, or the result is repaired later.")
	descLeft     = describe("reconciled_attempts_total", "Attempts under way that nobody ran, because their outcome could not be stored: marked interrupted.")
	descRetried  = describe("retries_total", "Transactions of the journal that failed: tried again, split, spooled or given up.")
	descUp       = describe("up", "1 while new events can be stored, in the database or in the spool.")
	descSpool    = describe("spool_bytes", "Bytes in the spool that are not in Postgres yet.")
	descLimit    = describe("spool_limit_bytes", "Limit of the spool; 0 without a spool.")
	descSpooled  = describe("spool_steps_total", "Steps that went to the spool.")
	descDrained  = describe("spool_drained_bytes_total", "Bytes of the spool that reached Postgres.")
	descRefused  = describe("spool_refused_steps_total", "Steps that were refused because the spool was full.")
	descRemoved  = describe("retention_events_total", "Events that retention removed, by reason.", "reason")
	descDays     = describe("retention_partitions_total", "Days whose partitions were dropped as a whole (Postgres).")
	descFreed    = describe("retention_bytes_total", "Request and response bytes of events that retention removed.")
	descStored   = describe("stored_bytes", "Stored bytes of all aliases, while max-alias-storage is set.")
	descHold     = describe("retention_longest_hold_seconds", "Longest time that one transaction of retention held the writer.")
	descDiskFree = describe("disk_free_bytes", "Free space of the file system with the SQLite file.")
	descNodes    = describe("nodes", "Nodes that serve this database and live, this one included.")
	descBeatAge  = describe("node_beat_age_seconds", "Time since this node last renewed its beat; from 3 on it claims nothing (Postgres).")
	descSweeps   = describe("node_sweeps_total", "Dead nodes that this node swept.")
	descSwept    = describe("node_swept_attempts_total", "Attempts of dead nodes that this node marked interrupted.")
	descLease    = describe("lease_held", "1 while this node does that work for all nodes, else 0.", "lease")
	descNewer    = describe("schema_newer", "1 once a newer relayd has changed the schema of the database.")
	descMinFree  = describe("min_free_bytes", "With less free space than this, new events are refused; 0 = off.")
)

// Describe is part of prometheus.Collector.
func (f collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descSteps, descQueue, descFailed, descLeft, descRetried, descUp, descSpool, descLimit, descSpooled, descDrained, descRefused,
		descRemoved, descDays, descFreed, descStored, descHold, descDiskFree, descMinFree, descNodes, descBeatAge, descSweeps, descSwept, descLease, descNewer,
	} {
		to <- d
	}
}

// Collect is part of prometheus.Collector. It does not ask the database.
func (f collector) Collect(to chan<- prometheus.Metric) {
	s := f.s
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	st, gone := s.Stats(), s.Retention()
	counter(descSteps, st.Committed)
	gauge(descQueue, float64(st.QueuedSteps))
	counter(descFailed, s.meter.failed.Load())
	counter(descLeft, s.meter.reconciled.Load())
	counter(descRetried, s.meter.retried.Load())
	up := 0.0
	if s.acceptsEvents() {
		up = 1
	}
	gauge(descUp, up)
	gauge(descSpool, float64(st.SpoolBytes))
	gauge(descLimit, float64(s.spool.limitBytes()))
	counter(descSpooled, s.meter.spooled.Load())
	counter(descDrained, s.spool.drainedBytes())
	counter(descRefused, st.SpoolFull)
	counter(descRemoved, gone.Expired, "age")
	counter(descRemoved, gone.Evicted, "size")
	counter(descRemoved, gone.Orphans, "orphan")
	counter(descDays, gone.DroppedDays)
	counter(descFreed, gone.FreedBytes)
	gauge(descStored, float64(gone.StoredBytes))
	gauge(descHold, gone.LongestHold.Seconds())
	nodes, age := s.membership.figures()
	gauge(descNodes, float64(nodes))
	gauge(descBeatAge, age.Seconds())
	counter(descSweeps, s.membership.swept.Load())
	counter(descSwept, s.membership.interrupted.Load())
	for _, name := range []string{leaseRetention, leaseTidy, leaseClaims, leaseOrphans} {
		gauge(descLease, float64(boolToInt(s.hasLease(name))), name)
	}
	gauge(descNewer, float64(boolToInt(s.NewerSchema() > 0)))
	if s.disk.free != nil {
		gauge(descMinFree, float64(s.disk.min))
		if free, err := s.disk.free(s.disk.dir); err == nil {
			gauge(descDiskFree, float64(free))
		}
	}
}

// acceptsEvents reports, from memory, whether new events can be stored.
func (s *Store) acceptsEvents() bool {
	c := s.running()
	if c == nil || c.down() != nil || s.disk.low() != nil {
		return false
	}
	return s.spool == nil || !s.spool.intakeClosed.Load()
}

// drainedBytes is how much of the spool reached the database since the start.
func (p *spool) drainedBytes() int64 {
	if p == nil {
		return 0
	}
	return p.drained.Load()
}

// limitBytes is how many bytes the spool may hold.
func (p *spool) limitBytes() int64 {
	if p == nil {
		return 0
	}
	return p.limit
}
