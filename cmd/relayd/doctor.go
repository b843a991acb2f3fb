package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"relay"
	"relay/cli"
	"relay/record"
	"relay/sshgate"
	"relay/store"
	"relay/store/spool"
)

func (c *program) doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "check store, disk, keys, ports and addresses; exit 1 when something fails", Args: cli.Takes("", 0, 0),
		Long: `Checks the set-up beside a running server or without one, and changes nothing. Each line
is a check, its verdict (ok, warn, fail), the reason, and what to do about it.`,
	}
	asJSON := jsonFlag(cmd)
	return c.withSettings(cmd, true, func(ctx context.Context, cfg Config, _ []*setting, _ []string) error {
		list := c.runChecks(ctx, cfg)
		if err := printFindings(c.stdout, *asJSON, list); err != nil {
			return err
		}
		failed := slices.DeleteFunc(list, func(f relay.Finding) bool { return f.Verdict != relay.VerdictFail })
		if len(failed) > 0 {
			return fmt.Errorf("%s failed; the last column says what to do", record.Count(len(failed), "check", "checks"))
		}
		return nil
	})
}

func printFindings(w io.Writer, asJSON bool, list []relay.Finding) error {
	return printRows(w, asJSON, "CHECK\tVERDICT\tREASON\tFIX", list, func(f relay.Finding) []string {
		return []string{f.Check, f.Verdict, f.Reason, cmp.Or(f.Fix, "-")}
	})
}

const (
	probeTimeout  = 10 * time.Second // for a relay on a busy machine
	lookupTimeout = 3 * time.Second
)

// runChecks runs every check.
func (c *program) runChecks(ctx context.Context, cfg Config) []relay.Finding {
	list := []relay.Finding{checkDataDir(cfg)}
	files := hostKeyFiles(cfg)
	if len(files) == 0 && cfg.DatabaseURL == "" {
		files = []string{filepath.Join(cfg.DataDir, sshgate.HostKeyFile)}
	}
	for _, file := range files {
		list = append(list, checkHostKey(file))
	}
	if err := checkServedStore(cfg); err != nil {
		reason, fix := hintOf(err)
		return append(list, finding("served store", relay.VerdictFail, fix, "%s", reason)) // the rest would be about the wrong one
	}
	stored, served := c.checkStore(ctx, cfg)
	list = append(list, stored...)
	list = append(list, checkSpool(cfg)...)
	listeners := checkListeners(ctx, cfg)
	list = append(list, listeners...)
	list = append(list, checkWhichStore(cfg, listeners, served)...)
	if cfg.TLS == "files" {
		list = append(list, checkCertFiles(cfg))
	} else if cfg.TLS == "acme" && cfg.DatabaseURL == "" {
		list = append(list, checkCertFolder(cfg))
	}
	list = append(list, checkProxies(cfg)...)
	return append(list, checkBaseURL(cfg), checkAliasDomain(ctx, cfg), checkSite(cfg))
}

func passed(check, format string, args ...any) relay.Finding {
	return finding(check, relay.VerdictOK, "", format, args...)
}

func finding(check, verdict, fix, format string, args ...any) relay.Finding {
	f := relay.Findingf(verdict, fix, format, args...)
	f.Check = check
	return f
}

// checkStore checks the store. served is whether a server has it, or that is not known.
func (c *program) checkStore(ctx context.Context, cfg Config) (list []relay.Finding, served bool) {
	s, err := c.openStore(ctx, cfg, true)
	if err != nil {
		fix := "start relayd serve once, or pass the --data-dir or --database-url of the server"
		_, inside := os.Stat(filepath.Join(cfg.DataDir, "relay.db"))
		switch {
		case cfg.DatabaseURL != "":
			fix = "make sure that the database of --database-url answers and lets relayd in"
		case errors.Is(err, fs.ErrPermission), errors.Is(inside, fs.ErrPermission):
			fix = "run relayd doctor as the user that runs relayd; if that is you: chown -R USER " + quote(cfg.DataDir)
		case inside == nil:
			fix = "do as the reason says, then run relayd doctor again"
		}
		return []relay.Finding{finding("store", relay.VerdictFail, fix, "%s", userMessage(err))}, true
	}
	defer s.Close()
	list = s.Examine(ctx)
	if list[0].Verdict == relay.VerdictFail {
		return list, true // there are no tables to look at
	}
	nodes, err := s.Nodes(ctx)
	served = err != nil || slices.ContainsFunc(nodes, func(n relay.Node) bool { return n.State != relay.NodeDead })
	if cfg.DatabaseURL != "" && len(hostKeyFiles(cfg)) == 0 {
		list = append(list, checkSharedKey(ctx, s))
	}
	if cfg.DatabaseURL != "" && cfg.TLS == "acme" {
		list = append(list, checkSharedCertificate(ctx, s, cfg))
	}
	return append(list, checkQueues(ctx, s, cfg)), served
}

// checkSharedKey is about the host key that all nodes share by the database.
func checkSharedKey(ctx context.Context, s *store.Store) relay.Finding {
	const check, fix = "host key", "set --ssh-host-key to the same key file on each node"
	text, _, err := s.SharedFile(ctx, sshgate.HostKeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return finding(check, relay.VerdictWarn, "start relayd serve once", "there is none in the database yet")
	}
	if err != nil {
		return finding(check, relay.VerdictFail, "run relayd doctor again", "%s", userMessage(err))
	}
	key, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return finding(check, relay.VerdictFail, fix, "that of the database cannot be used: %v", err)
	}
	return passed(check, "%s, in the database: anyone who reads a backup of it has the key; --ssh-host-key keeps it in a file instead", ssh.FingerprintSHA256(key.PublicKey()))
}

// checkDataDir: what is in it must be nobody else's.
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
	case info.Mode().Perm()&0o020 != 0: // as Kubernetes makes it for fsGroup
		return finding(check, relay.VerdictWarn, "chmod 700 "+quote(cfg.DataDir)+", unless the group has no other members", "its group may write to %s", cfg.DataDir)
	}
	return passed(check, "%s", cfg.DataDir)
}

// checkHostKey checks the host key in a file, which nobody but the user that runs relayd may
// read.
func checkHostKey(file string) relay.Finding {
	const check = "host key"
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return finding(check, relay.VerdictWarn, "start relayd serve once, or put the old key there: people pinned it", "there is none at %s yet", file)
	}
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		return finding(check, relay.VerdictFail, "chmod 600 "+quote(file), "others may read %s (mode %04o)", file, info.Mode().Perm())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return finding(check, relay.VerdictFail, "make it readable for the user that runs relayd", "%v", err)
	}
	key, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return finding(check, relay.VerdictFail, "restore it from a backup, or remove it to have a new one made, which people have to accept", "%s: %v; relayd will not start", file, err)
	}
	return passed(check, "%s, %04o", ssh.FingerprintSHA256(key.PublicKey()), info.Mode().Perm())
}

// relayAnswers begins the finding of a listener behind which a relay is.
const relayAnswers = "a relay answers at "

// checkListeners: each port is free, or it is a relay that answers there.
func checkListeners(ctx context.Context, cfg Config) (list []relay.Finding) {
	if known, ok := loadSiteFile(cfg); ok { // no site was given: the addresses of the last server count
		defaults := defaultConfig()
		cfg.HTTPAddr = known.HTTPAddr
		if cfg.SSHAddr == defaults.SSHAddr {
			cfg.SSHAddr = cmp.Or(known.SSHListener, cfg.SSHAddr)
		}
		if cfg.AdminAddr == defaults.AdminAddr { // the file does not tell whether the last server had one
			cfg.AdminAddr = ""
		}
	}
	for _, l := range []struct {
		flag, addr string
		probe      func(ctx context.Context, addr string) error
	}{
		{"http-addr", cfg.HTTPAddr, probeHTTP(cfg, cfg.TrustedProxies, "http", "/healthz")},
		{"https-addr", cfg.HTTPSAddr, probeHTTP(cfg, cfg.TrustedProxies, "https", "/healthz")},
		{"ssh-addr", cfg.SSHAddr, probeSSH(cfg.TrustedProxies)},
		{"admin-addr", cfg.AdminAddr, probeHTTP(cfg, nil, "http", "/debug/stats")},
	} {
		if l.addr == "" {
			continue
		}
		ln, err := net.Listen("tcp", l.addr)
		if err == nil {
			_ = ln.Close()
			list = append(list, passed(l.flag, "%s is free; no server runs there", l.addr))
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		answer := l.probe(ctx, dialable(l.addr))
		cancel()
		var refused *net.OpError
		switch {
		case answer == nil:
			list = append(list, passed(l.flag, relayAnswers+"%s", l.addr))
			continue
		case errors.Is(err, syscall.EACCES) && errors.Is(answer, syscall.ECONNREFUSED):
			list = append(list, finding(l.flag, relay.VerdictWarn, "start relayd with the right to it (CAP_NET_BIND_SERVICE), as the packaged service does",
				"nothing listens on %s, and this user may not: ports below 1024 need more rights", l.addr))
			continue
		case cfg.TLS == "acme" && l.flag == "https-addr" && errors.As(answer, &refused) && refused.Op == "remote error":
			list = append(list, finding(l.flag, relay.VerdictWarn, "see the check certificate",
				"what listens on %s has no certificate for %s yet", l.addr, cfg.site().Base.Host))
			continue
		}
		list = append(list, finding(l.flag, relay.VerdictFail, "stop what listens there, or choose another with --"+l.flag,
			"%v, and it is no relay that answers there", listenError(strings.TrimSuffix(l.flag, "-addr"), l.addr, l.flag, err)))
	}
	return list
}

// dialable is an address to reach a listener of this machine by.
func dialable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip, perr := netip.ParseAddr(host); err == nil && (host == "" || perr == nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}

func probeHTTP(cfg Config, trusted []netip.Prefix, scheme, path string) func(context.Context, string) error {
	return func(ctx context.Context, addr string) error {
		body, err := getLocal(ctx, cfg, trusted, scheme+"://"+addr+path)
		if err == nil && !bytes.HasPrefix(body, []byte("{")) {
			err = errors.New("it is no relay")
		}
		return err
	}
}

func probeSSH(trusted []netip.Prefix) func(context.Context, string) error {
	return func(ctx context.Context, addr string) error {
		conn, err := dialLocal(trusted)(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(probeTimeout))
		const greeting = "SSH-2.0-relayd"
		start := make([]byte, len(greeting))
		if _, err := io.ReadFull(conn, start); err != nil || string(start) != greeting {
			return fmt.Errorf("%s says %q", addr, start)
		}
		return nil
	}
}

func checkBaseURL(cfg Config) relay.Finding {
	const check = "base URL"
	base := cfg.site().Base
	host := base.Hostname()
	_, err := netip.ParseAddr(host)
	switch {
	case base.Scheme == "https" && cfg.HTTPSAddr == "" && cfg.loopback():
		return finding(check, relay.VerdictWarn, "see that something in front ends TLS and passes Host on", "%s is https, and relayd has no TLS listener", base.String())
	case base.Scheme == "http" && cfg.HTTPSAddr != "":
		return finding(check, relay.VerdictWarn, "set --base-url to its https address", "there is a TLS listener, and %s leads people past it", base.String())
	case !cfg.loopback() && (host == "localhost" || strings.HasSuffix(host, ".localhost")):
		return finding(check, relay.VerdictFail, "set --base-url to the address that people use", "relayd listens for other machines, and %s leads each to itself", base.String())
	case !cfg.loopback() && base.Scheme == "http" && err != nil:
		return finding(check, relay.VerdictWarn, "set up TLS (--tls), or a proxy that ends it", "%s: logins and tokens travel in the clear", base.String())
	}
	return passed(check, "%s", base.String())
}

// checkAliasDomain: aliases are names below it, which have to lead here.
func checkAliasDomain(ctx context.Context, cfg Config) relay.Finding {
	const check = "alias domain"
	domain := cfg.AliasDomain
	if _, err := netip.ParseAddr(domain); err == nil {
		return finding(check, relay.VerdictFail, "set --alias-domain to a name", "%s is an address: there are no names below it", domain)
	}
	if domain == "localhost" || strings.HasSuffix(domain, ".localhost") {
		if !cfg.loopback() {
			return finding(check, relay.VerdictFail, "set --alias-domain to a domain with a wildcard DNS entry", "relayd listens for other machines, and *.%s leads each to itself", domain)
		}
		return passed(check, "*.%s is this machine", domain)
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	if _, err := net.DefaultResolver.LookupHost(ctx, "relay-doctor."+domain); err != nil {
		return finding(check, relay.VerdictWarn, "make a wildcard DNS entry: *."+domain+" to the address of this machine", "no name below %s was found: %v", domain, err)
	}
	return passed(check, "names below %s are found", domain)
}

// nearlyFull is the percentage of a limit at which doctor warns.
const nearlyFull = 80

// checkSpool reports events in the spool that are not in Postgres yet. It reports nothing
// with SQLite and an empty spool.
func checkSpool(cfg Config) []relay.Finding {
	const check = "spool"
	dir := cfg.DataDir
	left, err := spool.ReadLeft(dir)
	var list []relay.Finding
	if err != nil {
		list = append(list, finding(check, relay.VerdictFail, "let the user that runs relayd read and write every file in the data dir", "the spool in %s cannot be read: %s", dir, err))
	}
	if broken := len(left.Aside); broken > 0 {
		list = append(list, finding(check, relay.VerdictWarn, "keep them elsewhere with the log of that time, which says why, and report it with the version of relayd",
			"%s of the spool in %s could not be read or stored", record.Count(broken, "file", "files"), dir))
	}
	size, waiting := relay.FormatBytes(left.Bytes), left.Bytes > 0
	switch limit := cfg.SpoolLimit; {
	case waiting && cfg.DatabaseURL == "":
		return append(list, finding(check, relay.VerdictFail, "start relayd with the --database-url that they were meant for; leave the files there until then",
			"%s of events in %s wait for a postgres, and the store is SQLite now", size, dir))
	case waiting && limit > 0 && left.Bytes >= spool.Intake(limit):
		return append(list, finding(check, relay.VerdictFail, "bring postgres back, or raise --spool-limit if the disk has space; leave the files there",
			"%s of events wait for postgres in %s, and the spool is full: callers get 503", size, dir))
	case waiting:
		return append(list, finding(check, relay.VerdictWarn,
			"bring postgres back; a server that runs stores them by itself, and so does the next start with this data dir; leave the files there",
			"%s of events wait for postgres in %s", size, dir))
	case cfg.DatabaseURL != "" && len(list) == 0:
		return []relay.Finding{passed(check, "nothing waits for postgres in %s", dir)}
	}
	return list
}

// queues is what checkQueues asks a store for.
type queues interface {
	Aliases(ctx context.Context, who relay.Actor) ([]relay.Alias, error)
	AllQueueStats(ctx context.Context) (map[int64]relay.QueueStats, error)
}

// checkQueues reports queued requests: callers of an alias whose queue is full get 503.
func checkQueues(ctx context.Context, s queues, cfg Config) relay.Finding {
	const check = "queues"
	aliases, err := s.Aliases(ctx, relay.System())
	var stats map[int64]relay.QueueStats
	if err == nil {
		stats, err = s.AllQueueStats(ctx)
	}
	if err != nil {
		return finding(check, relay.VerdictFail, "see whether the database answers, then run relayd doctor again", "the check could not be done: %s", userMessage(err))
	}
	var waiting, at int
	var oldest time.Time
	var full, filling []string
	for _, a := range aliases {
		q := stats[a.ID]
		if q.Queued == 0 {
			continue
		}
		waiting, at = waiting+q.Queued, at+1
		if oldest.IsZero() || q.OldestQueuedAt.Before(oldest) {
			oldest = q.OldestQueuedAt
		}
		percent := max(percent(int64(q.Queued), int64(cfg.QueueLimit)), percent(q.QueuedBytes, cfg.QueueBytes))
		switch {
		case percent >= 100:
			full = append(full, a.Name)
		case percent >= nearlyFull:
			filling = append(filling, a.Name)
		}
	}
	const fix = "open the tunnel of the alias and release what waits (`ssh HOST replay-queued ALIAS`, or the dashboard), cancel or delete what nobody needs, or raise --queue-limit and --queue-bytes"
	switch {
	case len(full) > 0:
		return finding(check, relay.VerdictFail, fix, "the queue of %s is full: callers get 503 queue-full", joinMax(full))
	case len(filling) > 0:
		return finding(check, relay.VerdictWarn, fix, "the queue of %s is nearly full; then callers get 503 queue-full", joinMax(filling))
	case waiting > 0:
		return passed(check, "%s waiting at %s, the oldest since %s", record.Count(waiting, "attempt", "attempts"), record.Count(at, "alias", "aliases"), when(oldest))
	}
	return passed(check, "nothing waits for a tunnel")
}

// percent is how many percent of a limit are used; 0 where there is none.
func percent(used, limit int64) int64 {
	if limit <= 0 {
		return 0
	}
	return int64(float64(used) / float64(limit) * 100)
}

// joinMax names a few of many.
func joinMax(names []string) string {
	const most = 3
	slices.Sort(names)
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

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
