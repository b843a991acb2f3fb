package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path"
	"path/filepath"
	"time"

	"relay"
	"relay/store"
)

// expiresSoon is when a certificate should have been renewed long ago.
const expiresSoon = 14 * 24 * time.Hour

// checkCertFiles checks that the certificate is there, for the right names, and not about to end.
func checkCertFiles(cfg Config) relay.Finding {
	const check = "certificate"
	pair, err := tls.LoadX509KeyPair(cfg.TLSCert, cfg.TLSKey)
	if err != nil {
		return finding(check, relay.VerdictFail, "put a PEM chain and its key there; a running server reads them by itself", "%v", err)
	}
	if info, err := os.Stat(cfg.TLSKey); err == nil && info.Mode().Perm()&0o007 != 0 {
		return finding(check, relay.VerdictWarn, "chmod o-rwx "+quote(cfg.TLSKey), "everybody may read %s (mode %04o)", cfg.TLSKey, info.Mode().Perm())
	}
	site := cfg.site()
	for _, name := range []string{site.Base.Hostname(), "alias." + site.AliasDomain} {
		if err := pair.Leaf.VerifyHostname(name); err != nil {
			return finding(check, relay.VerdictWarn, "get one for the base host and the wildcard *."+site.AliasDomain, "%v", err)
		}
	}
	return checkExpiry(pair.Leaf)
}

// checkCertFolder checks the certificates that came by ACME.
func checkCertFolder(cfg Config) relay.Finding {
	dir := filepath.Join(cfg.DataDir, certificatesDir)
	if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o077 != 0 {
		return finding("certificate", relay.VerdictFail, "chmod 700 "+quote(dir), "others may look into %s (mode %04o)", dir, info.Mode().Perm())
	}
	files, _ := filepath.Glob(filepath.Join(dir, "certificates", "*", "*", "*.crt"))
	return checkOrdered(cfg, files, os.ReadFile)
}

// checkSharedCertificate checks the certificates that came by ACME for all nodes.
func checkSharedCertificate(ctx context.Context, s *store.Store, cfg Config) relay.Finding {
	names, err := s.SharedFiles(ctx, certificatesDir)
	if err != nil {
		return finding("certificate", relay.VerdictFail, "run relayd doctor again", "%s", userMessage(err))
	}
	return checkOrdered(cfg, names, func(name string) ([]byte, error) {
		text, _, err := s.SharedFile(ctx, name)
		return text, err
	})
}

// checkOrdered checks the newest certificate of the base host among files.
func checkOrdered(cfg Config, files []string, read func(string) ([]byte, error)) relay.Finding {
	base := cfg.site().Base
	host := base.Hostname()
	var best *x509.Certificate
	for _, file := range files {
		if path.Base(filepath.ToSlash(file)) != host+".crt" {
			continue
		}
		text, err := read(file)
		block, _ := pem.Decode(text)
		if err != nil || block == nil {
			continue
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && (best == nil || cert.NotAfter.After(best.NotAfter)) {
			best = cert
		}
	}
	if best != nil {
		return checkExpiry(best)
	}
	fix := "start relayd serve; its log says why an order fails"
	if cfg.ACMEDNS == off {
		fix += "; the CA has to reach this machine at port 80 or 443 of " + host
	}
	return finding("certificate", relay.VerdictWarn, fix, "there is none for %s yet", host)
}

func checkExpiry(cert *x509.Certificate) relay.Finding {
	const check = "certificate"
	left, until := time.Until(cert.NotAfter), cert.NotAfter.Local().Format("2006-01-02 15:04")
	switch {
	case left <= 0:
		return finding(check, relay.VerdictFail, "renew it", "it ended at %s", until)
	case left < expiresSoon && left < cert.NotAfter.Sub(cert.NotBefore)/5:
		return finding(check, relay.VerdictWarn, "find out why it is not renewed", "it ends at %s", until)
	}
	return passed(check, "good until %s", until)
}

// checkProxies checks trusted-proxies: a trusted proxy names the source of connections.
func checkProxies(cfg Config) []relay.Finding {
	const check = "proxies"
	if len(cfg.TrustedProxies) == 0 {
		return nil
	}
	for _, p := range cfg.TrustedProxies {
		if p.Bits() == 0 {
			return []relay.Finding{finding(check, relay.VerdictFail, "list only the addresses of your proxies", "%s trusts everybody to say where they come from", p)}
		}
	}
	return []relay.Finding{passed(check, "%s must send a PROXY header, on HTTP, TLS and SSH", networkText(cfg.TrustedProxies))}
}

// checkSite checks that browsers treat dashboard and aliases as different sites.
func checkSite(cfg Config) relay.Finding {
	const check = "site"
	site := cfg.site()
	if shared := sameSite(site); shared != "" {
		return finding(check, relay.VerdictWarn, sameSiteFix, sameSiteReason, site.Base.Host, site.AliasDomain, shared)
	}
	return passed(check, "browsers keep the dashboard and the aliases apart")
}
