package login

import (
	"bytes"
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/link"
	"relay/record"
)

// minRSA and maxRSA bound the bits of RSA keys: shorter keys are weak, and longer ones cost the server
// too much.
const minRSA, maxRSA = 2048, 8192

// lookupTime bounds the queries to the store within a login.
const lookupTime = 3 * time.Second

// attempt is one login on one connection, as x/crypto sees it. x/crypto calls its methods one after
// another, in the goroutine of the handshake.
type attempt struct {
	*Login
	banner      ssh.ServerPreAuthConn
	failures    int
	refused     []string // faults of the keys offered so far, as text for the user
	explained   bool
	keys        int          // how often a key was offered
	prompts     int          // how often a token was asked for
	peerLeft    bool         // the client left while its key waited
	known       *relay.Actor // account of the key knownKey, as of Login.rightsVersion
	knownKey    string
	unavailable bool          // the store could not answer, or a limit was reached
	proven      ssh.PublicKey // by a client that is shown the link by other means than a banner
	tokenActor  *relay.Actor  // whose token was good: the key proven next is registered for it
}

// actorKey is the key of the verified identity in the permissions.
type actorKey struct{}

var (
	errRefused = errors.New("key refused")
	errLeft    = errors.New("the client has gone")
)

// relayVersion is the start of the version line of relay, which shows no greeting.
const relayVersion = "SSH-2.0-relay_"

// enrolling reports whether the login only serves to register a key.
func (l *attempt) enrolling(meta ssh.ConnMetadata) bool {
	return strings.ToLower(meta.User()) == EnrolUser
}

// offered reports whether a signature with the key would be useful. Nothing is proven at this point,
// so it changes no state, and only remembers messages for the user.
func (l *attempt) offered(meta ssh.ConnMetadata, key ssh.PublicKey) (p *ssh.Permissions, err error) {
	defer l.recovered(&err)
	l.keys++
	if err = checkKey(key); err != nil {
		return nil, l.refuse(key, fmt.Sprintf("cannot be used here: %v", err))
	}
	_, err = l.owner(key)
	switch {
	case errors.Is(err, relay.ErrNotFound):
		if l.tokenActor != nil || l.enrolling(meta) && !l.explained {
			break // proven, it can be registered
		}
		return nil, l.refuse(key, "is not registered with this relay")
	case err != nil:
		return nil, l.lookupFailed(err)
	}
	return &ssh.Permissions{}, nil
}

// verified accepts or refuses a key after the peer has proven that it holds it.
func (l *attempt) verified(meta ssh.ConnMetadata, key ssh.PublicKey) (p *ssh.Permissions, err error) {
	defer l.recovered(&err)
	if err = checkKey(key); err != nil {
		return nil, errRefused
	}
	who, err := l.owner(key)
	before := err == nil
	switch {
	case err == nil:
	case !errors.Is(err, relay.ErrNotFound):
		return nil, l.lookupFailed(err)
	case l.tokenActor != nil:
		who, err = l.register(key)
	case l.enrolling(meta) && bytes.HasPrefix(meta.ClientVersion(), []byte("SSH-2.0-PuTTY")):
		// It shows banners only when the method in progress has ended: too late for a link.
		l.proven = key
		return nil, &ssh.PartialSuccessError{Next: ssh.ServerAuthCallbacks{KeyboardInteractiveCallback: l.enrolByText}}
	case l.enrolling(meta):
		who, err = l.enrol(meta, key, l.banner.SendAuthBanner)
	default:
		return nil, l.refuse(key, "is not registered with this relay")
	}
	if err != nil {
		return nil, err
	}
	return l.accept(meta, who, before)
}

// accept returns the identity of a connection, and stores the messages for its user. before means that
// the key was registered already.
func (l *attempt) accept(meta ssh.ConnMetadata, who relay.Actor, before bool) (*ssh.Permissions, error) {
	if !l.slot.ReserveAccount(who.Account) {
		l.conn.Log().Warn("too many ssh connections of one account", "account", who.AccountName)
		return nil, l.refuseForNow("this account has too many connections open; close some of them")
	}
	extra := map[any]any{actorKey{}: who}
	l.o.Accounts.NoteLogin(who, meta.RemoteAddr().String())
	if l.enrolling(meta) {
		first := "approved: this key now belongs to " + record.SafeText(who.AccountName)
		if before {
			first = "this key is already registered, it belongs to " + record.SafeText(who.AccountName) + "; nothing to do"
		}
		lines := []string{first, "next: ssh -N -R ALIAS:80:localhost:3000 " + l.o.Site.SSHDestination("")}
		extra[enrolledKey{}] = lines
		_ = l.banner.SendAuthBanner("relay: " + strings.Join(lines, "\r\nrelay: ") + "\r\n")
	} else if !strings.HasPrefix(l.version, relayVersion) {
		_ = l.banner.SendAuthBanner(l.greeting(who, meta.User()))
	}
	return &ssh.Permissions{ExtraData: extra}, nil
}

// attemptEnded is called after each attempt.
func (l *attempt) attemptEnded(meta ssh.ConnMetadata, method string, err error) {
	var next *ssh.PartialSuccessError
	switch {
	case err == nil:
		l.conn.Log().Info("ssh login", "user", record.SafeTextMax(meta.User(), 64), "client", ClientName(meta.ClientVersion()))
		l.succeeded()
		return
	case errors.As(err, &next):
		return
	}
	if method != "none" || l.failures > 0 {
		l.failures++
	}
	if method != "none" {
		// A proven but unapproved key, a store that does not respond and a reached limit give the
		// source no penalty.
		result := ResultRefused
		switch {
		case l.unavailable:
			result = ResultUnavailable
		case l.enrolling(meta) && l.peerLeft:
			result = ResultNoAttempt
		case l.enrolling(meta) && l.explained:
			result = ResultUnapproved
		case l.conn.Context().Err() != nil:
			return // the connection ended first: the result is the reason for that
		}
		l.noteTry(meta.User(), err)
		l.SetResult(result)
		l.conn.Log().Debug("ssh login refused", "method", record.SafeTextMax(method, 32), "err", record.SafeTextMax(err.Error(), 300))
	}
	if l.unavailable && l.failures >= maxAuthTries { // else a goodbye that reads as a refusal follows
		_ = l.hangUp()
	}
}

// owner returns the owner of a key. It asks the store once for both the offer and the proof of a key,
// unless rights have changed in between. recheckIfChanged checks the connection again if they change
// later.
func (l *attempt) owner(key ssh.PublicKey) (relay.Actor, error) {
	fingerprint, version := ssh.FingerprintSHA256(key), l.o.RightsVersion
	if l.known != nil && l.knownKey == fingerprint && l.rightsVersion == version() {
		return *l.known, nil
	}
	l.known = nil
	ctx, done := l.BeginLookup(lookupTime)
	if ctx == nil {
		return relay.Actor{}, errLeft
	}
	defer done()
	l.rightsVersion = version()
	who, err := l.o.Accounts.KeyOwner(ctx, fingerprint)
	if err == nil {
		l.known, l.knownKey = &who, fingerprint
	}
	return who, err
}

// refuse stores the reason why a key is refused. The client is told only if no further try is allowed
// or likely, because the next key of the same agent may be the right one.
func (l *attempt) refuse(key ssh.PublicKey, what string) error {
	fingerprint := ssh.FingerprintSHA256(key)
	l.noteKey(fingerprint)
	why := "key " + fingerprint + " " + what
	if !slices.Contains(l.refused, why) {
		l.refused = append(l.refused, why)
	}
	if !l.explained && l.failures >= maxAuthTries-1 {
		return l.explainRefusal()
	}
	return errRefused
}

func (l *attempt) lookupFailed(cause error) error {
	if cause == errLeft || l.conn.Context().Err() != nil {
		return errRefused
	}
	l.conn.Log().Error("cannot look up the credentials of an ssh login", "err", cause)
	if l.explained {
		l.unavailable = true
		return errRefused
	}
	return l.refuseForNow("keys cannot be looked up right now; try again in a moment")
}

// refuseForNow refuses a login for a reason that does not concern the key. A client does not retry
// after a refused login, so the connection is closed in the end: see hangUp.
func (l *attempt) refuseForNow(text string) error {
	l.unavailable, l.explained = true, true
	_ = l.banner.SendAuthBanner("relay: " + text + "\r\n") // before ended, which may hang up
	return errRefused
}

// hangUp closes the connection of a login that could not be decided, in place of a last refusal:
// clients that reconnect automatically do so after a broken connection, but never after a refusal. It
// is called after the client has tried its other keys. By then the client has shown the banner of
// refuseForNow: PuTTY shows banners only with the answer to the current method.
func (l *attempt) hangUp() error {
	_ = l.conn.Close()
	return errRefused
}

// refuseWith refuses the login with a message for the user.
func (l *attempt) refuseWith(text string) error {
	return &ssh.BannerError{Err: errRefused, Message: "relay: " + text + "\r\n"}
}

// explainRefusal tells the user once why the login failed, and what to do.
func (l *attempt) explainRefusal() error {
	l.explained = true
	site, lines := &l.o.Site, slices.Clone(l.refused)
	if len(lines) == 0 {
		lines = []string{"people are known here by their SSH key, and none was offered (ssh-keygen -t ed25519 makes one)"}
	}
	if l.remote.IsValid() {
		lines = append(lines, "you come from "+l.remote.Addr().String())
	}
	lines = append(lines,
		"to register a key, run: ssh "+site.SSHDestination(EnrolUser),
		"or with an API token: ssh -o PreferredAuthentications=keyboard-interactive,publickey "+site.SSHDestination(EnrolUser),
		"or do it at "+site.URL("/account")+" or have an admin run: relayd key add --user NAME FILE.pub")
	return l.refuseWith(strings.Join(lines, "\r\nrelay: "))
}

// recovered turns a panic within the handshake into a refusal.
func (l *attempt) recovered(err *error) {
	if r := recover(); r != nil {
		l.conn.Log().Error("panic in the ssh login", "panic", r)
		*err = errRefused
	}
}

// checkKey refuses types of keys that are unsafe or unsupported, for every owner.
func checkKey(key ssh.PublicKey) error {
	if _, ok := key.(*ssh.Certificate); ok {
		return errors.New("certificates are not supported, offer the plain key")
	}
	crypto, ok := key.(ssh.CryptoPublicKey)
	if !ok {
		return nil
	}
	if k, ok := crypto.CryptoPublicKey().(*rsa.PublicKey); ok {
		if bits := k.N.BitLen(); bits < minRSA || bits > maxRSA {
			return fmt.Errorf("it has %d bits, RSA keys need %d to %d", bits, minRSA, maxRSA)
		}
	}
	return nil
}

// maxAuthTries is the number of tries of a login. It is large enough for an agent with many keys to
// reach the right one.
const maxAuthTries = 20

// Config returns the configuration of the connection. It is never shared: the callbacks belong to this
// connection.
func (g *Login) Config() *ssh.ServerConfig {
	l := &attempt{Login: g}
	return &ssh.ServerConfig{
		Config: ssh.Config{
			KeyExchanges: []string{ssh.KeyExchangeMLKEM768X25519, ssh.KeyExchangeCurve25519},
			Ciphers:      link.Ciphers(g.ciphers),
			MACs:         []string{ssh.HMACSHA256ETM, ssh.HMACSHA512ETM},
		},
		PublicKeyAuthAlgorithms: []string{
			ssh.KeyAlgoED25519, ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256,
			ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
			ssh.KeyAlgoRSASHA256, ssh.KeyAlgoRSASHA512,
		},
		MaxAuthTries:      maxAuthTries,
		PublicKeyCallback: l.offered,
		VerifiedPublicKeyCallback: func(meta ssh.ConnMetadata, key ssh.PublicKey, _ *ssh.Permissions, _ string) (*ssh.Permissions, error) {
			return l.verified(meta, key)
		},
		KeyboardInteractiveCallback: l.interactive,
		PreAuthConnCallback:         func(banner ssh.ServerPreAuthConn) { l.banner = banner },
		AuthLogCallback:             l.attemptEnded,
	}
}

// Bounds of the queries of logins and forwards to the store.
const (
	maxLookups      = 16 // at the same time
	shortGreetingAt = 64 // so many logins wait that greetings are kept short
)

// BeginLookup waits until the connection may query the store. The returned ctx is for the query and
// ends after limit; the caller calls done when it has the result. ctx is nil if the peer has left in
// the meantime. After a restart of a relay, all its clients connect at once: if all of them queried at
// once, each result would come after its login had timed out, and the client would connect again.
func (g *Login) BeginLookup(limit time.Duration) (ctx context.Context, done func()) {
	g.lookups.Add(1)
	g.all.waiting.Add(1)
	err := g.all.lookups.Acquire(g.peer, 1)
	g.all.waiting.Add(-1)
	if err != nil {
		g.lookups.Add(-1)
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(g.conn.Context(), limit)
	return ctx, func() {
		cancel()
		g.all.lookups.Release(1)
		g.lookups.Add(-1)
	}
}

// OnlyAlias returns the only alias that an account owns, or, if it owns none, the only one that it may
// use.
func OnlyAlias(who relay.Actor, aliases []relay.Alias) (only relay.Alias, ok bool) {
	own := slices.DeleteFunc(slices.Clone(aliases), func(a relay.Alias) bool { return a.Owner != who.Account })
	if len(own) == 0 {
		own = aliases
	}
	if len(own) != 1 {
		return only, false
	}
	return own[0], true
}

// ClientName returns the software of the peer without protocol and comment, such as
// OpenSSH_9.2p1 (RFC 4253, section 4.2).
func ClientName(version []byte) string {
	name := string(version)
	if len(name) > len("SSH-2.0-") {
		name = name[len("SSH-2.0-"):]
	}
	name, _, _ = strings.Cut(name, " ")
	return record.SafeTextMax(name, 64)
}
