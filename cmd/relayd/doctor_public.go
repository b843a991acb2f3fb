package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/sockets"
)

// The checks of this file act like a caller: they look up the names, dial their addresses and expect that
// this relay answers.

// publicTimeout bounds each check from outside, because a firewall that drops packets gives no answer.
const publicTimeout = 5 * time.Second

// checkBase checks the base URL itself and, if the server is running, whether the URL leads to that server.
func (x *examination) checkBase(ctx context.Context) {
	const check = "base URL"
	f := checkBaseURL(x.cfg)
	base := x.site.Base
	if f.Verdict != relay.VerdictOK {
		x.add(f)
	}
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, publicTimeout)
	defer cancel()
	addrs, err := lookup(ctx, base.Hostname())
	if err != nil {
		x.add(finding(check, relay.VerdictFail, "make a DNS entry: "+base.Hostname()+" to the address of this machine", "%s: no address was found: %v", base.String(), err))
		return
	}
	if !x.answers {
		if f.Verdict == relay.VerdictOK {
			x.add(passed(check, "%s leads to %s", base.String(), joinMax(addrs)))
		}
		return
	}
	name, err := x.askName(ctx, "")
	var unknown x509.UnknownAuthorityError
	var wrongName x509.HostnameError
	var invalid x509.CertificateInvalidError
	var network *net.OpError
	switch {
	case errors.As(err, &unknown), errors.As(err, &wrongName), errors.As(err, &invalid):
		x.add(finding(check, relay.VerdictFail, "see the check certificate; callers refuse such a one", "%s: %v", base.String(), err))
	case errors.As(err, &network), errors.Is(err, context.DeadlineExceeded):
		x.add(finding(check, relay.VerdictWarn, "open the port in the firewall; if only this machine cannot reach its own public address, check with curl "+quote(base.JoinPath("/healthz").String())+" from another one",
			"%s leads to %s, and this machine cannot connect there: %v", base.String(), joinMax(addrs), err))
	case err != nil:
		x.add(finding(check, relay.VerdictFail, "let "+base.Hostname()+" lead to this machine, or set --base-url",
			"%s leads to %s, and what answers there is not this relay: %v", base.String(), joinMax(addrs), err))
	case len(x.hostKeys) > 0 && !slices.Contains(x.hostKeys, name):
		x.add(finding(check, relay.VerdictFail, "let "+base.Hostname()+" lead to this machine, or set --base-url",
			"%s leads to %s, where another relay answers, with the host key %s", base.String(), joinMax(addrs), name))
	case f.Verdict == relay.VerdictOK:
		x.add(passed(check, "%s leads to this relay, at %s", base.String(), joinMax(addrs)))
		x.checkEachAddress(outer, addrs)
	}
}

// checkEachAddress checks each address of the base host if there are several, because callers may use any of
// them. It checks all at the same time, because an address that does not answer must not delay the others.
func (x *examination) checkEachAddress(ctx context.Context, addrs []string) {
	const check, fix = "base URL", "remove the DNS entry (A or AAAA) of this address, or let it lead to this relay"
	host := x.site.Base.Hostname()
	if len(addrs) < 2 {
		return
	}
	addrs = addrs[:min(len(addrs), 8)]
	names, errs := make([]string, len(addrs)), make([]error, len(addrs))
	ctx, cancel := context.WithTimeout(ctx, publicTimeout)
	defer cancel()
	var asked sync.WaitGroup
	for i, addr := range addrs {
		asked.Go(func() { names[i], errs[i] = x.askName(ctx, addr) })
	}
	asked.Wait()
	for i, addr := range addrs {
		name, err := names[i], errs[i]
		switch network := (*net.OpError)(nil); {
		case errors.As(err, &network), errors.Is(err, context.DeadlineExceeded):
			x.add(finding(check, relay.VerdictWarn, fix, "%s also leads to %s, and this machine cannot connect there: %v", host, addr, err))
		case err != nil:
			x.add(finding(check, relay.VerdictFail, fix, "%s also leads to %s, and what answers there is not this relay: %v", host, addr, err))
		case len(x.hostKeys) > 0 && !slices.Contains(x.hostKeys, name):
			x.add(finding(check, relay.VerdictFail, fix, "%s also leads to %s, where another relay answers, with the host key %s", host, addr, name))
		}
	}
}

// lookup returns the addresses of a host name, sorted. Names of this machine need no DNS.
func lookup(ctx context.Context, host string) ([]string, error) {
	if sockets.IsLoopback(host) || strings.HasSuffix(host, ".localhost") {
		return []string{"127.0.0.1"}, nil
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return []string{ip.String()}, nil
	}
	list, err := net.DefaultResolver.LookupHost(ctx, host)
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		err = errors.New(dns.Err) // the code that calls lookup adds the name
	}
	slices.Sort(list)
	return slices.Compact(list), err
}

// publicClient returns a client that sends a PROXY header to trusted addresses. Unless at is "", the client
// connects to that IP address instead of the host of the URL.
func publicClient(trusted []netip.Prefix, at string, config *tls.Config) *http.Client {
	dial := dialLocal(trusted)
	return &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: config,
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				host, port, err := net.SplitHostPort(addr)
				if err == nil && strings.HasSuffix(host, ".localhost") { // not every resolver knows names below localhost (RFC 6761, section 6.3)
					addr = net.JoinHostPort("127.0.0.1", port)
				}
				if err == nil && at != "" {
					addr = net.JoinHostPort(at, port)
				}
				return dial(ctx, network, addr)
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// asCaller calls try in the way of a caller, without a PROXY header. If try fails and there are trusted
// proxies, asCaller calls it again with a header: this machine may be one of the proxies, and the listener
// requires a header from them.
func (x *examination) asCaller(try func(trusted []netip.Prefix) error) error {
	err := try(nil)
	if err != nil && len(x.cfg.TrustedProxies) > 0 {
		err = try(x.cfg.TrustedProxies)
	}
	return err
}

// get requests a public URL. It connects to the IP address in the parameter at, or, if at is "", to any
// address of the URL's host.
func (x *examination) get(ctx context.Context, address, at string, config *tls.Config) (res *http.Response, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, nil, err
	}
	err = x.asCaller(func(trusted []netip.Prefix) (err error) {
		if res, err = publicClient(trusted, at, config).Do(req); err != nil {
			return err
		}
		defer res.Body.Close()
		body, err = io.ReadAll(io.LimitReader(res.Body, 64<<10))
		return err
	})
	if cause, ok := errors.AsType[*url.Error](err); ok {
		err = cause.Err
	}
	return res, body, err
}

// askName asks the base URL for the host key of the relay behind it. It connects to addr, or to any address
// of the host if addr is "".
func (x *examination) askName(ctx context.Context, addr string) (hostKey string, err error) {
	nonce := rand.Text()
	address := x.site.Base.JoinPath("/healthz")
	address.RawQuery = "nonce=" + nonce
	res, body, err := x.get(ctx, address.String(), addr, &tls.Config{})
	if err != nil {
		return "", err
	}
	var answer struct{ Nonce, HostKey string }
	if res.StatusCode != http.StatusOK || json.Unmarshal(body, &answer) != nil || answer.Nonce != nonce {
		return "", fmt.Errorf("GET /healthz was answered %d by something else", res.StatusCode)
	}
	return answer.HostKey, nil
}

// checkAliasDomain checks that the hosts of aliases, which are names below the alias domain, lead to this
// relay.
func (x *examination) checkAliasDomain(ctx context.Context) {
	const check = "alias domain"
	domain := x.site.AliasDomain
	if _, err := netip.ParseAddr(domain); err == nil {
		x.add(finding(check, relay.VerdictFail, "set --alias-domain to a name", "%s is an address: there are no names below it", domain))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, publicTimeout)
	defer cancel()
	name := "relay-doctor-" + strings.ToLower(rand.Text()[:8]) + "." + domain
	if domain == "localhost" || strings.HasSuffix(domain, ".localhost") {
		if !x.cfg.loopback() {
			x.add(finding(check, relay.VerdictFail, "set --alias-domain to a domain with a wildcard DNS entry", "relayd listens for other machines, and *.%s leads each to itself", domain))
			return
		}
		x.add(passed(check, "*.%s is this machine", domain))
		if x.answers {
			x.checkUnchanged(ctx, name)
		}
		return
	}
	addrs, err := lookup(ctx, name)
	if err != nil {
		x.add(finding(check, relay.VerdictWarn, "make a wildcard DNS entry: *."+domain+" to the address of this machine", "no name below %s was found: %v", domain, err))
		return
	}
	if !x.answers {
		x.add(passed(check, "names below %s lead to %s", domain, joinMax(addrs)))
		return
	}
	base, _ := lookup(ctx, x.site.Base.Hostname())
	err = x.askAlias(ctx, name)
	switch {
	case err == nil:
		x.add(passed(check, "names below %s lead to a relay, at %s", domain, joinMax(addrs)))
		x.checkUnchanged(ctx, name)
	case slices.Equal(addrs, base): // the DNS entry is right; askAlias may have failed for want of a certificate
		x.add(passed(check, "names below %s lead to %s, as the base URL does", domain, joinMax(addrs)))
	default:
		x.add(finding(check, relay.VerdictFail, "make a wildcard DNS entry: *."+domain+" to "+joinMax(base),
			"names below %s lead to %s, where no relay answers (%v), and the base URL to %s", domain, joinMax(addrs), err, joinMax(base)))
	}
}

// askAlias requests a name that is not an alias, and expects the error code with which a relay answers that.
// The certificate is not checked, because a relay that orders one for each alias has none for this name.
func (x *examination) askAlias(ctx context.Context, name string) error {
	address := x.site.Base
	address.Host = name
	if p := x.site.Base.Port(); p != "" {
		address.Host = net.JoinHostPort(name, p)
	}
	res, _, err := x.get(ctx, address.String(), "", &tls.Config{InsecureSkipVerify: true})
	if err == nil && res.Header.Get("Relay-Error") != relay.CodeAliasNotFound {
		err = fmt.Errorf("it was answered %d by something else", res.StatusCode)
	}
	return err
}

// checkPublicSSH checks that the SSH address for users leads to the running server.
func (x *examination) checkPublicSSH(ctx context.Context) {
	const check = "ssh address"
	if !x.answers || len(x.hostKeys) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, publicTimeout)
	defer cancel()
	shown, err := x.publicHostKey(ctx, x.site.SSHAddr)
	switch {
	case err != nil:
		x.add(finding(check, relay.VerdictWarn, "let "+x.site.SSHAddr+" lead to --ssh-addr, or set --ssh-public-addr; if only this machine cannot reach it, check with ssh-keyscan from another one",
			"no SSH server answers at %s, which people dial: %v", x.site.SSHAddr, err))
	case !slices.Contains(x.hostKeys, shown):
		x.add(finding(check, relay.VerdictFail, "let "+x.site.SSHAddr+" lead to --ssh-addr, or set --ssh-public-addr",
			"another SSH server answers at %s, which people dial, with the host key %s", x.site.SSHAddr, shown))
	default:
		x.add(passed(check, "%s leads to this relay", x.site.SSHAddr))
	}
}

// publicHostKey returns the fingerprint of the host key that an SSH server presents. It does not log
// in.
func (x *examination) publicHostKey(ctx context.Context, addr string) (shown string, err error) {
	err = x.asCaller(func(trusted []netip.Prefix) error {
		conn, err := dialLocal(trusted)(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		if deadline, ok := ctx.Deadline(); ok {
			_ = conn.SetDeadline(deadline)
		}
		_, _, _, err = ssh.NewClientConn(conn, addr, &ssh.ClientConfig{
			User: "relay-doctor",
			HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
				shown = ssh.FingerprintSHA256(key)
				return errors.New("the key was seen")
			},
		})
		if shown != "" {
			return nil
		}
		return err
	})
	return shown, err
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
