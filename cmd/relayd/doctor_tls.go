package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"relay/store"
)

// expiresSoon is when a certificate should have been renewed long ago.
const expiresSoon = 14 * 24 * time.Hour

// checkCertificate: the certificate is there, for the right names, and not about to
// end. There is nothing to say without a TLS listener. With ACME on Postgres, checkStore has
// the certificate.
func checkCertificate(cfg Config) []store.Finding {
	const check = "certificate"
	switch {
	case cfg.TLS == "files":
		return []store.Finding{checkCertFiles(check, cfg)}
	case cfg.TLS == "acme" && cfg.DatabaseURL == "":
		return []store.Finding{checkCertFolder(check, cfg)}
	}
	return nil
}

func checkCertFiles(check string, cfg Config) store.Finding {
	pair, err := tls.LoadX509KeyPair(string(cfg.TLSCert), string(cfg.TLSKey))
	if err != nil {
		return finding(check, store.VerdictFail, "put a PEM chain and its key there; a running server reads them by itself", "%v", err)
	}
	if info, err := os.Stat(string(cfg.TLSKey)); err == nil && info.Mode().Perm()&0o007 != 0 {
		return finding(check, store.VerdictWarn, "chmod o-rwx "+quote(string(cfg.TLSKey)), "everybody may read %s (mode %04o)", cfg.TLSKey, info.Mode().Perm())
	}
	site := cfg.site(cfg.addresses())
	for _, name := range []string{site.Base.Hostname(), "alias." + site.AliasDomain} {
		if err := pair.Leaf.VerifyHostname(name); err != nil {
			return finding(check, store.VerdictWarn, "get one for the base host and the wildcard *."+site.AliasDomain, "%v", err)
		}
	}
	return checkExpiry(check, pair.Leaf)
}

// checkCertFolder checks the certificates that came by ACME.
func checkCertFolder(check string, cfg Config) store.Finding {
	dir := filepath.Join(string(cfg.DataDir), certificatesDir)
	if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o077 != 0 {
		return finding(check, store.VerdictFail, "chmod 700 "+quote(dir), "others may look into %s (mode %04o)", dir, info.Mode().Perm())
	}
	host := baseHost(cfg)
	found, _ := filepath.Glob(filepath.Join(dir, "certificates", "*", host, host+".crt"))
	return checkOrdered(check, cfg, found, os.ReadFile)
}

// checkSharedCertificate checks the certificates that came by ACME for all nodes.
func checkSharedCertificate(ctx context.Context, s *store.Store, cfg Config) store.Finding {
	const check = "certificate"
	names, err := s.SharedFiles(ctx, certificatesDir)
	if err != nil {
		return finding(check, store.VerdictFail, "run relayd doctor again", "%s", userMessage(err))
	}
	host := baseHost(cfg)
	names = slices.DeleteFunc(names, func(name string) bool { return path.Base(name) != host+".crt" })
	return checkOrdered(check, cfg, names, func(name string) ([]byte, error) {
		text, _, err := s.SharedFile(ctx, name)
		return text, err
	})
}

func baseHost(cfg Config) string {
	base := cfg.site(cfg.addresses()).Base
	return base.Hostname()
}

// checkOrdered checks the newest certificate of the base host among files.
func checkOrdered(check string, cfg Config, files []string, read func(string) ([]byte, error)) store.Finding {
	var best *x509.Certificate
	for _, file := range files {
		text, err := read(file)
		block, _ := pem.Decode(text)
		if err != nil || block == nil {
			continue
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && (best == nil || cert.NotAfter.After(best.NotAfter)) {
			best = cert
		}
	}
	host, fix := baseHost(cfg), "start relayd serve; its log says why an order fails"
	if best != nil {
		return checkExpiry(check, best)
	}
	if cfg.ACMEDNS == off {
		fix += "; the CA has to reach this machine at port 80 or 443 of " + host
	}
	return finding(check, store.VerdictWarn, fix, "there is none for %s yet", host)
}

func checkExpiry(check string, cert *x509.Certificate) store.Finding {
	left, until := time.Until(cert.NotAfter), cert.NotAfter.Local().Format("2006-01-02 15:04")
	switch {
	case left <= 0:
		return finding(check, store.VerdictFail, "renew it", "it ended at %s", until)
	case left < expiresSoon && left < cert.NotAfter.Sub(cert.NotBefore)/5:
		return finding(check, store.VerdictWarn, "find out why it is not renewed", "it ends at %s", until)
	}
	return passed(check, "good until %s", until)
}

// checkProxies checks trusted-proxies: a trusted proxy names the source of connections.
func checkProxies(cfg Config) []store.Finding {
	const check = "proxies"
	if len(cfg.TrustedProxies) == 0 {
		return nil
	}
	for _, p := range cfg.TrustedProxies {
		if p.Bits() == 0 {
			return []store.Finding{finding(check, store.VerdictFail, "list only the addresses of your proxies", "%s trusts everybody to say where they come from", p)}
		}
	}
	return []store.Finding{passed(check, "%s must send a PROXY header, on HTTP, TLS and SSH", cfg.TrustedProxies.String())}
}

// checkSite checks that browsers treat dashboard and aliases as different sites.
func checkSite(cfg Config) store.Finding {
	const check = "site"
	site := cfg.site(cfg.addresses())
	if shared := sameSite(site); shared != "" {
		return finding(check, store.VerdictWarn, sameSiteFix, sameSiteReason, site.Base.Host, site.AliasDomain, shared)
	}
	return passed(check, "browsers keep the dashboard and the aliases apart")
}
