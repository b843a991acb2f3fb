package conformance

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"relay/relaytest"
)

// pebble is a CA that runs on loopback and rejects a fifth of all nonces.
type pebble struct {
	t         *testing.T
	directory string
	root      string // PEM file of the certificate of the CA's own web server
	manage    string
	client    *http.Client
	programs  []*relaytest.Process
	end       func()
}

// newPebble starts a CA. It checks challenges at the given ports, and issues certificates that are valid for
// the duration validity.
func newPebble(t *testing.T, httpPort, tlsPort string, validity time.Duration) *pebble {
	t.Helper()
	dns, api := relaytest.FreeAddr(t), relaytest.FreeAddr(t)
	names := relaytest.Start(t, exec.Command("pebble-challtestsrv", "-defaultIPv4", "127.0.0.1", "-defaultIPv6", "", "-dns01", dns,
		"-management", api, "-http01", "", "-https01", "", "-tlsalpn01", ""))
	p := newPebbleWithDNS(t, httpPort, tlsPort, validity, dns)
	p.programs = append(p.programs, names)
	return p
}

// newPebbleWithDNS is like newPebble, but the CA asks the DNS server at the address dns.
func newPebbleWithDNS(t *testing.T, httpPort, tlsPort string, validity time.Duration, dns string) *pebble {
	t.Helper()
	for _, name := range []string{"pebble", "pebble-challtestsrv"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Fatalf("%s is not installed: apt-get install pebble", name)
		}
	}
	dir := t.TempDir()
	cert, key := relaytest.WriteCertificate(t, dir, "localhost")
	listen, manage := relaytest.FreeAddr(t), relaytest.FreeAddr(t)
	conf := fmt.Sprintf(`{"pebble": {"listenAddress": %q, "managementListenAddress": %q, "certificate": %q, "privateKey": %q,
		"httpPort": %s, "tlsPort": %s, "ocspResponderURL": "", "externalAccountBindingRequired": false,
		"certificateValidityPeriod": %d}}`, listen, manage, cert, key, httpPort, tlsPort, validity/time.Second)
	file := filepath.Join(dir, "pebble.json")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	ca := exec.Command("pebble", "-config", file, "-dnsserver", dns)
	ca.Env = append(os.Environ(), "PEBBLE_WFE_NONCEREJECT=20", "PEBBLE_VA_NOSLEEP=1", "PEBBLE_AUTHZREUSE=0")
	p := &pebble{t: t, directory: "https://" + listen + "/dir", root: cert, manage: "https://" + manage}
	p.programs = []*relaytest.Process{relaytest.Start(t, ca)}
	p.end = func() {
		for _, program := range p.programs {
			program.Kill()
		}
	}
	p.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: relaytest.CertPool(t, cert)}}}
	relaytest.Until(t, 30*time.Second, "pebble to answer", func() bool {
		res, err := p.client.Get(p.directory)
		if err == nil {
			res.Body.Close()
		}
		return err == nil
	})
	return p
}

// issued returns the root certificates of the certificates that the CA issues.
func (p *pebble) issued() *x509.CertPool {
	p.t.Helper()
	res, err := p.client.Get(p.manage + "/roots/0")
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		p.t.Fatalf("no root in %q", text)
	}
	return pool
}

// caProxy is an address in front of a CA. It forwards connections, refuses them, or accepts them without
// answering.
type caProxy struct {
	t       *testing.T
	addr    string
	knocked chan struct{} // gets a value for each connection while the proxy does not answer
}

func newCAProxy(t *testing.T) *caProxy {
	return &caProxy{t: t, addr: relaytest.FreeAddr(t), knocked: make(chan struct{}, 1000)}
}

// serve listens until end is called, and calls serving for each connection.
func (g *caProxy) serve(serving func(c net.Conn)) (end func()) {
	g.t.Helper()
	ln, err := net.Listen("tcp", g.addr)
	if err != nil {
		g.t.Fatal(err)
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			g.t.Cleanup(func() { c.Close() })
			go serving(c)
		}
	}()
	return func() { ln.Close() }
}

// freeze accepts connections and does not answer.
func (g *caProxy) freeze() (end func()) {
	return g.serve(func(net.Conn) { g.knocked <- struct{}{} })
}

// open forwards connections to an address.
func (g *caProxy) open(to string) (end func()) {
	return g.serve(func(c net.Conn) {
		there, err := net.Dial("tcp", to)
		if err != nil {
			c.Close()
			return
		}
		go func() {
			_, _ = io.Copy(there, c)
			there.Close()
		}()
		_, _ = io.Copy(c, there)
		c.Close()
	})
}

// TestCertificateAuthorityAway: a CA that does not answer does not delay a stop of relayd. If the CA was down
// when relayd started, relayd asks the CA again later, even if no caller connects.
func TestCertificateAuthorityAway(t *testing.T) {
	t.Parallel()
	r := newTLSRig(t, "RELAY_TLS=acme")
	_, httpPort, _ := net.SplitHostPort(r.http)
	_, tlsPort, _ := net.SplitHostPort(r.https)
	ca := newPebble(t, httpPort, tlsPort, 90*24*time.Hour)
	at, err := url.Parse(ca.directory)
	if err != nil {
		t.Fatal(err)
	}
	g := newCAProxy(t)
	r.extra = append(r.extra, "RELAY_ACME_CA=https://"+g.addr+"/dir", "RELAY_ACME_CA_ROOT="+ca.root)
	r.roots = ca.issued()

	thaw := g.freeze()
	r.start()
	r.waitFor(60*time.Second, "the relay to ask the CA", func() bool { return len(g.knocked) > 0 })
	begun := time.Now()
	r.stop(syscall.SIGTERM)
	if code, took := r.process.get().Cmd.ProcessState.ExitCode(), time.Since(begun); code != 0 || took > bound(5*time.Second) {
		t.Errorf("with a CA that says nothing the relay ended with %d after %v", code, took)
	}
	thaw()

	r.start()
	r.forward("shop", okServer(t))
	for _, name := range []string{"relay.test", "shop.relay.test"} {
		r.waitFor(60*time.Second, "the failure for "+name, func() bool {
			return strings.Contains(r.log.String(), `msg="no certificate" name=`+name)
		})
	}
	t.Cleanup(g.open(at.Host))
	begun = time.Now()
	for _, name := range []string{"relay.test", "shop.relay.test"} {
		r.waitFor(90*time.Second, "the certificate of "+name, func() bool {
			return strings.Contains(r.log.String(), `msg="certificate ready" name=`+name)
		})
		t.Logf("%s: certificate %.1f s after the CA was there", name, time.Since(begun).Seconds())
		r.awaitCert(name)
	}
}
