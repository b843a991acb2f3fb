package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"relay"
)

// count returns the value of a counter.
func count(t testing.TB, c prometheus.Counter) float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(c)
	families, err := reg.Gather()
	if err != nil || len(families) != 1 || len(families[0].GetMetric()) != 1 {
		t.Fatalf("got %v, %v", families, err)
	}
	return families[0].GetMetric()[0].GetCounter().GetValue()
}

// figures returns the counters and gauges that are not 0, each as a line of the form "name{labels} value".
func figures(t *testing.T, reg prometheus.Gatherer) []string {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			v := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			if v == 0 {
				continue
			}
			labels := []string{}
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			all = append(all, fmt.Sprintf("%s{%s} %v", f.GetName(), strings.Join(labels, ","), v))
		}
	}
	return all
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	o, reg := testOptions(t, &upstream{}), prometheus.NewRegistry()
	o.Registry = reg
	o.Base = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s, addr := start(t, o)
	kept(t, s, addr)
	say(t, addr, strings.Replace(hello, "Shop", "nobody", 1))
	say(t, addr, "GET / HTTP/1.1\r\nHost: shop.hooks.test\r\nX : y\r\n\r\n")
	say(t, addr, "GET / HTTP/2.0\r\nHost: nobody.hooks.test\r\n\r\n")
	send(t, dial(t, addr), baseGet)
	want := []string{
		"relay_http_accepted_total{} 5",
		"relay_http_connections{phase=base} 1",
		"relay_http_connections{phase=idle} 1",
		"relay_http_rejected_total{code=request-malformed} 1",
		"relay_http_requests_total{answer=base,code=} 1",
		"relay_http_requests_total{answer=captured,code=} 1",
		"relay_http_requests_total{answer=relay,code=alias-not-found} 1",
		"relay_http_requests_total{answer=relay,code=http-version-unsupported} 1",
		"relay_http_requests_total{answer=relay,code=request-malformed} 1",
	}
	until(t, func() bool { return slices.Equal(figures(t, reg), want) || t.Failed() })
}

// TestMetricsOfCaptures: each kind of relay-made answer is counted under its code, and an unknown code under
// other.
func TestMetricsOfCaptures(t *testing.T) {
	t.Parallel()
	for code, a := range map[string]relay.Answer{
		"queued":        {Event: testID, Status: 202},
		"answered":      {Event: testID, Status: 200, Handshake: "slack", Own: []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")},
		"local-refused": {Error: relay.Errorf(relay.CodeLocalRefused, "x")},
		"other":         {Error: relay.Errorf("brand-new", "x")},
	} {
		s, addr := answering(t, a, true)
		say(t, addr, strings.Replace(hello, "X-Dup: 1", "Connection: close", 1))
		if n := count(t, s.met.made[code]); n != 1 {
			t.Errorf("%s: counted %v", code, n)
		}
	}
}
