package conformance

import (
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"relay/relaytest"
	"relay/store/pgtest"
)

// TestCertificatesOfTwoNodes: one of two nodes orders a certificate, while the CA reaches only the other
// node, as behind a balancer. Both serve the same certificate, and each name is ordered once.
func TestCertificatesOfTwoNodes(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"http-01", "tls-alpn-01"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			databaseURL := pgtest.URL(t)
			a, b := newTLSRig(t, "RELAY_NODE_NAME=a"), newTLSRig(t, "RELAY_NODE_NAME=b")
			_, httpPort, _ := net.SplitHostPort(b.http)
			_, tlsPort, _ := net.SplitHostPort(b.https)
			_, closed, _ := net.SplitHostPort(relaytest.FreeAddr(t))
			if kind == "http-01" {
				tlsPort = closed
			} else {
				httpPort = closed
			}
			ca := newPebble(t, httpPort, tlsPort, 90*24*time.Hour)
			for _, r := range []*tlsRelay{a, b} {
				r.database, r.roots, r.key = databaseURL, ca.issued(), a.key
				r.extra = append(r.extra, "RELAY_TLS=acme", "RELAY_LOG_LEVEL=debug", "RELAY_ACME_CA="+ca.directory, "RELAY_ACME_CA_ROOT="+ca.root,
					"RELAY_BASE_URL=https://relay.test:"+closed)
			}
			b.start()
			b.awaitCert("relay.test")
			a.start()
			a.awaitCert("relay.test")
			a.forward("shop", okServer(t))
			a.waitFor(90*time.Second, "the certificate of the alias", func() bool {
				return strings.Contains(a.log.String(), `msg="certificate ready" name=shop.relay.test`)
			})
			for _, name := range []string{"relay.test", "shop.relay.test"} {
				a.awaitCert(name)
				b.awaitCert(name)
				if one, other := a.serial(name), b.serial(name); one != other {
					t.Errorf("%s: certificate %s at one node, %s at the other", name, one, other)
				}
			}
			// The DNS has none of the names of the test, so doctor fails. Its check of the certificate must succeed.
			doctor, err := a.operator("doctor").CombinedOutput()
			if err == nil || !regexp.MustCompile(`(?m)^base URL +fail .*no address was found`).Match(doctor) {
				t.Errorf("relayd doctor: %v\n%s", err, doctor)
			}
			if !regexp.MustCompile(`(?m)^certificate +ok +good until`).Match(doctor) {
				t.Errorf("relayd doctor says\n%s", doctor)
			}
			logs := a.log.String() + b.log.String()
			if n := strings.Count(logs, `msg="certificate obtained successfully`); n != 2 {
				t.Errorf("%d certificates were ordered for two names", n)
			}
		})
	}
}
