package conformance

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"relay/relaytest"
)

// tlsRelay is a relay at https://relay.test with aliases below it.
type tlsRelay struct {
	*relayServer
	https string
	roots *x509.CertPool
}

func newTLSRig(t *testing.T, extra ...string) *tlsRelay {
	t.Helper()
	r := &tlsRelay{relayServer: newRelay(t, "", extra...), https: relaytest.FreeAddr(t)}
	_, port, _ := net.SplitHostPort(r.https)
	r.extra = append(r.extra, "RELAY_HTTPS_ADDR="+r.https, "RELAY_BASE_URL=https://relay.test:"+port, "RELAY_ALIAS_DOMAIN=relay.test",
		"RELAY_SSH_PUBLIC_ADDR="+r.ssh)
	return r
}

// hand makes a TLS connection for a name and offers the given ALPN protocols.
func (r *tlsRelay) hand(name string, protocols ...string) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.https)
	if err != nil {
		return nil, err
	}
	t := tls.Client(c, &tls.Config{ServerName: name, RootCAs: r.roots, NextProtos: protocols})
	if err := t.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, err
	}
	_ = t.SetDeadline(time.Now().Add(30 * time.Second))
	return t, nil
}

// awaitCert makes connections until name has a trusted certificate, and returns the time that this took.
func (r *tlsRelay) awaitCert(name string) time.Duration {
	r.t.Helper()
	began, last := time.Now(), error(nil)
	for time.Since(began) < 3*time.Minute {
		c, err := r.hand(name)
		if err == nil {
			c.Close()
			return time.Since(began)
		}
		last = err
		time.Sleep(50 * time.Millisecond)
	}
	r.t.Fatalf("no trusted certificate for %s: %v", name, last)
	return 0
}

// forward opens a tunnel by ssh and waits until a request passes through it.
func (r *tlsRelay) forward(alias, target string) {
	r.t.Helper()
	cmd := exec.Command("ssh", append([]string{"-N", "-R", alias + ":80:" + target}, r.sshArgs()...)...)
	cmd.Env = r.env()
	relaytest.Start(r.t, cmd)
	r.waitFor(30*time.Second, alias+" to be online", func() bool {
		return strings.HasPrefix(r.plain("GET", alias+".relay.test", "/online"), "HTTP/1.1 200")
	})
}

// plain sends a request over plain HTTP and returns the whole answer.
func (r *tlsRelay) plain(method, host, target string) string {
	r.t.Helper()
	return ask(r.t, r.dial(), method, host, target)
}

func ask(t *testing.T, c net.Conn, method, host, target string) string {
	t.Helper()
	defer c.Close()
	fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", method, target, host)
	b, err := io.ReadAll(c)
	if err != nil {
		t.Logf("%s %s: %v", host, target, err)
	}
	return string(b)
}

// okServer is a local server that answers with the requested path.
func okServer(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		fmt.Fprintf(w, "local server was asked for %s", req.URL.Path)
	})}
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(func() { srv.Close() })
	return ln.Addr().String()
}

// TestCertificatesFromCA runs relayd with a real ACME server, which rejects a fifth of all nonces. The ACME
// server reaches relayd only at the port of the kind of challenge that is tested.
func TestCertificatesFromCA(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"http-01", "tls-alpn-01"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newTLSRig(t, "RELAY_TLS=acme", "RELAY_ACME_EMAIL=ops@relay.test", "RELAY_LOG_LEVEL=debug")
			_, httpPort, _ := net.SplitHostPort(r.http)
			_, tlsPort, _ := net.SplitHostPort(r.https)
			_, closed, _ := net.SplitHostPort(relaytest.FreeAddr(t))
			if kind == "http-01" {
				tlsPort = closed
			} else {
				httpPort = closed
			}
			ca := newPebble(t, httpPort, tlsPort, 90*24*time.Hour)
			r.extra = append(r.extra, "RELAY_ACME_CA="+ca.directory, "RELAY_ACME_CA_ROOT="+ca.root)
			r.start()
			r.roots = ca.issued()
			t.Logf("%s: base host: certificate after %.1f s", kind, r.awaitCert("relay.test").Seconds())
			r.checkUnknownNames()
			r.forward("shop", okServer(t))
			r.waitFor(90*time.Second, "the certificate of the alias, before its first visitor", func() bool {
				return strings.Contains(r.log.String(), `msg="certificate ready" name=shop.relay.test`)
			})
			t.Logf("%s: alias: certificate after %.1f s", kind, r.awaitCert("shop.relay.test").Seconds())
			r.checkAliasOverTLS()
			r.checkFolder()
			r.checkRestart(ca)
		})
	}
}

// checkUnknownNames: a handshake for an unknown name is refused within 5 s, and orders no certificate.
func (r *tlsRelay) checkUnknownNames() {
	for _, name := range []string{"shop.relay.test", "nobody.relay.test", "a.b.relay.test", "elsewhere.test"} {
		began := time.Now()
		if c, err := r.hand(name); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			r.t.Errorf("handshake for %s = %v, %v; want it refused as unrecognized", name, c, err)
		}
		if took := time.Since(began); took > bound(5*time.Second) {
			r.t.Errorf("handshake for %s was refused after %v", name, took)
		}
	}
	if n := strings.Count(r.log.String(), "obtaining certificate"); n != 1 {
		r.t.Errorf("%d certificates were ordered, want that of the base host only", n)
	}
}

func (r *tlsRelay) checkAliasOverTLS() {
	c, err := r.hand("shop.relay.test", "h2", "http/1.1")
	if err != nil {
		r.t.Fatal(err)
	}
	if p := c.ConnectionState().NegotiatedProtocol; p != "http/1.1" {
		r.t.Errorf("an alias host speaks %q", p)
	}
	if got := ask(r.t, c, "GET", "shop.relay.test", "/hook"); !strings.HasSuffix(got, "local server was asked for /hook") {
		r.t.Errorf("answer over TLS: %q", got)
	}
	const path = "/.well-known/acme-challenge/aGVsbG8"
	if got := r.plain("GET", "shop.relay.test", path); !strings.HasSuffix(got, "local server was asked for "+path) {
		r.t.Errorf("a path like a challenge's, with none pending, did not reach the local server: %q", got)
	}
	if got := r.plain("GET", "relay.test", path); !strings.HasPrefix(got, "HTTP/1.1 308 ") {
		r.t.Errorf("plain HTTP on the base host: %q", got)
	}
	if c, err = r.hand("relay.test", "h2", "http/1.1"); err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	if p := c.ConnectionState().NegotiatedProtocol; p != "h2" {
		r.t.Errorf("the base host speaks %q", p)
	}
}

// checkFolder: only the system user under which relayd runs can read the private keys of the certificates.
func (r *tlsRelay) checkFolder() {
	err := filepath.WalkDir(filepath.Join(r.dir, "data", "certificates"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			r.t.Errorf("%s has mode %04o", path, info.Mode().Perm())
		}
		return err
	})
	if err != nil {
		r.t.Error(err)
	}
}

// checkRestart: issued certificates survive a restart, and the CA is not needed for them.
func (r *tlsRelay) checkRestart(ca *pebble) {
	r.stop(syscall.SIGTERM)
	ca.end()
	r.start()
	for _, name := range []string{"relay.test", "shop.relay.test"} {
		r.t.Logf("%s after a restart, without the CA: %.2f s", name, r.awaitCert(name).Seconds())
	}
}

// TestEndedCertificate: if a certificate has expired before relayd starts, relayd gets a new one at once.
func TestEndedCertificate(t *testing.T) {
	t.Parallel()
	r := newTLSRig(t, "RELAY_TLS=acme")
	_, httpPort, _ := net.SplitHostPort(r.http)
	_, tlsPort, _ := net.SplitHostPort(r.https)
	ca := newPebble(t, httpPort, tlsPort, 10*time.Second)
	r.extra = append(r.extra, "RELAY_ACME_CA="+ca.directory, "RELAY_ACME_CA_ROOT="+ca.root)
	r.start()
	var first *x509.Certificate
	r.waitFor(60*time.Second, "a certificate", func() bool {
		c, err := tls.Dial("tcp", r.https, &tls.Config{ServerName: "relay.test", InsecureSkipVerify: true}) // the certificate may have expired
		if err != nil {
			return false
		}
		defer c.Close()
		first = c.ConnectionState().PeerCertificates[0]
		return true
	})
	r.stop(syscall.SIGTERM)
	r.waitFor(60*time.Second, "its end", func() bool { return time.Since(first.NotAfter) > 2*time.Second })
	r.start()
	r.waitFor(60*time.Second, "another certificate", func() bool {
		c, err := tls.Dial("tcp", r.https, &tls.Config{ServerName: "relay.test", InsecureSkipVerify: true})
		if err != nil {
			return false
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].NotAfter.After(first.NotAfter)
	})
}

// TestCertificateFiles: changed files are used without a restart, and invalid ones are ignored. A request for
// another host than the server name gets 421.
func TestCertificateFiles(t *testing.T) {
	t.Parallel()
	r := newTLSRig(t, "RELAY_TLS=files")
	cert, key := relaytest.WriteCertificate(t, r.dir, "relay.test", "*.relay.test")
	r.extra = append(r.extra, "RELAY_TLS_CERT="+cert, "RELAY_TLS_KEY="+key)
	r.roots = relaytest.CertPool(t, cert)
	r.start()
	first := r.serial("relay.test")
	if err := os.WriteFile(cert, []byte("not a certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.waitFor(20*time.Second, "the log to tell of the bad files", func() bool {
		if got := r.serial("relay.test"); got != first {
			t.Fatalf("serial %s with bad files, want the old one", got)
		}
		return strings.Contains(r.log.String(), "changed certificate files cannot be used")
	})
	relaytest.WriteCertificate(t, r.dir, "relay.test", "*.relay.test")
	r.roots = nil
	r.waitFor(20*time.Second, "the new certificate", func() bool { return r.serial("shop.relay.test") != first })

	r.roots = relaytest.CertPool(t, cert)
	c, err := r.hand("relay.test", "http/1.1")
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(t, c, "GET", "shop.relay.test", "/"); !strings.HasPrefix(got, "HTTP/1.1 421 ") {
		t.Errorf("server name of one, Host of the other: %q, want 421", got)
	}
}

// serial returns the serial number of the certificate for a name; without roots, the certificate is not
// verified.
func (r *tlsRelay) serial(name string) string {
	r.t.Helper()
	conf := &tls.Config{ServerName: name, RootCAs: r.roots, InsecureSkipVerify: r.roots == nil}
	c, err := tls.Dial("tcp", r.https, conf)
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
}
