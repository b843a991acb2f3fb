package main

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/ssh"

	"relay"
	"relay/api"
	"relay/dashboard"
	"relay/delivery"
	"relay/server"
	"relay/sshgate"
	"relay/store"
)

// app is every room wired to the others. Start it once, Stop it once.
type app struct {
	cli *cli
	cfg Config
	log *slog.Logger

	store    *store.Store
	hostKey  ssh.Signer
	nextKey  ssh.Signer // nil = none is announced
	at       addresses
	site     relay.Site
	delivery *delivery.Delivery
	server   *server.Server
	gate     *sshgate.Server
	admin    *http.Server
	door     *door
	limits   *api.Limits

	proxies *server.Proxies
	acme    *server.ACME // nil unless certificates come by ACME
	tls     *tls.Config  // nil without a TLS listener

	httpLn, httpsLn, sshLn, adminLn net.Listener

	begun  atomic.Bool // everything is served, and the first account is made
	failed chan error  // a listener that ended by itself
}

func newApp(c *cli, cfg Config) *app {
	return &app{cli: c, cfg: cfg, log: newLog(c.stderr, cfg), door: &door{}, failed: make(chan error, 4)}
}

// Start opens the store, listens and serves. On Postgres it waits, answering
// health checks only, until no other relayd serves the same database. When it
// fails, what was opened is closed again.
func (a *app) Start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			a.abandon()
		}
	}()
	if err := a.open(ctx); err != nil {
		return err
	}
	if err := a.listen(); err != nil {
		return err
	}
	if err := a.wire(); err != nil {
		return err
	}
	if shared := sameSite(a.site); shared != "" {
		a.log.Warn(fmt.Sprintf(sameSiteReason, a.site.Base.Host, a.site.AliasDomain, shared), "fix", sameSiteFix)
	}
	a.serveHTTP()
	return a.activate(ctx)
}

// open makes the data dir, the store's schema and the host key where they are not
// there yet.
func (a *app) open(ctx context.Context) error {
	dir := string(a.cfg.DataDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make data dir: %w", err)
	}
	var err error
	if a.store, err = a.cli.openStore(ctx, a.cfg, false); err != nil {
		return err
	}
	if err := a.store.Claim(); err != nil { // before the schema that another one works with is touched
		return err
	}
	from, to, err := a.store.Migrate(ctx)
	if err != nil {
		return fmt.Errorf("migrate the store: %w", err)
	}
	if from != to {
		a.log.Info("store migrated", "from", from, "to", to)
	}
	if a.hostKey, err = sshgate.LoadHostKey(dir); err != nil {
		return err
	}
	a.nextKey, err = sshgate.LoadNextHostKey(dir)
	return err
}

// listen opens every listener, so that a taken port is found before anything runs.
func (a *app) listen() error {
	for _, l := range []struct {
		flag, what string
		addr       Addr
		to         *net.Listener
		real       *string
	}{
		{"http-addr", "http", a.cfg.HTTPAddr, &a.httpLn, &a.at.HTTP},
		{"https-addr", "https", a.cfg.HTTPSAddr, &a.httpsLn, &a.at.HTTPS},
		{"ssh-addr", "ssh", a.cfg.SSHAddr, &a.sshLn, &a.at.SSH},
		{"admin-addr", "admin", a.cfg.AdminAddr, &a.adminLn, &a.at.Admin},
	} {
		if !l.addr.On() {
			continue
		}
		ln, err := net.Listen("tcp", string(l.addr))
		if err != nil {
			return listenFault(l.what, string(l.addr), l.flag, err)
		}
		*l.to, *l.real = ln, ln.Addr().String()
	}
	a.site = a.cfg.site(a.at)
	return nil
}

func listenFault(what, addr, flag string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf(portTaken, what, addr, flag)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf(portForbidden, what, addr, flag)
	}
	return fmt.Errorf(portOther, what, addr, err)
}

// wire makes the rooms. The one knot: the store publishes into delivery, which
// writes into the store.
func (a *app) wire() error {
	c := a.cfg
	figures := newFigures()
	a.store.Register(figures)
	a.delivery = delivery.New(delivery.Options{
		Store: a.store, Site: a.site, Registry: figures, Log: a.log,
		MaxHead: c.MaxHead.Limit(), MaxBody: c.MaxBody.Limit(), MaxResponseCapture: c.MaxResponseCapture.Limit(),
		ResponseTimeout: c.ResponseTimeout.Limit(), StallTimeout: c.StallTimeout.Limit(),
		QueueLimit: c.QueueLimit.Limit(), QueueBytes: c.QueueBytes.Limit(),
		Room: a.store.Room, StoreFirst: a.store.StoreFirst,
	})
	a.proxies = server.NewProxies(server.ProxyOptions{Trusted: c.TrustedProxies, Registry: figures, Log: a.log})
	if err := a.makeTLS(figures); err != nil {
		return err
	}
	a.limits = api.NewLimits(api.Rate(c.ReplayLimit), api.Rate(c.ShareReplayLimit))
	a.gate = sshgate.New(sshgate.Options{
		HostKey: a.hostKey, NextKey: a.nextKey, Accounts: a.store, Attach: a.attacher(), Read: a.store, Replay: a.delivery,
		Limits: a.limits, Site: a.site, Version: buildVersion(),
		PingInterval: c.PingInterval.Limit(), PingTimeout: c.PingTimeout.Limit(), StaleClose: c.StaleClose.Limit(),
		MaxConnections: c.MaxConnections.Limit(), MaxPerSource: c.MaxConnectionsPerSource.Limit(), MaxPerAccount: c.MaxConnectionsPerAccount.Limit(),
		Trusted: c.TrustedProxies, NoPenalties: !bool(c.SSHPenalties), PenaltyExempt: c.SSHPenaltyExempt, Registry: figures, Log: a.log,
	})
	a.door.behind(a.delivery, a.baseSite(figures))
	a.server = server.New(server.Options{
		Capture: a.door, Base: a.door, Site: a.site,
		RedirectPlain: a.httpsLn != nil && a.site.Base.Scheme == "https",
		MaxHead:       int(c.MaxHead.Limit()), MaxTarget: int(c.MaxTarget.Limit()),
		HeadTimeout: c.HeadTimeout.Limit(), IdleTimeout: c.IdleTimeout.Limit(), StallTimeout: c.StallTimeout.Limit(),
		Challenge: a.challenge(), Ready: a.ready, Registry: figures, Log: a.log,
	})
	a.admin = &http.Server{
		Handler: server.Admin(server.AdminOptions{
			Stats: a.stats, Registry: figures, Loopback: c.AdminAddr.Loopback(), Log: a.log,
		}),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	return nil
}

// baseSite is the API and the dashboard. What begins with /api, however unclean, is
// the API's: a mux would answer that with a redirect.
func (a *app) baseSite(figures prometheus.Registerer) http.Handler {
	office := api.New(api.Options{
		Deliver: a.delivery, Events: a.store, Accounts: a.store, Site: a.site, Log: a.log, Limits: a.limits,
		HostKeys: hostKeys(a.hostKey, a.nextKey), Registry: figures, Version: buildVersion(),
	})
	pages := dashboard.New(dashboard.Options{
		Accounts: a.store, Events: a.store, Deliver: a.delivery, Limits: a.limits, Site: a.site, Log: a.log, Version: buildVersion(),
		HostKey: ssh.FingerprintSHA256(a.hostKey.PublicKey()), SSHFlags: a.sshFlags,
		Enrolments: a.gate, Tunnels: a.gate,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := "/" + strings.TrimLeft(r.URL.Path, "/")
		if path == "/api" || strings.HasPrefix(path, "/api/") {
			office.ServeHTTP(w, r)
			return
		}
		pages.ServeHTTP(w, r)
	})
}

// hostKeys is what the SSH side shows, for clients that pin it. Keys may be nil.
func hostKeys(signers ...ssh.Signer) []relay.HostKey {
	list := make([]relay.HostKey, 0, len(signers))
	for _, s := range signers {
		if s == nil {
			continue
		}
		k := s.PublicKey()
		list = append(list, relay.HostKey{
			Type: k.Type(), Key: base64.StdEncoding.EncodeToString(k.Marshal()), Fingerprint: ssh.FingerprintSHA256(k),
		})
	}
	return list
}

// serveHTTP answers on the HTTP, TLS and admin listeners. Until activate has run,
// only health checks and figures are to be had there.
func (a *app) serveHTTP() {
	if a.httpsLn != nil {
		a.background("https", func() error { return a.server.ServeTLS(a.proxies.Listener(a.httpsLn, false), a.tls) })
	}
	if a.httpLn != nil {
		a.background("http", func() error { return a.server.Serve(a.proxies.Listener(a.httpLn, false)) })
	}
	if a.adminLn != nil {
		a.background("admin", func() error { return a.admin.Serve(a.adminLn) })
	}
	if a.acme != nil {
		a.acme.Start()
	}
	a.log.Info("listening", "http", a.at.HTTP, "https", a.at.HTTPS, "ssh", a.at.SSH, "admin", a.at.Admin)
}

// background runs a listener; one that ends before Stop ends the program.
func (a *app) background(name string, serve func() error) {
	go func() {
		err := serve()
		if err == nil || errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
			return
		}
		a.failed <- fmt.Errorf("%s listener: %w", name, err)
	}()
}

// activate takes the store for this process and opens the doors. Ready it is when
// firstStart is done.
func (a *app) activate(ctx context.Context) error {
	held := a.hold()
	err := a.store.Serve(ctx, func(changes []relay.Change) {
		a.delivery.Publish(changes)
		a.gate.Publish(changes)
	})
	held()
	if err != nil {
		return err
	}
	if err := a.delivery.Start(ctx); err != nil {
		return fmt.Errorf("start delivery: %w", err)
	}
	a.background("ssh", func() error { return a.gate.Serve(a.proxies.Listener(a.sshLn, true)) })
	a.door.open()
	a.log.Info("serving", "store", a.store.Describe()) // after "listening", or after a wait as standby
	return rememberSite(a.cfg, a.site, a.at)
}

// hold keeps the SSH listener of a standby from leaving people waiting: whoever
// comes is turned away at once. The result ends it and waits for that.
func (a *app) hold() func() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	ln := a.sshLn.(*net.TCPListener)
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if conn, err := ln.Accept(); err == nil {
				_ = conn.Close()
			} else if !errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
		}
	}()
	return func() {
		cancel()
		_ = ln.SetDeadline(time.Now())
		<-done
		_ = ln.SetDeadline(time.Time{})
	}
}
