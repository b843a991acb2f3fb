package store

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"relay/store/cluster"
	"relay/store/db"
	"relay/store/file"
)

// Register registers the metrics of the store. They are computed at each scrape, without a query to
// the database.
func (s *Store) Register(reg prometheus.Registerer) {
	register := func(c prometheus.Collector) {
		if err := reg.Register(c); err != nil {
			s.log.Warn("cannot register the metrics of the store", "err", err)
		}
	}
	opts := func(name, help string, label []string) prometheus.Opts {
		o := prometheus.Opts{Name: "relay_store_" + name, Help: help}
		if len(label) > 0 {
			o.ConstLabels = prometheus.Labels{label[0]: label[1]}
		}
		return o
	}
	gauge := func(name, help string, value func() float64, label ...string) {
		register(prometheus.NewGaugeFunc(prometheus.GaugeOpts(opts(name, help, label)), value))
	}
	counter := func(name, help string, value func() int64, label ...string) {
		register(prometheus.NewCounterFunc(prometheus.CounterOpts(opts(name, help, label)), func() float64 { return float64(value()) }))
	}
	flag := func(is func() bool) func() float64 {
		return func() float64 { return float64(db.BoolToInt(is())) }
	}
	register(s.Meter().Batch)
	register(s.Meter().Commit)
	counter("steps_total", "Steps of the journal that are in the database.", s.Meter().Committed.Load)
	gauge("queued_steps", "Steps that wait to be written or are being written.", func() float64 { return float64(s.QueuedSteps()) })
	counter("failed_steps_total", "Steps that could not be stored: the caller got 503, or the result is repaired later.", s.Meter().Failed.Load)
	counter("reconciled_attempts_total", "Attempts under way that nobody ran, because their outcome could not be stored: marked interrupted.", s.Meter().Reconciled.Load)
	counter("retries_total", "Transactions of the journal that failed: tried again, split, spooled or given up.", s.Meter().Retried.Load)
	gauge("up", "1 while new events can be stored, in the database or in the spool.", flag(func() bool {
		return s.Serving() && s.WhyAway() == nil && s.db.Disk.Low() == nil && !s.spool.IntakeClosed.Load()
	}))
	gauge("spool_bytes", "Bytes in the spool that are not in Postgres yet.", func() float64 { return float64(s.spool.Undrained.Load()) })
	gauge("spool_limit_bytes", "Limit of the spool; 0 without a spool.", func() float64 { return float64(s.spool.Limit) })
	counter("spool_steps_total", "Steps that went to the spool.", s.Meter().Spooled.Load)
	counter("spool_drained_bytes_total", "Bytes of the spool that reached Postgres.", s.spool.Drained.Load)
	counter("spool_refused_steps_total", "Steps that were refused because the spool was full.", s.spool.Refused.Load)
	n := s.RetentionCounts()
	const removed = "Events that retention removed, by reason."
	counter("retention_events_total", removed, n.Expired.Load, "reason", "age")
	counter("retention_events_total", removed, n.Evicted.Load, "reason", "size")
	counter("retention_events_total", removed, n.Orphans.Load, "reason", "orphan")
	counter("retention_partitions_total", "Days whose partitions were dropped as a whole (Postgres).", n.Days.Load)
	counter("retention_bytes_total", "Request and response bytes of events that retention removed.", n.Bytes.Load)
	gauge("stored_bytes", "Stored bytes of all aliases.", func() float64 { return float64(s.usage.Total()) })
	gauge("account_storage_max_ratio", "Largest part of its limit that an account has stored in all its aliases; 0 without a limit.", s.usage.FullestAccount)
	gauge("retention_longest_hold_seconds", "Longest time that one transaction of retention held the writer.",
		func() float64 { return time.Duration(n.Longest.Load()).Seconds() })
	gauge("nodes", "Nodes that serve this database and live, this one included.", func() float64 { return float64(s.NodeStats().Nodes) })
	gauge("node_beat_age_seconds", "Time since this node last renewed its beat; from 3 on it claims nothing (Postgres).",
		func() float64 { return s.NodeStats().BeatAge.Seconds() })
	counter("node_sweeps_total", "Dead nodes that this node swept.", func() int64 { return s.NodeStats().Swept })
	counter("node_swept_attempts_total", "Attempts of dead nodes that this node marked interrupted.", func() int64 { return s.NodeStats().Ended })
	for _, name := range []string{cluster.LeaseRetention, cluster.LeaseTidy, cluster.LeaseClaims} {
		gauge("lease_held", "1 while this node does that work for all nodes, else 0.", flag(func() bool { return s.HasLease(name) }), "lease", name)
	}
	gauge("schema_newer", "1 once a newer relayd has changed the schema of the database.", flag(func() bool { return s.NewerSchema() > 0 }))
	s.registerDisk(gauge)
}

// registerDisk adds the gauges of the disk of the data dir.
func (s *Store) registerDisk(gauge func(name, help string, value func() float64, labels ...string)) {
	if s.db.Disk.Free != nil {
		gauge("min_free_bytes", "With less free space than this, new events are refused; 0 = off.", func() float64 { return float64(s.db.Disk.Min) })
	}
	freeSpace := s.opt.FreeSpace
	if freeSpace == nil {
		freeSpace = file.FreeSpace
	}
	if s.opt.DataDir != "" {
		gauge("disk_free_bytes", "Free space of the file system with the data dir, where the SQLite file or the spool is.", func() float64 {
			free, err := freeSpace(s.opt.DataDir)
			if err != nil {
				return math.NaN()
			}
			return float64(free)
		})
	}
}
