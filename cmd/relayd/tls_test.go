package main

import (
	"crypto/tls"
	"net/url"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"relay"
)

// TestEndOfCertificateIsTold: the metric shows the expiry of the certificates that callers get. The metric
// ignores the certificates that prove the host to a CA.
func TestEndOfCertificateIsTold(t *testing.T) {
	t.Parallel()
	until := time.Now().Add(time.Hour)
	pair, err := tls.LoadX509KeyPair(certificate(t, []string{"relay.test", "*.hooks.test"}, until))
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	site := relay.Site{Base: url.URL{Scheme: "https", Host: "relay.test:8443"}, AliasDomain: "hooks.test"}
	get := tellEnds(site, registry, func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil })
	told := func() map[string]int64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		ends := map[string]int64{}
		for _, m := range families[0].Metric {
			ends[m.Label[0].GetValue()] = int64(m.Gauge.GetValue())
		}
		return ends
	}
	if _, err := get(&tls.ClientHelloInfo{SupportedProtos: []string{"acme-tls/1"}}); err != nil {
		t.Fatal(err)
	}
	if got := told(); len(got) != 1 || got["relay.test"] != 0 {
		t.Errorf("after a challenge: %v", got)
	}
	if _, err := get(&tls.ClientHelloInfo{ServerName: "relay.test"}); err != nil {
		t.Fatal(err)
	}
	if got := told(); got["relay.test"] != until.Unix() || got["*.hooks.test"] != until.Unix() {
		t.Errorf("%v, want %d for both", got, until.Unix())
	}
}
