package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"

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
	return nil
}

// acmeRoots returns the roots of the system and of a PEM file, nil without a file.
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

// certPrefetcher orders the certificate of an alias when a tunnel is attached to it, so
// that the first TLS handshake need not wait.
type certPrefetcher struct {
	*delivery.Delivery
	acme *certs.ACME
}

// Attach makes t the tunnel of the alias.
func (d certPrefetcher) Attach(a *relay.Alias, t relay.Tunnel) relay.Attachment {
	h := d.Delivery.Attach(a, t)
	d.acme.Online(a.Name)
	return h
}
