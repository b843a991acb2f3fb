package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"relay"
)

// checkUnchanged requests a name that is not an alias, at its public address and at the listener, and
// compares the two response heads. A proxy that parses HTTP adds, renames or reorders lines. checkUnchanged
// also sends a request without its body: relayd answers the head, but a proxy that buffers requests waits for
// the body. It reports nothing if one of the requests fails, or if nodes of several versions may answer.
func (x *examination) checkUnchanged(ctx context.Context, name string) {
	const check = "proxy"
	if x.versions > 1 {
		return
	}
	base := x.site.Base
	public := url.URL{Scheme: base.Scheme, Host: name}
	if p := base.Port(); p != "" {
		public.Host = net.JoinHostPort(name, p)
	}
	ask := func(request string) (here, there []string, err error) {
		for _, l := range x.listeners() {
			if l.flag != "http-addr" && l.flag != "https-addr" || len(here) > 0 {
				continue
			}
			here, _ = headOf(ctx, url.URL{Scheme: strings.TrimSuffix(l.flag, "-addr"), Host: dialable(l.addr)}, public.Host, request, x.cfg.TrustedProxies)
		}
		err = x.asCaller(func(trusted []netip.Prefix) (err error) {
			there, err = headOf(ctx, public, public.Host, request, trusted)
			return err
		})
		return here, there, err
	}
	here, there, err := ask(plainRequest)
	if err != nil || len(here) == 0 {
		return
	}
	var late net.Error
	if here, _, err := ask(requestWithoutBody); len(here) > 0 && errors.As(err, &late) && late.Timeout() {
		x.add(finding(check, relay.VerdictWarn, proxyFix, "a proxy in front buffers requests: one to %s whose body had not come was not passed on within %s. Callers who send slowly, and answers before the end of a body, come late", name, bodyWait))
	}
	if slices.Equal(here, there) {
		return
	}
	changed := slices.DeleteFunc(slices.Clone(there), func(line string) bool { return slices.Contains(here, line) })
	if len(changed) == 0 { // lines are missing or reordered
		changed = there
	}
	x.add(finding(check, relay.VerdictWarn, proxyFix,
		"a proxy in front parses HTTP: an answer of %s arrives with other lines than relayd sends (%s). What it changes in a request is what relayd records and replays, and signatures over headers may fail",
		name, joinMax(changed)))
}

const proxyFix = "let it pass TCP on, with the PROXY protocol and --trusted-proxies; docs/proxies.md has it for HAProxy, nginx and Caddy"

// The requests of checkUnchanged to a name that is not an alias. bodyWait is the longest wait for an answer
// to the request without its body.
const (
	plainRequest       = "GET /relay-doctor HTTP/1.1\r\nConnection: close\r\n"
	requestWithoutBody = "POST /relay-doctor HTTP/1.1\r\nConnection: close\r\nContent-Length: 1\r\n"
	bodyWait           = probeTimeout
)

// headOf returns the status line of a server's answer to a request for a host name, and the names of its header
// lines as they were sent.
func headOf(ctx context.Context, server url.URL, host, request string, trusted []netip.Prefix) (lines []string, err error) {
	addr := server.Host
	if server.Port() == "" {
		addr = net.JoinHostPort(server.Hostname(), server.Scheme)
	}
	if name, port, err := net.SplitHostPort(addr); err == nil && strings.HasSuffix(name, ".localhost") {
		addr = net.JoinHostPort("127.0.0.1", port)
	}
	conn, err := dialLocal(trusted)(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	if request == requestWithoutBody {
		_ = conn.SetDeadline(time.Now().Add(bodyWait))
	}
	if server.Scheme == "https" { // askAlias has the reason for not checking the certificate
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, ServerName: (&url.URL{Host: host}).Hostname()})
	}
	if _, err := io.WriteString(conn, request+"Host: "+host+"\r\n\r\n"); err != nil {
		return nil, err
	}
	scanner := bufio.NewScanner(io.LimitReader(conn, 64<<10))
	for scanner.Scan() {
		line := scanner.Text()
		if line == "" {
			return lines, nil
		}
		if name, _, ok := strings.Cut(line, ":"); ok && len(lines) > 0 {
			line = name
		}
		lines = append(lines, line)
	}
	return nil, errors.Join(scanner.Err(), io.ErrUnexpectedEOF)
}
