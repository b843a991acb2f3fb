package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/ssh"

	"relay"
	"relay/admission"
	"relay/api"
	"relay/budget"
	"relay/compose"
	"relay/dashboard"
	"relay/delivery"
	"relay/server"
	"relay/server/certs"
	"relay/sshgate"
	"relay/store"
)

// app is a relayd process: all packages, connected to each other. Call Start once, then Stop once.
type app struct {
	program  *program
	cfg      Config
	settings []*setting // the settings with their origins, for doctor and other commands
	log      *slog.Logger

	store     *store.Store
	hostKeys  []ssh.Signer // the server uses the first key of each type, and tells clients all of them
	site      relay.Site
	delivery  *delivery.Delivery
	admission *admission.Limiter // limits the connections of server and sshServer together
	server    *server.Server
	sshServer *sshgate.Server
	admin     *http.Server
	accessLog *accessLog // nil = off
	limits    *api.Limits

	proxies *server.Proxies
	acme    *certs.ACME // nil without ACME
	tls     *tls.Config // nil without a TLS listener

	httpLn, httpsLn, sshLn, adminLn net.Listener

	systemd   *serviceManager
	inherited bool // the listeners are those of the former relayd process; systemd has kept them open

	drainMu  sync.Mutex
	endDrain context.CancelFunc // ends a drain that an operator has started; nil = none

	startedAt time.Time   // set before started becomes true, and read only after that
	connected atomic.Bool // the node has been ready once: see connectTime
	started   atomic.Bool // everything is served, and the first account exists
	failed    chan error  // error of a listener that ended unexpectedly
}

func newApp(c *program, cfg Config) *app {
	return &app{program: c, cfg: cfg, log: c.logger(cfg), systemd: newServiceManager(c.getenv), failed: make(chan error, 4)}
}

// Start opens the store and the listeners and serves. Until this process is a node of the store, only health
// checks and metrics are served. If Start fails, it closes everything that it has opened.
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
		a.log.Warn("browsers treat the dashboard and the aliases as one site",
			"base_host", a.site.Base.Host, "alias_domain", a.site.AliasDomain, "site", shared, "fix", sameSiteFix)
	}
	if !a.inherited {
		a.server.Starting(true)
		a.serveHTTP()
	}
	err = a.store.Serve(ctx, func(changes []relay.Change) { // after this call, this process is a node of the store
		a.delivery.Publish(changes)
		a.sshServer.Publish(changes)
	})
	if err != nil {
		return err
	}
	if _, err := patiently(ctx, func() (struct{}, error) { return struct{}{}, a.delivery.Start(ctx) }); err != nil {
		return fmt.Errorf("start delivery: %w", err)
	}
	a.background("ssh", func() error { return a.sshServer.Serve(a.proxies.Listener(a.sshLn, true)) })
	a.server.Starting(false)
	if a.inherited {
		// Callers have waited in the queues of the inherited sockets since the former relayd stopped. HTTP is
		// served only now, because before this point each of them would get 503.
		a.serveHTTP()
	}
	a.log.Info("serving", "store", a.store.Describe())
	if file := unusedDatabase(a.cfg); file != "" {
		a.log.Warn("the data dir has a SQLite file that is not used; move it away when you no longer need its contents", "file", file)
	}
	if note, fix := noteOtherStore(a.cfg); note != "" {
		a.log.Warn(note, "fix", fix)
	}
	if err := saveSiteFile(a.cfg, a.site, a.settings); err != nil { // not fatal: while the disk is full, relayd serves, and each request that cannot be stored gets an error
		a.log.Warn("the addresses cannot be stored for operator commands; give them as flags", "err", err)
	}
	return nil
}

// open opens the store and the host key. It creates the data dir, the schema and the key
// if they do not exist.
func (a *app) open(ctx context.Context) error {
	if err := os.MkdirAll(a.cfg.DataDir, 0o700); err != nil {
		return fmt.Errorf("make data dir: %w", err)
	}
	for setting, address := range map[string]string{"database-url": a.cfg.DatabaseURL, "database-direct-url": a.cfg.DatabaseDirectURL} {
		if _, left := connectionURL(address); len(left) > 0 && (setting == "database-url" || address != a.cfg.DatabaseURL) {
			a.log.Info("parameters of the database address are ignored, because they have no effect here", "setting", setting, "parameters", strings.Join(left, " "))
		}
	}
	var err error
	if a.store, err = a.program.openStore(ctx, a.cfg, false); err != nil {
		return err
	}
	// The data dir is locked before the migration, because another relayd on this data dir, which makes
	// LockDataDir fail, may still use the old schema.
	if err := a.store.LockDataDir(); err != nil {
		return err
	}
	from, to, err := a.store.Migrate(ctx)
	if err != nil {
		return fmt.Errorf("migrate the store: %w", err)
	}
	if from != to {
		a.log.Info("store migrated", "from", from, "to", to)
	}
	a.hostKeys, err = loadHostKeys(ctx, a.cfg, a.store, a.log)
	return err
}

// listen opens all listeners before anything is served, because a port in use must prevent the start. It
// stores the real addresses of the listeners in the settings, because the system chooses the port for port 0.
func (a *app) listen() error {
	listeners, err := a.systemd.inherited(a.program.getenv)
	if err != nil {
		return err
	}
	for _, l := range []struct {
		flag, what string
		addr       *string
		to         *net.Listener
	}{
		{"http-addr", "http", &a.cfg.HTTPAddr, &a.httpLn},
		{"https-addr", "https", &a.cfg.HTTPSAddr, &a.httpsLn},
		{"ssh-addr", "ssh", &a.cfg.SSHAddr, &a.sshLn},
		{"admin-addr", "admin", &a.cfg.AdminAddr, &a.adminLn},
	} {
		ln, err := a.openListener(l.what, *l.addr, listeners)
		if err != nil {
			return listenError(l.what, *l.addr, l.flag, err)
		}
		if ln != nil {
			*l.to, *l.addr = ln, ln.Addr().String()
		}
	}
	a.site = a.cfg.site()
	return nil
}

func listenError(what, addr, flag string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s cannot listen on %s: another program uses that port; is another relayd running? choose another with --%s", what, addr, flag)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%s cannot listen on %s: ports below 1024 need more rights; choose another with --%s", what, addr, flag)
	}
	return fmt.Errorf("%s cannot listen on %s: %w", what, addr, err)
}

// wire creates the packages' servers and connects them.
func (a *app) wire() error {
	c, version := a.cfg, relay.ThisBuild().Version
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "relay_build_info", Help: "Always 1; the label is the version of this build.",
		ConstLabels: prometheus.Labels{"version": version},
	}, func() float64 { return 1 }))
	a.program.registerOutputs(registry)
	a.store.Register(registry)
	budget := budget.New(c.BufferLimit)
	options := delivery.Options{
		Budget: budget, Store: a.store, Site: a.site, Registry: registry, Log: a.log,
		MaxHead: c.MaxHead, MaxBody: c.MaxBody, MaxResponseCapture: c.MaxResponseCapture,
		ResponseTimeout: c.ResponseTimeout, QueueLimit: c.QueueLimit, QueueBytes: c.QueueBytes, AccountQueue: c.MaxAccountQueue,
		Capacity: a.store.Capacity, StoreFirst: a.store.StoreFirst,
		AwaitRenewal: a.store.AwaitRenewal,
	}
	if c.DatabaseURL != "" {
		options.Remote = func(rec relay.TunnelRecord) relay.RemoteTunnel { return a.sshServer.Remote(rec) }
	}
	a.delivery = delivery.New(options)
	a.store.SetRunning(a.delivery.Running)
	a.admission = admission.NewLimiter(admission.FileLimit())
	a.proxies = server.NewProxies(server.ProxyOptions{Trusted: c.TrustedProxies, Registry: registry, Log: a.log})
	if err := a.makeTLS(registry); err != nil {
		return err
	}
	a.limits = api.NewLimits(c.ReplayLimit, c.ShareReplayLimit)
	apiHandler := api.New(api.Options{
		Deliver: a.delivery, Events: a.store, Accounts: a.store, Nodes: a.store, Site: a.site, Log: a.log, Limits: a.limits,
		HostKeys: hostKeys(a.hostKeys), Registry: registry, Version: version, Budget: budget, MCP: c.MCP,
		Secrets: a.store, Sending: a.sending(),
	})
	if err := a.wireSSH(budget, registry, apiHandler); err != nil {
		return err
	}
	return a.wireHTTP(registry, a.baseSite(apiHandler, budget))
}

// wireSSH creates the SSH server, and connects this relayd with the other nodes of its store.
func (a *app) wireSSH(budget *budget.Budget, registry prometheus.Registerer, apiHandler http.Handler) error {
	c := a.cfg
	options := sshgate.Options{
		DrainTime: c.Drain, API: a.apiOverSSH(apiHandler), StallTimeout: c.StallTimeout,
		Budget: budget, HostKeys: a.hostKeys, Accounts: a.store, Attach: a.delivery,
		Limits: a.limits, Site: a.site, Version: relay.ThisBuild().Version,
		PingInterval: c.PingInterval, PingTimeout: c.PingTimeout, StaleClose: c.StaleClose,
		MaxConnections: c.MaxConnections, MaxPerSource: c.MaxConnectionsPerSource, MaxPerAccount: c.MaxConnectionsPerAccount,
		Admission: a.admission, Trusted: c.TrustedProxies, NoClaim: !c.AliasClaim, NoPenalties: !c.SSHPenalties, PenaltyExempt: c.SSHPenaltyExempt, Registry: registry, Log: a.log,
	}
	if a.acme != nil {
		options.Attach = certPrefetcher{a.delivery, a.acme}
	}
	if c.DatabaseURL != "" {
		_, key, err := ed25519.GenerateKey(rand.Reader) // each start makes a new key, which the other nodes read from the store
		if err != nil {
			return err
		}
		peerKey, err := ssh.NewSignerFromKey(key)
		if err != nil {
			return err
		}
		a.store.SetPeer(c.peerAddr(), strings.TrimSpace(string(ssh.MarshalAuthorizedKey(peerKey.PublicKey()))))
		a.store.OnDrain(a.setDraining)
		a.store.OnRejoin(a.delivery.ReadTunnels)
		options.Peers = sshgate.PeerOptions{
			Nodes: a.store, Key: peerKey, Wake: a.delivery.WakeQueue, Connections: a.store.ConnectionsElsewhere,
			Reachable: func(node string, reachable bool) {
				a.store.NodeReachable(node, reachable)
				a.delivery.NodeReachable(node, reachable)
			},
		}
	}
	a.sshServer = sshgate.New(options)
	a.store.SetConnections(a.sshServer.AccountConnections)
	return nil
}

// wireHTTP creates the servers of the HTTP, TLS and admin listeners.
func (a *app) wireHTTP(registry *prometheus.Registry, base http.Handler) (err error) {
	c := a.cfg
	if a.accessLog, err = newAccessLog(c.AccessLog, a.program.stdout, registry, a.log); err != nil {
		return fmt.Errorf("open the access log: %w", err)
	}
	options := server.Options{
		Capture: a.delivery, Base: base, Site: a.site, HostKey: ssh.FingerprintSHA256(a.hostKeys[0].PublicKey()),
		RedirectPlain: a.httpsLn != nil && a.site.Base.Scheme == "https",
		TLSInFront:    a.httpsLn == nil && a.site.Base.Scheme == "https",
		MaxHead:       int(c.MaxHead), MaxTarget: int(c.MaxTarget),
		HeadTimeout: c.HeadTimeout, IdleTimeout: c.IdleTimeout, StallTimeout: c.StallTimeout,
		MinRate: c.MinRate, MinRateGrace: c.MinRateGrace,
		Admission: a.admission, Ready: a.ready, Registry: registry, Log: a.log,
	}
	if a.accessLog != nil {
		options.Access = a.accessLog.add
	}
	if c.MinRateGrace == 0 {
		options.MinRate = 0 // MinRateGrace is off, so the grace never ends
	}
	if a.acme != nil {
		options.Challenge = a.acme.Challenge
	}
	a.server = server.New(options)
	a.admin = &http.Server{
		Handler: a.withLog(server.Admin(server.AdminOptions{
			Stats: a.stats, Registry: registry, Loopback: isLoopback(c.AdminAddr), Pprof: c.Pprof,
			Health: a.server.Health(),
		})),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	return nil
}

// isAPIPath reports whether a path belongs to the API or to agents, as it is written or after its dots and
// double slashes are resolved.
func isAPIPath(p string) bool {
	if p == api.MCPPath {
		return true
	}
	for _, p := range []string{"/" + strings.TrimLeft(p, "/"), path.Clean("/" + p)} {
		if p == "/api" || strings.HasPrefix(p, "/api/") {
			return true
		}
	}
	return false
}

// baseSite returns the handler of API and dashboard. The API also gets paths with dots or double slashes and
// answers 404, because http.ServeMux would redirect such paths.
func (a *app) baseSite(apiHandler http.Handler, budget *budget.Budget) http.Handler {
	pages := dashboard.New(dashboard.Options{
		Accounts: a.store, Events: a.store, Deliver: a.delivery, Limits: a.limits, Site: a.site, Log: a.log, Version: relay.ThisBuild().Version,
		HostKey: ssh.FingerprintSHA256(a.hostKeys[0].PublicKey()), SSHFlags: a.sshFlags,
		Enrolments: a.store, Budget: budget, Sending: a.sending(),
	})
	return server.Compress(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isAPIPath(r.URL.Path) {
			apiHandler.ServeHTTP(w, r)
			return
		}
		pages.ServeHTTP(w, r)
	}))
}

// sending returns the limits for new events that users send. The listener for aliases has the same limits.
func (a *app) sending() compose.Limits {
	return compose.Limits{Head: int(a.cfg.MaxHead), Target: int(a.cfg.MaxTarget), Body: a.cfg.MaxBody}
}

// apiOverSSH returns a function that creates the HTTP server for an actor's API channels over SSH. The server
// has the limits and timeouts of the base site.
func (a *app) apiOverSSH(apiHandler http.Handler) func(relay.Actor) *http.Server {
	return func(who relay.Actor) *http.Server {
		return &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				apiHandler.ServeHTTP(w, r.WithContext(api.WithActor(r.Context(), who)))
			}),
			ReadHeaderTimeout: a.cfg.HeadTimeout,
			IdleTimeout:       a.cfg.IdleTimeout,
			MaxHeaderBytes:    server.HeadLimit(int(a.cfg.MaxHead)),
			ErrorLog:          slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
		}
	}
}

// serveHTTP serves the HTTP, TLS and admin listeners. /readyz answers 503 until firstStart has ended.
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
	a.log.Info("listening", "http", a.cfg.HTTPAddr, "https", a.cfg.HTTPSAddr, "ssh", a.cfg.SSHAddr, "admin", a.cfg.AdminAddr)
}

// background serves a listener. The program stops if the listener ends before Stop.
func (a *app) background(name string, serve func() error) {
	go func() {
		err := serve()
		if err == nil || errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
			return
		}
		a.failed <- fmt.Errorf("%s listener: %w", name, err)
	}()
}
