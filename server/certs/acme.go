package certs

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3"
	"github.com/mholt/acmez/v3/acme"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"

	"relay"
)

// ACMEOptions configure an ACME.
type ACMEOptions struct {
	Site relay.Site
	// Alias reports whether a label may have a certificate, and returns the owner of the alias. It is called in
	// every handshake for an alias, so it must not read the database.
	Alias func(label string) (owner int64, ok bool)

	Dir   string         // folder of accounts, keys and certificates, mode 0700
	Files SharedFiles    // store of these files that all nodes share, in place of Dir; nil = there is one node, which uses Dir
	Email string         // contact of the ACME account; "" = none
	CA    string         // directory URL; "" = Let's Encrypt
	Roots *x509.CertPool // roots that verify the CA's own server certificate; nil = those of the system

	// HTTPAddr and TLSAddr are the addresses of this server for HTTP-01 challenges
	// (RFC 8555, section 8.3) and TLS-ALPN-01 challenges (RFC 8737). "" = no
	// challenges of that kind.
	HTTPAddr, TLSAddr string

	// DNS sets the records of DNS-01 challenges (RFC 8555, section 8.4), which are then the only challenges: one
	// wildcard certificate covers all aliases. nil = no DNS-01 challenges.
	DNS certmagic.DNSProvider
	// Resolvers are asked for the zone of a name and for the records of challenges;
	// empty = those of the system.
	Resolvers []string

	Registry prometheus.Registerer // nil = no metrics
	Log      *slog.Logger          // nil = discarded
}

// ACME orders certificates (RFC 8555) for the base host and for the aliases that may have one: when a tunnel
// is attached to an alias, or when a handshake asks for the name of such an alias. A handshake never talks to
// the CA. The handshake starts an order in the background, and waits for the order for a bounded time; the
// order continues when the handshake has ended. A failed order is tried again after a pause. An ACME is safe
// for concurrent use.
type ACME struct {
	opt           ACMEOptions
	base, domain  string // base host and alias domain, in lower case and without a trailing dot
	cache         *certmagic.Cache
	conf          *certmagic.Config
	storage       certmagic.Storage
	quota         *quota
	slots         chan struct{} // limits concurrent orders
	prefetchSlots chan struct{} // limits concurrent orders without a waiting handshake
	lookups       chan struct{} // limits concurrent reads of the shared files that any client can cause
	met           *prometheus.CounterVec

	ctx    context.Context // context of orders
	cancel context.CancelFunc
	wg     sync.WaitGroup
	once   sync.Once
	ended  chan struct{} // closed after Stop, when all orders and renewals have ended
	// endCache stops the renewals of certmagic and waits for the one that runs.
	endCache func()

	mu        sync.Mutex
	stopped   bool
	issuances map[string]*issuance // names without a certificate in memory, with the state of their order
}

// NewACME returns an ACME. An error means that Dir cannot be used. Call Stop even if Start was never
// called.
func NewACME(o ACMEOptions) (*ACME, error) {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	var storage certmagic.Storage
	if o.Files != nil {
		storage = sharedStorage{files: o.Files, held: &sync.Map{}}
	} else {
		if err := os.MkdirAll(o.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("make the folder of certificates: %w", err)
		}
		if err := os.Chmod(o.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("close the folder of certificates to others: %w", err)
		}
		// Only this process uses the folder, so all locks were left by a process that was killed.
		// certmagic waits for a lock until the clock shows that the lock is old, and cannot read a
		// damaged one.
		if err := os.RemoveAll(filepath.Join(o.Dir, "locks")); err != nil {
			return nil, fmt.Errorf("remove old locks of the folder of certificates: %w", err)
		}
		storage = &certmagic.FileStorage{Path: o.Dir}
	}
	a := &ACME{
		opt: o, base: plainName(o.Site.Base.Hostname()), domain: plainName(o.Site.AliasDomain), storage: storage, quota: &quota{storage},
		slots: make(chan struct{}, maxOrders), prefetchSlots: make(chan struct{}, maxPrefetches), lookups: make(chan struct{}, maxLookups), met: promauto.With(o.Registry).NewCounterVec(prometheus.CounterOpts{
			Name: "relay_acme_certificates_total", Help: "Certificates that were needed and not in memory, by result.",
		}, []string{"result"}),
		issuances: map[string]*issuance{}, ended: make(chan struct{}),
	}
	for _, r := range []string{certIssued, certLoaded, certFailed, certRefused} {
		// This shows each result as 0 in the metrics before it first occurs.
		a.met.WithLabelValues(r)
	}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.configure()
	return a, nil
}

// configure sets up certmagic without its on-demand mode, which would end an order together with the
// handshake that asked for it.
func (a *ACME) configure() {
	o, log := a.opt, zap.New(slogCore{a.opt.Log.With("component", "certmagic").Handler()})
	a.cache = certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert:   func(certmagic.Certificate) (*certmagic.Config, error) { return a.conf, nil },
		RenewCheckInterval: renewInterval,
		Logger:             log,
	})
	a.endCache = a.cache.Stop
	a.conf = certmagic.New(a.cache, certmagic.Config{
		DefaultServerName: a.base,
		Storage:           a.storage,
		OCSP:              certmagic.OCSPConfig{DisableStapling: true},
		// certmagic calls OnEvent before each order, also before that of a renewal. An error stops the order for a
		// name that may no longer have a certificate.
		ShouldEmitFunc: func(event string) bool { return event == "cert_obtaining" },
		OnEvent: func(_ context.Context, _ string, data map[string]any) error {
			name, _ := data["identifier"].(string)
			if _, ok := a.allowed(name); ok {
				return nil
			}
			a.cache.RemoveManaged([]certmagic.SubjectIssuer{{Subject: name}})
			return fmt.Errorf("%s has no alias any more that was online", name)
		},
		Logger: log,
	})
	template := certmagic.ACMEIssuer{
		CA: o.CA, Email: o.Email, Agreed: true, TrustedRoots: o.Roots, Logger: log,
		DisableHTTPChallenge: o.HTTPAddr == "", DisableTLSALPNChallenge: o.TLSAddr == "",
		DisableDistributedSolvers: o.Files == nil,
		CertObtainTimeout:         orderTimeout,
	}
	if o.DNS != nil {
		template.DNS01Solver = &certmagic.DNS01Solver{DNSManager: certmagic.DNSManager{DNSProvider: o.DNS, Resolvers: o.Resolvers, Logger: log}}
	}
	if template.CA == "" {
		template.CA = certmagic.LetsEncryptProductionCA
	}
	// certmagic would open its own listener for challenges. With these addresses it finds that the port
	// is in use, by this server, and relies on this server.
	httpHost, httpPort := hostPort(o.HTTPAddr)
	tlsHost, tlsPort := hostPort(o.TLSAddr)
	template.AltHTTPPort, template.AltTLSALPNPort = httpPort, tlsPort
	if httpHost == tlsHost || o.HTTPAddr == "" {
		template.ListenHost = tlsHost
	}
	a.conf.Issuers = []certmagic.Issuer{nonInteractiveIssuer{certmagic.NewACMEIssuer(a.conf, template)}}
}

func hostPort(addr string) (host string, port int) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0
	}
	port, _ = strconv.Atoi(p)
	return host, port
}

// nonInteractiveIssuer is an issuer that never asks a user on standard input to accept the terms of
// the CA.
type nonInteractiveIssuer struct{ *certmagic.ACMEIssuer }

// PreCheck calls the PreCheck of certmagic, without questions to a user.
func (i nonInteractiveIssuer) PreCheck(ctx context.Context, names []string, _ bool) error {
	return i.ACMEIssuer.PreCheck(ctx, names, false)
}

// Start orders the certificate of the base host in the background, and the wildcard certificate for all
// aliases if DNS is set. Call it when the listeners answer.
func (a *ACME) Start() {
	_, _ = a.request(a.base, 0, false)
	if a.opt.DNS != nil {
		_, _ = a.request(a.wildcard(), 0, false)
	}
}

// wildcard returns the name of the certificate for all aliases.
func (a *ACME) wildcard() string { return "*." + a.domain }

// Online notes that a tunnel was attached to an alias and orders its certificate in the background, so that
// the first handshake need not wait. Such orders may use half of the quota of new names; the rest is reserved
// for names that a handshake asks for. Online never blocks.
func (a *ACME) Online(label string) {
	name := label + "." + a.domain
	owner, ok := a.allowed(name)
	if !ok || name == a.base || a.opt.DNS != nil || len(a.cache.AllMatchingCertificates(name)) > 0 {
		return
	}
	_, _ = a.request(name, owner, true)
}

// Stop ends orders and renewals and waits for them, at most for stopTimeout: certmagic
// asks the CA about the renewal of one certificate after the other and cannot be
// interrupted if the CA does not answer. Stop may be called more than once.
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
	select {
	case <-a.ended:
	case <-time.After(stopTimeout):
	}
}

// allowed reports whether a name may have a certificate, and returns the account whose quota it counts
// against; 0 = none.
func (a *ACME) allowed(name string) (owner int64, ok bool) {
	if name == a.base {
		return 0, true
	}
	label, ok := strings.CutSuffix(name, "."+a.domain)
	if !ok || a.domain == "" || label == "" || strings.Contains(label, ".") {
		return 0, false
	}
	if a.opt.DNS != nil {
		// The wildcard certificate covers every label, so each valid label is allowed, whether or not it is
		// that of an alias.
		return 0, label == "*" || relay.ValidLabel(label)
	}
	return a.opt.Alias(label)
}

// plainName returns a host in lower case and without its trailing dot.
func plainName(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }

// Config returns the configuration for Server.ServeTLS.
func (a *ACME) Config() *tls.Config {
	return &tls.Config{
		GetCertificate: a.Certificate, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1", acmez.ACMETLS1Protocol},
	}
}

// Certificate implements tls.Config.GetCertificate. It returns no certificate for a name that may not
// have one, and crypto/tls answers unrecognized_name. A handshake without a server name gets the
// certificate of the base host.
func (a *ACME) Certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := plainName(hello.ServerName)
	if len(hello.SupportedProtos) == 1 && hello.SupportedProtos[0] == acmez.ACMETLS1Protocol {
		if c, ok := a.pendingChallenge(hello.Context(), name, acme.ChallengeTypeTLSALPN01); ok {
			return acmez.TLSALPN01ChallengeCert(c)
		}
		return nil, nil
	}
	if name == "" {
		name = a.base
	}
	owner, ok := a.allowed(name)
	if !ok {
		return nil, nil
	}
	if cert, err := a.conf.GetCertificateWithContext(hello.Context(), hello); err == nil {
		return cert, nil
	}
	subject := name
	if a.opt.DNS != nil && name != a.base {
		subject = a.wildcard()
	}
	ended, err := a.request(subject, owner, false)
	if err != nil {
		return nil, err
	}
	select {
	case <-ended:
		return a.conf.GetCertificateWithContext(hello.Context(), hello)
	case <-time.After(handshakeWait):
	case <-hello.Context().Done():
	}
	return nil, fmt.Errorf("the certificate of %s is not there yet", name)
}

// maxLookups bounds the concurrent database look-ups for challenges, because any client can cause them
// and all other work needs the database connections.
const maxLookups = 2

// pendingChallenge returns the pending challenge for a host, from this node or another one, because a
// balancer may send the request of the CA to any node. It returns false if no challenge of the given kind is
// pending.
func (a *ACME) pendingChallenge(ctx context.Context, host, kind string) (acme.Challenge, bool) {
	var found acme.Challenge
	if c, ok := certmagic.GetACMEChallenge(host); ok {
		found = c.Challenge
	} else if _, allowed := a.allowed(host); a.opt.Files != nil && allowed {
		ctx, cancel := context.WithTimeout(ctx, challengeWait)
		defer cancel()
		select {
		case a.lookups <- struct{}{}:
			defer func() { <-a.lookups }()
		case <-ctx.Done():
			return acme.Challenge{}, false
		}
		file := path.Join("acme", certmagic.StorageKeys.Safe(a.conf.Issuers[0].IssuerKey()), "challenge_tokens", certmagic.StorageKeys.Safe(host)+".json")
		text, err := a.storage.Load(ctx, file)
		if err != nil || json.Unmarshal(text, &found) != nil {
			return acme.Challenge{}, false
		}
	}
	return found, found.Type == kind && strings.EqualFold(found.Identifier.Value, host)
}

// Challenge implements server.Options.Challenge. ok is true only for the path of the challenge that is
// pending for this host, a name in lower case.
func (a *ACME) Challenge(host, path string) (answer string, ok bool) {
	c, ok := a.pendingChallenge(context.Background(), host, acme.ChallengeTypeHTTP01)
	if !ok || path != c.HTTP01ResourcePath() {
		return "", false
	}
	return c.KeyAuthorization, true
}

// Results of the search for a certificate that is not in memory, as the metrics name them.
const (
	certIssued  = "issued"
	certLoaded  = "loaded" // loaded from Dir or Files
	certFailed  = "failed"
	certRefused = "refused" // the quota of new names is used up
)
