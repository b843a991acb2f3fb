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

// minRSA and maxRSA bound the bits of RSA keys: shorter keys are weak, and longer keys cost the server too
// much time.
const minRSA, maxRSA = 2048, 8192

// lookupTime bounds the store queries of a login.
const lookupTime = 3 * time.Second

// attempt is a Login with the state that only the callbacks of its handshake use. x/crypto calls them one after
// another, in the goroutine of the handshake.
type attempt struct {
	*Login
	banner      ssh.ServerPreAuthConn
	failures    int
	refused     []string // faults of the keys offered so far, as text for the user
	explained   bool
	keys        int          // number of offered keys
	prompts     int          // number of prompts for a token
	peerLeft    bool         // the client disconnected while its key waited for approval
	known       *relay.Actor // owner of knownKey, as of Login.rightsVersion
	knownKey    string
	unavailable bool          // the store did not answer, or a limit was reached
	proven      ssh.PublicKey // proven key of a client that gets the link for its enrolment by other means than a banner
	tokenActor  *relay.Actor  // owner of a valid token: the next proven key is registered for this account
}

// actorKey is the key of ssh.Permissions.ExtraData under which the verified actor is stored.
type actorKey struct{}

var (
	errRefused = errors.New("key refused")
	errLeft    = errors.New("the client has gone")
)

// relayVersion is the start of the version line of the program relay, which shows no greeting.
const relayVersion = "SSH-2.0-relay_"

// enrolling reports whether the login only serves to register a key.
func (l *attempt) enrolling(meta ssh.ConnMetadata) bool {
	return strings.ToLower(meta.User()) == EnrolUser
}

// offered reports whether a signature with the key would be useful. The key is not proven at this point, so
// offered changes no state except messages for the user.
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
			break // after its proof, the key can be registered
		}
		return nil, l.refuse(key, "is not registered with this relay")
	case err != nil:
		return nil, l.lookupFailed(err)
	}
	return &ssh.Permissions{}, nil
}

// verified accepts or refuses a key after the peer has proven that it holds the private key.
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
		// PuTTY shows a banner only after the current method has ended. The link in the banner would come too late,
		// because enrol waits within the method until somebody opens the link.
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

// accept returns the permissions of a connection, and stores the messages for the user. before means that the
// key had been registered already.
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

// attemptEnded is called after each try of a method of authentication.
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
		// A key that is proven but not approved, a store that does not respond and a reached limit lead to no
		// penalty.
		result := ResultRefused
		switch {
		case l.unavailable:
			result = ResultUnavailable
		case l.enrolling(meta) && l.peerLeft:
			result = ResultNoAttempt
		case l.enrolling(meta) && l.explained:
			result = ResultUnapproved
		case l.conn.Context().Err() != nil:
			return // the connection ended first, and its result is set already
		}
		l.noteTry(meta.User(), err)
		l.SetResult(result)
		l.conn.Log().Debug("ssh login refused", "method", record.SafeTextMax(method, 32), "err", record.SafeTextMax(err.Error(), 300))
	}
	if l.unavailable && l.failures >= maxAuthTries { // otherwise x/crypto sends a last message that reads like a refusal
		_ = l.hangUp()
	}
}

// owner returns the owner of a key. It asks the store once for the offer and the proof of a key, unless
// rights change in between. If they change later, recheckIfChanged checks the connection again.
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

// refuse stores the reason why a key is refused. The client gets the message only if no further try is
// allowed or likely, because the next key of its agent may be valid.
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

// refuseForNow refuses a login for a temporary reason, such as a store that does not answer. Clients do not
// retry after a refused login, so hangUp closes the connection at the end of the login.
func (l *attempt) refuseForNow(text string) error {
	l.unavailable, l.explained = true, true
	// This sends the banner before x/crypto calls attemptEnded, which may close the connection.
	_ = l.banner.SendAuthBanner("relay: " + text + "\r\n")
	return errRefused
}

// hangUp closes the connection of a login that could not be decided, instead of a last refusal. Clients that
// reconnect automatically do so after a broken connection, but never after a refusal. hangUp is called after
// the client has tried its other keys. By then the client has shown the banner of refuseForNow: PuTTY shows a
// banner only with the answer to the current method.
func (l *attempt) hangUp() error {
	l.conn.Close(link.LoginUndecided)
	return errRefused
}

// refuseWith refuses the login with a message for the user.
func (l *attempt) refuseWith(text string) error {
	return &ssh.BannerError{Err: errRefused, Message: "relay: " + text + "\r\n"}
}

// explainRefusal tells the user why the login failed, and what to do. It sets explained, so that callers do not
// call it again.
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

// recovered converts a panic in the handshake into a refusal.
func (l *attempt) recovered(err *error) {
	if r := recover(); r != nil {
		l.conn.Log().Error("panic in the ssh login", "panic", r)
		*err = errRefused
	}
}

// checkKey refuses certificates, and RSA keys of an unsafe or unsupported size, no matter which account the
// key belongs to.
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

// maxAuthTries is the largest number of tries in a login. It is large, because an agent may offer many keys before the
// right one.
const maxAuthTries = 20

// Config returns the configuration of the connection. It is never shared, because its callbacks belong to
// this connection.
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

// Limits for the store queries that logins and forwards make.
const (
	maxLookups      = 16 // largest number of concurrent queries
	shortGreetingAt = 64 // number of waiting logins at which greetings become short
)

// BeginLookup waits until the connection may query the store, because after a restart of a server all its clients
// log in at once: with all queries at once, each answer would come after its login has timed out. The returned
// ctx is for the query and ends after the duration limit; it is nil if the peer has disconnected in the meantime.
// The caller calls done after the query.
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

// OnlyAlias returns the only alias that an account owns. If it owns none, OnlyAlias returns the only alias
// that it may use. ok is false if there is none, or more than one.
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
