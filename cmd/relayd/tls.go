package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"relay"
	"relay/delivery"
	"relay/server"
	"relay/sshgate"
)

// certificatesDir is the folder of ACME accounts, keys and certificates within the
// data dir.
const certificatesDir = "certificates"

// makeTLS says where the certificates of the TLS listener come from; a.tls stays nil
// where there is none.
func (a *app) makeTLS(figures prometheus.Registerer) error {
	switch a.cfg.TLS {
	case "files":
		get, err := server.CertFiles(string(a.cfg.TLSCert), string(a.cfg.TLSKey), a.log)
		if err != nil {
			return err
		}
		a.tls = &tls.Config{GetCertificate: get, MinVersion: tls.VersionTLS12}
	case "acme":
		roots, err := acmeRoots(string(a.cfg.ACMECARoot))
		if err != nil {
			return err
		}
		a.acme, err = server.NewACME(server.ACMEOptions{
			Site: a.site, Alias: a.delivery.WasOnline, Dir: filepath.Join(string(a.cfg.DataDir), certificatesDir),
			Email: string(a.cfg.ACMEEmail), CA: string(a.cfg.ACMECA), Roots: roots,
			HTTPAddr: a.at.HTTP, TLSAddr: a.at.HTTPS, Registry: figures, Log: a.log,
		})
		if err != nil {
			return err
		}
		a.tls = a.acme.Config()
	}
	return nil
}

// acmeRoots are the system's roots with those of a PEM file; nil without a file.
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
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--acme-ca-root: %w", errors.New(file+" holds no PEM certificate"))
	}
	return pool, nil
}

// challenge answers the CA's questions on plain HTTP; nil where nothing is ordered.
func (a *app) challenge() func(host, path string) (string, bool) {
	if a.acme == nil {
		return nil
	}
	return a.acme.Challenge
}

// attacher is where tunnels are announced: delivery, and where certificates come by
// ACME the one who orders that of the alias.
func (a *app) attacher() sshgate.Attacher {
	if a.acme == nil {
		return a.delivery
	}
	return ahead{a.delivery, a.acme}
}

// ahead orders the certificate of an alias as a tunnel is attached to it, so that its
// first visitor need not wait.
type ahead struct {
	*delivery.Delivery
	acme *server.ACME
}

// Attach makes t the tunnel of the alias.
func (d ahead) Attach(a *relay.Alias, t relay.Tunnel) relay.Attachment {
	h := d.Delivery.Attach(a, t)
	d.acme.Online(a.Name)
	return h
}
