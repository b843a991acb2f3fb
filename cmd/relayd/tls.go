package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"relay/server"
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
