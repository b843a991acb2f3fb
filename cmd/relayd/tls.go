package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"relay"
	"relay/delivery"
	"relay/record"
	"relay/server/certs"
)

// certificatesDir is the directory of ACME accounts, keys and certificates in the data
// dir.
const certificatesDir = "certificates"

// makeTLS sets up the certificates of the TLS listener. a.tls stays nil if TLS is off.
func (a *app) makeTLS(registry prometheus.Registerer) error {
	switch a.cfg.TLS {
	case "files":
		get, err := certs.Files(a.cfg.TLSCert, a.cfg.TLSKey, a.log)
		if err != nil {
			return err
		}
		a.tls = &tls.Config{GetCertificate: get, MinVersion: tls.VersionTLS12}
	case "acme":
		roots, err := acmeRoots(a.cfg.ACMECARoot)
		if err != nil {
			return err
		}
		options := certs.ACMEOptions{
			Site: a.site, Alias: a.delivery.WasOnline, Dir: filepath.Join(a.cfg.DataDir, certificatesDir),
			Email: a.cfg.ACMEEmail, CA: a.cfg.ACMECA, Roots: roots,
			HTTPAddr: a.cfg.HTTPAddr, TLSAddr: a.cfg.HTTPSAddr, Registry: registry, Log: a.log,
			Resolvers: words(a.cfg.ACMEDNSResolvers),
		}
		if a.cfg.DatabaseURL != "" {
			options.Files = a.store
		}
		switch a.cfg.ACMEDNS {
		case "rfc2136":
			options.DNS = &certs.RFC2136{Server: a.cfg.ACMEDNSServer, Key: a.cfg.ACMEDNSKey}
		case "command":
			options.DNS = certs.DNSCommand(a.cfg.ACMEDNSCommand)
		}
		a.acme, err = certs.NewACME(options)
		if err != nil {
			return err
		}
		a.tls = a.acme.Config()
	}
	if a.tls != nil {
		a.tls.GetCertificate = tellEnds(a.site, registry, a.tls.GetCertificate)
	}
	return nil
}

// tellEnds returns a function that does the same as get, and exports as metrics when the certificates that
// callers see expire: that of the base host, and that of the aliases if they share one. This adds some
// microseconds to each handshake.
func tellEnds(site relay.Site, registry prometheus.Registerer, get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	ends := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "relay_certificate_not_after_seconds", Help: "When the certificate ends that was shown last, in seconds since 1970; 0 = none was shown yet.",
	}, []string{"name"})
	registry.MustRegister(ends)
	base := site.Base.Hostname()
	ends.WithLabelValues(base).Set(0)
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		cert, err := get(hello)
		if cert == nil || cert.Leaf == nil || slices.Contains(hello.SupportedProtos, "acme-tls/1") { // a certificate that proves the host to the CA (RFC 8737), not for callers
			return cert, err
		}
		for name, host := range map[string]string{base: base, "*." + site.AliasDomain: "any-alias." + site.AliasDomain} {
			if cert.Leaf.VerifyHostname(host) == nil {
				ends.WithLabelValues(name).Set(float64(cert.Leaf.NotAfter.Unix()))
			}
		}
		return cert, err
	}
}

// acmeRoots returns the roots of the system and of a PEM file; nil without a file.
func acmeRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read --acme-ca-root: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(record.DecodeText(text)) {
		return nil, fmt.Errorf("--acme-ca-root: %s holds no PEM certificate", file)
	}
	return pool, nil
}

// certPrefetcher orders the certificate of an alias when a tunnel is attached, because the first TLS
// handshake should not wait.
type certPrefetcher struct {
	*delivery.Delivery
	acme *certs.ACME
}

// Attach attaches t as the tunnel of the alias, and orders the certificate of the alias.
func (d certPrefetcher) Attach(a *relay.Alias, t relay.Tunnel) relay.Attachment {
	h := d.Delivery.Attach(a, t)
	d.acme.Online(a.Name)
	return h
}
