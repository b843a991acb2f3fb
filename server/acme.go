package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/prometheus/client_golang/prometheus"

	"relay"
)

// ACMEOptions are what an ACME is made of.
type ACMEOptions struct {
	Site relay.Site
	// Alias tells whether a certificate may be had for a label, and who owns it.
	// It is asked in every handshake of an alias: memory only.
	Alias func(label string) (owner int64, ok bool)

	Dir   string         // where accounts, keys and certificates are kept, mode 0700
	Email string         // contact of the ACME account; "" = none
	CA    string         // directory URL; "" = Let's Encrypt
	Roots *x509.CertPool // trusted for the CA's own certificate; nil = those of the system

	// HTTPAddr and TLSAddr are where this server listens, for the challenges of
	// RFC 8555, section 8.3, and RFC 8737. "" = none of that kind.
	HTTPAddr, TLSAddr string

	Registry prometheus.Registerer // nil = no metrics
	Log      *slog.Logger          // nil = discarded
}

// ACME gets certificates by RFC 8555 for the base host and, one by one as they come
// online or are asked for, for the aliases that may have one. Handshakes never talk to the CA:
// they start a try in the background that outlives them, and wait for it for a
// bounded time. What failed is tried again by itself after a while, as long as that may
// help. Safe for concurrent use.
type ACME struct {
	opt    ACMEOptions
	hosts  hosts
	cache  *certmagic.Cache
	conf   *certmagic.Config
	budget *budget
	slots  chan struct{} // of tries
	early  chan struct{} // of tries that nobody waits for
	met    byLabel

	ctx    context.Context // of tries
	cancel context.CancelFunc
	wg     sync.WaitGroup
	once   sync.Once
	ended  chan struct{} // closed when all of it has ended
	// endCache ends certmagic's cache and waits for what it is doing.
	endCache func()

	mu      sync.Mutex
	stopped bool
	orders  map[string]*order // names without a certificate in memory
}

// NewACME makes an ACME. The error is about the folder. Stop ends it, also when it was
// never started.
func NewACME(o ACMEOptions) (*ACME, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of certificates: %w", err)
	}
	if err := os.Chmod(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("close the folder of certificates to others: %w", err)
	}
	a := &ACME{
		opt: o, hosts: newHosts(o.Site), budget: newBudget(o.Dir),
		slots: make(chan struct{}, orderSlots), early: make(chan struct{}, aheadSlots), met: acmeMetrics(o.Registry, o.Log),
		orders: map[string]*order{}, ended: make(chan struct{}),
	}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.configure()
	return a, nil
}

// configure sets certmagic up as a manager of what it is told to manage, not as one
// that decides in handshakes what to get: those would bind a try to the patience of
// one caller.
func (a *ACME) configure() {
	o, log := a.opt, zapLogger(a.opt.Log)
	a.cache = certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert:   func(certmagic.Certificate) (*certmagic.Config, error) { return a.conf, nil },
		RenewCheckInterval: renewCheck,
		Logger:             log,
	})
	a.endCache = a.cache.Stop
	a.conf = certmagic.New(a.cache, certmagic.Config{
		DefaultServerName: a.hosts.base,
		Storage:           newFolder(o.Dir),
		OCSP:              certmagic.OCSPConfig{DisableStapling: true},
		OnEvent:           a.event,
		ShouldEmitFunc:    func(event string) bool { return event == obtaining },
		Logger:            log,
	})
	template := certmagic.ACMEIssuer{
		CA: o.CA, Email: o.Email, Agreed: true, TrustedRoots: o.Roots, Logger: log,
		DisableHTTPChallenge: o.HTTPAddr == "", DisableTLSALPNChallenge: o.TLSAddr == "",
		DisableDistributedSolvers: true,
		CertObtainTimeout:         orderTime,
	}
	if template.CA == "" {
		template.CA = certmagic.LetsEncryptProductionCA
	}
	// certmagic listens itself unless it finds the port taken, as it is, by us.
	httpHost, httpPort := hostPort(o.HTTPAddr)
	tlsHost, tlsPort := hostPort(o.TLSAddr)
	template.AltHTTPPort, template.AltTLSALPNPort = httpPort, tlsPort
	if httpHost == tlsHost || o.HTTPAddr == "" {
		template.ListenHost = tlsHost
	}
	a.conf.Issuers = []certmagic.Issuer{quietIssuer{certmagic.NewACMEIssuer(a.conf, template)}}
}

func hostPort(addr string) (host string, port int) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0
	}
	port, _ = strconv.Atoi(p)
	return host, port
}

// quietIssuer never asks questions on standard input.
type quietIssuer struct{ *certmagic.ACMEIssuer }

// PreCheck is certmagic's, without a person.
func (i quietIssuer) PreCheck(ctx context.Context, names []string, _ bool) error {
	return i.ACMEIssuer.PreCheck(ctx, names, false)
}

// obtaining is certmagic's event before every order, renewals included.
const obtaining = "cert_obtaining"

// event stops the renewal of what may not have a certificate any more.
func (a *ACME) event(_ context.Context, event string, data map[string]any) error {
	name, _ := data["identifier"].(string)
	if _, ok := a.may(name); event != obtaining || ok {
		return nil
	}
	a.cache.RemoveManaged([]certmagic.SubjectIssuer{{Subject: name}})
	return fmt.Errorf("%s has no alias any more that was online", name)
}

// Start gets the certificate of the base host in the background, once the listeners
// answer.
func (a *ACME) Start() { _, _ = a.order(a.hosts.base, 0, false) }

// Online says that a tunnel was attached to an alias. Its certificate is got in the
// background where it is not there yet, so that the first visitor finds it. New names
// may use half of the week's budget in this way; the rest is for names that somebody
// asks for. It never blocks.
func (a *ACME) Online(label string) {
	name := label + "." + a.hosts.domain
	owner, ok := a.opt.Alias(label)
	if !ok || a.hosts.findName(name).place != toAlias || len(a.cache.AllMatchingCertificates(name)) > 0 {
		return
	}
	_, _ = a.order(name, owner, true)
}

// Stop ends tries and renewals and waits for them, but not for long: a look at what has
// to be renewed asks the CA about one certificate after the other, which may take any
// time where it does not answer, and certmagic does not break that off. More than one
// call is fine.
func (a *ACME) Stop() {
	a.mu.Lock()
	a.stopped = true
	a.mu.Unlock()
	a.cancel()
	a.once.Do(func() {
		go func() {
			defer close(a.ended)
			a.wg.Wait()
			a.endCache()
		}()
	})
	late := time.NewTimer(stopPatience)
	defer late.Stop()
	select {
	case <-a.ended:
	case <-late.C:
	}
}

// may tells whether a name may have a certificate, and whose budget it takes; 0 =
// nobody's.
func (a *ACME) may(name string) (owner int64, ok bool) {
	switch to := a.hosts.findName(name); {
	case name == a.hosts.base:
		return 0, true
	case to.place == toAlias:
		return a.opt.Alias(to.label)
	}
	return 0, false
}

// Config is for ServeTLS.
func (a *ACME) Config() *tls.Config {
	return &tls.Config{
		GetCertificate: a.Certificate, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1", acmeProto},
	}
}

// Certificate is for tls.Config.GetCertificate. A name that may not have one gets
// none, which TLS says as unrecognized_name. Without a name it is that of the base
// host.
func (a *ACME) Certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := plainName(hello.ServerName)
	if len(hello.SupportedProtos) == 1 && hello.SupportedProtos[0] == acmeProto {
		return challengeCert(name)
	}
	if name == "" {
		name = a.hosts.base
	}
	owner, ok := a.may(name)
	if !ok {
		return nil, nil
	}
	if cert, err := a.conf.GetCertificateWithContext(hello.Context(), hello); err == nil {
		return cert, nil
	}
	ended, err := a.order(name, owner, false)
	if err != nil {
		return nil, err
	}
	t := time.NewTimer(orderPatience)
	defer t.Stop()
	select {
	case <-ended:
		return a.conf.GetCertificateWithContext(hello.Context(), hello)
	case <-t.C:
	case <-hello.Context().Done():
	}
	return nil, fmt.Errorf("the certificate of %s is not there yet", name)
}
