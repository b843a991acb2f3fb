package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"time"

	"relay/store"
)

// expiresSoon is when a certificate should have been renewed long ago.
const expiresSoon = 14 * 24 * time.Hour

// checkCertificate: the certificate is there, for the right names, and not about to
// end. There is nothing to say without a TLS listener.
func checkCertificate(cfg Config) []store.Finding {
	const check = "certificate"
	switch cfg.TLS {
	case "files":
		return []store.Finding{checkCertFiles(check, cfg)}
	case "acme":
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
	base := cfg.site(cfg.addresses()).Base
	host := base.Hostname()
	found, _ := filepath.Glob(filepath.Join(dir, "certificates", "*", host, host+".crt"))
	var best *x509.Certificate
	for _, file := range found {
		if cert, err := readCert(file); err == nil && (best == nil || cert.NotAfter.After(best.NotAfter)) {
			best = cert
		}
	}
	if best == nil {
		return finding(check, store.VerdictWarn, "start relayd serve; the CA has to reach this machine at port 80 or 443 of "+host, "there is none for %s yet", host)
	}
	return checkExpiry(check, best)
}

func readCert(file string) (*x509.Certificate, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no PEM")
	}
	return x509.ParseCertificate(block.Bytes)
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
