package sshgate

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/record"
)

const (
	// tokenTries is how many tokens may be typed on one connection.
	tokenTries = 3
	// maxToken is longer than every token.
	maxToken = 256
)

// interactive is the method that clients try last, when no key was accepted: the
// one place where it is known that nothing fits, and where to say so.
//
// A client that tries it first, as link@, is asked for an API token. A good one
// proves no key, so it lets nobody in: the client has to prove a key next, and that
// is registered. It must not have tried its keys before, for most clients try none
// twice.
func (l *login) interactive(meta ssh.ConnMetadata, ask ssh.KeyboardInteractiveChallenge) (p *ssh.Permissions, err error) {
	defer l.recovered(&err)
	srv := l.c.srv
	if !l.enrolling(meta) || l.keys > 0 || l.prompts >= tokenTries {
		switch {
		case l.unavailable:
			return nil, l.hangUp()
		case l.explained:
			return nil, errRefused
		}
		return nil, l.explainRefusal()
	}
	if l.prompts++; !srv.limiter.beginPrompt(&l.c.slot) {
		return nil, errRefused
	}
	defer srv.limiter.endPrompt(&l.c.slot)
	l.c.extendLogin(srv.o.EnrolTime)
	answers, err := ask("", l.instruction(), []string{"Token: "}, []bool{false})
	l.c.extendLogin(srv.o.HandshakeTimeout)
	if err != nil || len(answers) != 1 {
		return nil, errRefused
	}
	secret := strings.TrimSpace(answers[0])
	if secret == "" { // no terminal to ask on, or somebody has none
		l.prompts = tokenTries
		return nil, errRefused
	}
	return nil, l.token(secret)
}

// instruction stands above the prompt, once.
func (l *login) instruction() string {
	if l.prompts > 1 {
		return ""
	}
	return "Type an API token to register the key that your client offers next, or press Enter."
}

// token checks a token. The error is a partial success when it is good: a key has
// to be proven next.
func (l *login) token(secret string) error {
	ctx, cancel := context.WithTimeout(l.c.ctx, lookupTime)
	defer cancel()
	if len(secret) > maxToken {
		secret = ""
	}
	who, err := l.c.srv.o.Accounts.TokenOwner(ctx, secret)
	switch {
	case errors.Is(err, relay.ErrNotFound):
		l.c.log.Info("ssh login with a wrong token")
		return l.refuseWith("this token is unknown or has expired")
	case err != nil:
		return l.lookupFailed(err)
	case !who.Scopes.Has(relay.ScopeAccount) || who.Alias != 0:
		return l.refuseWith("this token may not register keys; it needs the scope account, and no limit to one alias")
	}
	l.tokenActor = &who
	_ = l.banner.SendAuthBanner("relay: the token is good; the first key that your client proves now is registered for " +
		record.SafeText(who.AccountName) + "\r\n")
	return &ssh.PartialSuccessError{Next: ssh.ServerAuthCallbacks{PublicKeyCallback: l.offered}}
}

// register puts a key that was just proven among those of the token's account.
func (l *login) register(key ssh.PublicKey) (relay.Actor, error) {
	ctx, cancel := context.WithTimeout(l.c.ctx, lookupTime)
	defer cancel()
	accounts := l.c.srv.o.Accounts
	if err := accounts.StillValid(ctx, *l.tokenActor); err != nil {
		return relay.Actor{}, l.refuseWith("the token is not valid any more")
	}
	if err := l.c.srv.o.Limits.Create(*l.tokenActor); err != nil {
		return relay.Actor{}, l.refuseWith(record.SafeText(relay.AsError(err).Detail))
	}
	name := "ssh from " + l.c.remote.Addr().String()
	if _, err := accounts.AddKey(ctx, *l.tokenActor, "", name, authorizedKey(key)); err != nil {
		l.c.log.Warn("register ssh key by token", "err", err)
		return relay.Actor{}, l.refuseWith(record.SafeText(relay.AsError(err).Detail))
	}
	l.c.log.Info("ssh key registered by token", "account", l.tokenActor.AccountName, "fingerprint", ssh.FingerprintSHA256(key))
	_ = l.banner.SendAuthBanner("relay: key " + ssh.FingerprintSHA256(key) + " is registered now\r\n")
	return l.owner(key)
}
