package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"relay"
	"relay/record"
	"relay/sshgate"
	"relay/store"

	"golang.org/x/crypto/ssh"
)

// checkDataDir checks that the data dir is a folder to which no other user may write.
func checkDataDir(cfg Config) relay.Finding {
	const check, fix = "data dir", "start one with `relayd serve`, or pass --data-dir DIR"
	info, err := os.Stat(cfg.DataDir)
	switch {
	case err != nil:
		return finding(check, relay.VerdictFail, fix, "%v", err)
	case !info.IsDir():
		return finding(check, relay.VerdictFail, fix, "%s is not a folder", cfg.DataDir)
	case info.Mode().Perm()&0o002 != 0:
		return finding(check, relay.VerdictFail, "chmod 700 "+quote(cfg.DataDir), "others may write to %s", cfg.DataDir)
	case info.Mode().Perm()&0o020 != 0: // Kubernetes sets this mode for fsGroup
		return finding(check, relay.VerdictWarn, "chmod 700 "+quote(cfg.DataDir)+", unless the group has no other members", "its group may write to %s", cfg.DataDir)
	}
	return passed(check, "%s", cfg.DataDir)
}

// checkHostKeys checks the host keys in files.
func (x *examination) checkHostKeys() {
	files := hostKeyFiles(x.cfg)
	if len(files) == 0 && x.cfg.DatabaseURL == "" {
		files = []string{filepath.Join(x.cfg.DataDir, sshgate.HostKeyFile)}
	}
	for _, file := range files {
		f, print := checkHostKey(file)
		x.add(f)
		if print != "" {
			x.hostKeys = append(x.hostKeys, print)
		}
	}
}

// checkHostKey checks a host key file, which only the user that runs relayd may read, and returns the
// fingerprint of the key.
func checkHostKey(file string) (f relay.Finding, print string) {
	const check = "host key"
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return finding(check, relay.VerdictWarn, "start relayd serve once, or put the old key there: people pinned it", "there is none at %s yet", file), ""
	}
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		return finding(check, relay.VerdictFail, "chmod 600 "+quote(file), "others may read %s (mode %04o)", file, info.Mode().Perm()), ""
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return finding(check, relay.VerdictFail, "make it readable for the user that runs relayd", "%v", err), ""
	}
	key, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return finding(check, relay.VerdictFail, "restore it from a backup, or remove it to have a new one made, which people have to accept", "%s: %v; relayd will not start", file, err), ""
	}
	print = ssh.FingerprintSHA256(key.PublicKey())
	return passed(check, "%s, %04o", print, info.Mode().Perm()), print
}

// checkOwners checks that the user of the data dir can read and write the files in it. It compares owners and
// modes, because doctor may run as root, which can open every file. After root has restored a backup, the
// files belong to root, and a server that runs as another user fails to start.
func checkOwners(cfg Config) (list []relay.Finding) {
	const check = "files"
	dir, err := os.Stat(cfg.DataDir)
	if err != nil {
		return nil // checkDataDir reports this error
	}
	owner, known := ownerOf(dir)
	entries, err := os.ReadDir(cfg.DataDir)
	if err != nil || !known {
		return nil
	}
	var foreign, locked []string
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() && !info.IsDir() {
			continue
		}
		user, _ := ownerOf(info)
		switch {
		case user != owner:
			foreign = append(foreign, e.Name())
		case strings.HasPrefix(e.Name(), databaseFile) && info.Mode().Perm()&0o600 != 0o600:
			locked = append(locked, filepath.Join(cfg.DataDir, e.Name()))
		}
	}
	if len(foreign) > 0 {
		list = append(list, finding(check, relay.VerdictFail, "chown -R --reference="+quote(cfg.DataDir)+" "+quote(cfg.DataDir),
			"%s in %s belong to another user than the folder, which the server may not read: %s", record.Count(len(foreign), "file", "files"), cfg.DataDir, joinMax(foreign)))
	}
	if len(locked) > 0 {
		list = append(list, finding(check, relay.VerdictFail, "chmod 600 "+quote(locked[0]), "relayd may not write to %s", joinMax(locked)))
	}
	return list
}

// expiresSoon is the remaining life of a certificate below which doctor warns. Renewals happen long before, so
// the renewal has probably failed.
const expiresSoon = 14 * 24 * time.Hour

// checkCertFiles checks that the certificate exists, has the needed names, and does not expire soon.
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
			return finding(check, relay.VerdictFail, "get one for the base host and the wildcard *."+site.AliasDomain, "%v", err)
		}
	}
	if f := checkExpiry(pair.Leaf); f.Verdict != relay.VerdictOK || !lacksIntermediate(pair) {
		return f
	}
	return finding(check, relay.VerdictWarn, "use the file with the whole chain (often called fullchain.pem)",
		"%s has the certificate without that of %q, which issued it: browsers may know that one, and most senders refuse the connection", cfg.TLSCert, pair.Leaf.Issuer.CommonName)
}

// lacksIntermediate reports whether a chain lacks the certificate of its issuer: the chain has one
// certificate, no root of this machine has signed that certificate, and that certificate names a URL for the
// missing one, as certificates of public authorities do.
func lacksIntermediate(pair tls.Certificate) bool {
	if len(pair.Certificate) > 1 || len(pair.Leaf.IssuingCertificateURL) == 0 {
		return false
	}
	_, err := pair.Leaf.Verify(x509.VerifyOptions{})
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	return unknown
}

// checkCertFolder checks the ACME certificates in the data dir.
func checkCertFolder(cfg Config) relay.Finding {
	dir := filepath.Join(cfg.DataDir, certificatesDir)
	if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o077 != 0 {
		return finding("certificate", relay.VerdictFail, "chmod 700 "+quote(dir), "others may look into %s (mode %04o)", dir, info.Mode().Perm())
	}
	files, _ := filepath.Glob(filepath.Join(dir, "certificates", "*", "*", "*.crt"))
	return checkOrdered(cfg, files, os.ReadFile)
}

// checkSharedCertificate checks the ACME certificates that all nodes share in the database.
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

// checkOrdered checks the newest certificate for the base host among files.
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
	left, until := time.Until(cert.NotAfter), record.ZonedTime(cert.NotAfter)
	switch {
	case left <= 0:
		return finding(check, relay.VerdictFail, "renew it", "it ended at %s", until)
	case left < expiresSoon && left < cert.NotAfter.Sub(cert.NotBefore)/5:
		return finding(check, relay.VerdictWarn, "find out why it is not renewed", "it ends at %s", until)
	}
	return passed(check, "good until %s", until)
}
