package delivery_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"relay"
)

// shown returns the value of each metric of a registry by its name and labels. The value of a histogram is
// its number of observations.
func shown(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	list, err := reg.Gather()
	must(t, err)
	out := map[string]float64{}
	for _, family := range list {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := strings.TrimPrefix(family.GetName(), "relay_delivery_")
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			out[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	run(t, always("hello", ok), func(b *fixture) {
		if got := shown(t, reg); len(got) < 40 || got["captures_total{outcome=answered}"] != 0 {
			t.Errorf("at the start: %v", got)
		}
		b.send(post)
		b.pause()
		b.send(post)
		b.s.change(7, func(s *relay.Settings) { s.Paused = true })
		b.send(post)
		for range 70 {
			in, _ := b.inbound(post)
			b.d.Reject(in, relay.Errorf(relay.CodeRequestMalformed, "x"))
		}
		b.s.change(7, func(s *relay.Settings) { s.Paused = false })
		b.tun.set(func() { b.tun.heard, b.tun.hang = time.Minute, true })
		b.send(post)
		got := shown(t, reg)
		for name, want := range map[string]float64{
			"captures_total{outcome=answered}":               2,
			"captures_total{outcome=queued}":                 2,
			"attempts_total{kind=original,state=delivered}":  2,
			"responses_total{class=2xx}":                     2,
			"channels_total{way=new}":                        1,
			"channels_total{way=reused}":                     1,
			"channels_refused_total{reason=not-sent}":        1,
			"channels_waiting":                               0,
			"capture_seconds{outcome=answered}":              2,
			"capture_seconds{outcome=queued}":                2,
			"attempt_seconds{kind=original,state=delivered}": 2,
			"connect_seconds":                                1,
			"first_byte_seconds":                             2,
			"added_seconds":                                  2,
			"attached_total":                                 1,
			"queued":                                         2,
			"rejected_total":                                 60,
			"rejected_dropped_total":                         10,
			"tunnels{state=stale}":                           1,
			"tunnels{state=online}":                          0,
			"running":                                        0,
		} {
			if got[name] != want {
				t.Errorf("%s is %s, want %v", name, fmt.Sprint(got[name]), want)
			}
		}
		b.tun.set(func() { b.tun.heard, b.tun.hang = 0, false })
	}, oneConnection, func(b *fixture) { b.opt.Registry = reg })
}
