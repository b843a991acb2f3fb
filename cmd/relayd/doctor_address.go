package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"relay"
)

// listenerOf is a listener of the settings, with a probe for the relay behind it.
type listenerOf struct {
	flag, addr string
	trusted    []netip.Prefix // proxies from which the listener expects a PROXY header
	probe      func(ctx context.Context, trusted []netip.Prefix, addr string) error
}

// listeners returns the listeners to check. If the settings do not name the address of a listener, and the
// last server has recorded one in site.json, the recorded address is checked instead of the default.
func (x *examination) listeners() []listenerOf {
	cfg := x.cfg
	if known, ok := loadSiteFile(cfg); ok {
		defaults := defaultConfig()
		cfg.HTTPAddr = known.HTTPAddr
		if cfg.SSHAddr == defaults.SSHAddr {
			cfg.SSHAddr = cmp.Or(known.SSHListener, cfg.SSHAddr)
		}
		if cfg.AdminAddr == defaults.AdminAddr { // site.json does not have the admin address, so that listener is left out
			cfg.AdminAddr = ""
		}
	}
	return slices.DeleteFunc([]listenerOf{
		{"http-addr", cfg.HTTPAddr, cfg.TrustedProxies, probeHTTP(cfg, "http", "/healthz")},
		{"https-addr", cfg.HTTPSAddr, cfg.TrustedProxies, probeHTTP(cfg, "https", "/healthz")},
		{"ssh-addr", cfg.SSHAddr, cfg.TrustedProxies, probeSSH},
		{"admin-addr", cfg.AdminAddr, nil, probeHTTP(cfg, "http", "/debug/stats")},
	}, func(l listenerOf) bool { return l.addr == "" })
}

// checkListeners checks for each listener that its port is free or that a relay answers there.
func (x *examination) checkListeners(ctx context.Context) {
	var busy []relay.Finding
	var free []listenerOf
	for _, l := range x.listeners() {
		ln, err := net.Listen("tcp", l.addr)
		if err == nil {
			_ = ln.Close()
			free = append(free, l)
			continue
		}
		f := x.checkBusy(ctx, l, err)
		x.answers = x.answers || f.Verdict == relay.VerdictOK
		busy = append(busy, f)
	}
	x.add(busy...)
	for _, l := range free {
		f := passed(l.flag, "%s is free; no server runs there", l.addr)
		if x.answers {
			f = finding(l.flag, relay.VerdictFail, restartFix,
				"nothing listens on %s, and a relay answers at its other addresses: that one runs with other settings", l.addr)
		}
		x.add(f)
	}
}

// restartFix is the advice if the running server has other settings than the files.
const restartFix = "restart relayd: a server reads its settings when it starts"

// checkBusy asks the program at an address of the settings whether it is this relay. err is the error of
// doctor's own try to listen there. If a relay answers as expected, the check passes.
func (x *examination) checkBusy(ctx context.Context, l listenerOf, err error) relay.Finding {
	ask := func(trusted []netip.Prefix) error {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		return l.probe(ctx, trusted, dialable(l.addr))
	}
	answer := ask(l.trusted)
	var refused *net.OpError
	switch {
	case answer == nil:
		return passed(l.flag, "a relay answers at %s", l.addr)
	case errors.Is(err, syscall.EACCES) && errors.Is(answer, syscall.ECONNREFUSED):
		return finding(l.flag, relay.VerdictWarn, "start relayd with the right to it (CAP_NET_BIND_SERVICE), as the packaged service does",
			"nothing listens on %s, and this user may not: ports below 1024 need more rights", l.addr)
	case x.cfg.TLS == "acme" && l.flag == "https-addr" && errors.As(answer, &refused) && refused.Op == "remote error":
		return finding(l.flag, relay.VerdictWarn, "see the check certificate",
			"what listens on %s has no certificate for %s yet", l.addr, x.cfg.site().Base.Host)
	case len(l.trusted) > 0 && ask(nil) == nil:
		return finding(l.flag, relay.VerdictFail, restartFix,
			"the relay at %s runs without --trusted-proxies %s: it takes the header of a proxy for a bad request", l.addr, networkText(l.trusted))
	case l.flag != "admin-addr" && len(l.trusted) == 0 && ask(everywhere) == nil:
		return finding(l.flag, relay.VerdictFail, "give relayd doctor the --trusted-proxies of the server, or restart the server",
			"the relay at %s expects a PROXY header, and these settings have no --trusted-proxies", l.addr)
	}
	return finding(l.flag, relay.VerdictFail, "stop what listens there, or choose another with --"+l.flag,
		"%v, and it is no relay that answers there", listenError(strings.TrimSuffix(l.flag, "-addr"), l.addr, l.flag, err))
}

// everywhere contains all IP networks.
var everywhere = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// checkServer reports that no server is running, unless a relay answers at one of the listeners.
func (x *examination) checkServer() {
	const check = "server"
	_, ran := servedPlace(x.cfg.DataDir)
	switch {
	case x.answers:
	case ran:
		x.add(finding(check, relay.VerdictFail, "start it (systemctl start relayd, or relayd serve); the last lines of its log say why it ended",
			"no relay answers at any address of the settings: callers are refused and no tunnel can be opened"))
	default:
		x.add(finding(check, relay.VerdictWarn, "start it: relayd serve", "no relay has served this data dir yet, or its %s was deleted", siteFileName))
	}
}

// checkLoaded compares the settings in the files with the settings that the running server has read.
func (x *examination) checkLoaded() {
	const check = "settings"
	loaded, known := loadedSettings(x.cfg.DataDir)
	if !x.answers || !known {
		return
	}
	var changed []string
	for _, row := range fileSettings(x.cfg, x.settings) {
		if was := loaded[row.Name]; was != row.Value {
			changed = append(changed, fmt.Sprintf("%s is %s (%s), the server has %s", row.Name, row.Value, row.Origin, cmp.Or(was, "what it is without the file")))
		}
		delete(loaded, row.Name)
	}
	for name, was := range loaded {
		if slices.ContainsFunc(x.settings, func(s *setting) bool { return s.name == name && s.origin == "default" }) {
			changed = append(changed, fmt.Sprintf("%s is not in the file any more, the server has %s", name, was))
		}
	}
	if len(changed) > 0 {
		x.add(finding(check, relay.VerdictWarn, restartFix, "%s", joinMax(changed)))
	}
}

// dialable returns an address at which this machine can dial a listener.
func dialable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip, perr := netip.ParseAddr(host); err == nil && (host == "" || perr == nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}

func probeHTTP(cfg Config, scheme, path string) func(context.Context, []netip.Prefix, string) error {
	return func(ctx context.Context, trusted []netip.Prefix, addr string) error {
		body, err := getLocal(ctx, cfg, trusted, scheme+"://"+addr+path)
		if err == nil && !bytes.HasPrefix(body, []byte("{")) {
			err = errors.New("it is no relay")
		}
		return err
	}
}

func probeSSH(ctx context.Context, trusted []netip.Prefix, addr string) error {
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

// checkProxies checks trusted-proxies, because a trusted proxy can name any source for its connections.
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
