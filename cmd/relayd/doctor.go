package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"relay"
	"relay/record"
	"relay/sshgate"
	"relay/store"
)

func (c *cli) doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "check store, disk, keys, ports and addresses; exit 1 when something fails", Args: exactly(),
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
func (c *cli) runChecks(ctx context.Context, cfg Config) []relay.Finding {
	list := []relay.Finding{checkDataDir(cfg)}
	files := hostKeyFiles(cfg)
	if len(files) == 0 && cfg.DatabaseURL == "" {
		files = []string{filepath.Join(cfg.DataDir, sshgate.HostKeyFile)}
	}
	for _, file := range files {
		list = append(list, checkHostKey(file))
	}
	list = append(list, c.checkStore(ctx, cfg)...)
	list = append(list, checkSpool(cfg)...)
	list = append(list, checkListeners(ctx, cfg)...)
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

func (c *cli) checkStore(ctx context.Context, cfg Config) []relay.Finding {
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
		return []relay.Finding{finding("store", relay.VerdictFail, fix, "%s", userMessage(err))}
	}
	defer s.Close()
	list := s.Examine(ctx)
	if list[0].Verdict == relay.VerdictFail {
		return list // there are no tables to look at
	}
	if cfg.DatabaseURL != "" && len(hostKeyFiles(cfg)) == 0 {
		list = append(list, checkSharedKey(ctx, s))
	}
	if cfg.DatabaseURL != "" && cfg.TLS == "acme" {
		list = append(list, checkSharedCertificate(ctx, s, cfg))
	}
	return append(list, checkQueues(ctx, s, cfg))
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
	case info.Mode().Perm()&0o022 != 0:
		return finding(check, relay.VerdictFail, "chmod 700 "+quote(cfg.DataDir), "others may write to %s", cfg.DataDir)
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

// checkListeners: each port is free, or it is a relay that answers there.
func checkListeners(ctx context.Context, cfg Config) (list []relay.Finding) {
	if known, ok := loadSiteFile(cfg); ok { // no addresses were given: those of the last server count
		cfg.HTTPAddr, cfg.SSHAddr, cfg.AdminAddr = known.HTTPAddr, cmp.Or(known.SSHListener, cfg.SSHAddr), ""
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
		if answer == nil {
			list = append(list, passed(l.flag, "a relay answers at %s", l.addr))
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
