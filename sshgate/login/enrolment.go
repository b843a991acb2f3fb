package login

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/record"
)

// EnrolUser is the user name for enrolment; no alias can have this name.
const EnrolUser = "link"

// enrolFull is the result, in the metrics, of an enrolment that was refused because too many keys were
// waiting.
const enrolFull = "full"

// EnrolEnds are the results of enrolments in the metrics.
var EnrolEnds = []string{relay.EnrolmentApproved, relay.EnrolmentExpired, relay.EnrolmentMistyped, relay.EnrolmentReplaced, relay.EnrolmentLeft, enrolFull}

// enrolment is a proven key that waits for its approval at this node.
type enrolment struct {
	relay.Enrolment
	code    string // only the holder of the key knows it
	key     ssh.PublicKey
	changed chan struct{} // gets a value when the enrolment may have ended
}

// nudge makes await check whether the enrolment has ended.
func (w *enrolment) nudge() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// authorizedKey returns a key as a line of authorized_keys, without comment.
func authorizedKey(key ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

// enrol waits until a logged-in user approves a proven but unknown key, and returns the owner of the key. It passes the
// messages about the key to the function show. It runs within the handshake, because clients without a session must get
// these messages, too.
func (l *attempt) enrol(meta ssh.ConnMetadata, key ssh.PublicKey, show func(string) error) (relay.Actor, error) {
	if l.explained { // only one key of a connection waits, and not each key of an agent
		return relay.Actor{}, errRefused
	}
	l.explained = true
	if !l.slot.BeginPrompt() {
		l.o.Enrolled(enrolFull)
		return relay.Actor{}, l.refuseWith("too many keys wait for approval at the moment; try again in two minutes")
	}
	defer l.slot.EndPrompt()
	l.Extend(l.o.EnrolTime + l.o.HandshakeTimeout) // HandshakeTimeout leaves time for the message about how the enrolment has ended
	now := time.Now()
	w := &enrolment{key: key, changed: make(chan struct{}, 1), Enrolment: relay.Enrolment{
		Fingerprint: ssh.FingerprintSHA256(key), AuthorizedKey: authorizedKey(key),
		Remote: l.remote.Addr().String(), Client: ClientName(meta.ClientVersion()),
		RequestedAt: now, ExpiresAt: now.Add(l.o.EnrolTime),
	}}
	l.enrolment.Store(w)
	defer l.enrolment.Store(nil)
	var err error
	ctx, cancel := context.WithTimeout(l.conn.Context(), lookupTime)
	w.Link, w.code, err = l.o.Accounts.AddEnrolment(ctx, w.Enrolment)
	cancel()
	if err != nil {
		return relay.Actor{}, l.lookupFailed(err)
	}
	l.conn.Log().Info("ssh key waits for approval", "fingerprint", w.Fingerprint)
	if err := show(invitation(w, l.o.Site.URL("/link/"+w.Link))); err != nil {
		l.endEnrolment(w, relay.EnrolmentLeft)
		return relay.Actor{}, errRefused
	}
	return l.await(w)
}

// enrolByText is like enrol, for clients that show banners late. It sends the messages as texts of a
// keyboard-interactive step without questions, because these clients show such a text at once.
func (l *attempt) enrolByText(meta ssh.ConnMetadata, ask ssh.KeyboardInteractiveChallenge) (p *ssh.Permissions, err error) {
	defer l.recovered(&err)
	who, err := l.enrol(meta, l.proven, func(text string) error {
		_, err := ask("", strings.ReplaceAll(text, "\r\n", "\n"), nil, nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	return l.accept(meta, who, false)
}

// await waits for the end of an enrolment and returns the owner of the key.
func (l *attempt) await(w *enrolment) (relay.Actor, error) {
	expiry := time.NewTimer(time.Until(w.ExpiresAt))
	defer expiry.Stop()
	how := ""
	for how == "" {
		select {
		case <-w.changed:
			how = l.endEnrolment(w, "")
		case <-expiry.C:
			how = l.endEnrolment(w, relay.EnrolmentExpired) // returns another result if the key was approved just before
		case <-l.evicted:
			how = cmp.Or(l.endEnrolment(w, ""), enrolFull)
			if how == enrolFull {
				_ = l.endEnrolment(w, relay.EnrolmentLeft)
			}
		case <-l.peer.Done():
			how = l.endEnrolment(w, relay.EnrolmentLeft)
		}
	}
	l.peerLeft = how == relay.EnrolmentLeft
	l.o.Enrolled(how)
	l.conn.Log().Info("enrolment ended", "fingerprint", w.Fingerprint, "how", how)
	switch how {
	case relay.EnrolmentApproved:
		l.Extend(l.o.HandshakeTimeout)
		who, err := l.owner(w.key)
		if err != nil {
			return who, l.refuseWith("the key was approved, but cannot be looked up right now; connect again in a moment")
		}
		return who, nil
	case relay.EnrolmentMistyped:
		return relay.Actor{}, l.refuseWith("refused: the code was typed wrong too often; run the command again for a new link")
	case relay.EnrolmentReplaced:
		return relay.Actor{}, l.refuseWith("refused: a newer connection asks for this key; look there")
	case enrolFull:
		return relay.Actor{}, l.refuseWith("many keys of your network wait for approval, and newer ones take the place of the oldest; run the command again for a new link")
	case relay.EnrolmentExpired:
		return relay.Actor{}, l.refuseWith("nobody approved the key in time; run the command again for a new link")
	}
	return relay.Actor{}, errRefused
}

// endEnrolment ends an enrolment with the result how, and returns the stored result. It does not change the
// result of an enrolment that has ended already. With how = "", it only asks for the result; "" = the enrolment
// still waits. If the store does not respond, endEnrolment returns how; if how is "", await asks again after a
// second.
func (l *attempt) endEnrolment(w *enrolment, how string) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.conn.Context()), lookupTime)
	defer cancel()
	ended, err := l.o.Accounts.EndEnrolment(ctx, w.Link, how)
	if err == nil {
		return ended
	}
	l.conn.Log().Warn("cannot store or read the end of an enrolment", "fingerprint", w.Fingerprint, "err", err)
	if how == "" {
		time.AfterFunc(time.Second, w.nudge)
	}
	return how
}

// invitation returns the text for the holder of a waiting key.
func invitation(w *enrolment, url string) string {
	return strings.Join([]string{
		"relay: key " + w.Fingerprint,
		"relay: is not registered yet. To let it in, open this page where you are",
		"relay: signed in, and type the code there:",
		url,
		"Code: " + w.code[:4] + "-" + w.code[4:],
		"relay: waiting, at most until " + w.ExpiresAt.Local().Format("15:04:05 MST") + "; Ctrl+C gives up",
	}, "\r\n") + "\r\n"
}

// enrolledKey is the key of ssh.Permissions.ExtraData under which the messages about a key that was just
// registered are stored. Such a connection has only sessions, which print these messages.
type enrolledKey struct{}

const (
	// tokenTries is how often a token may be entered on one connection.
	tokenTries = 3
	// maxToken is longer than any token, in bytes.
	maxToken = 256
)

// interactive is the method that clients try last, when no key was accepted. Only at this point is it certain
// that no key fits, so the user gets a message.
//
// A client that tries this method first, with the user name link, is asked for an API token. A valid token alone is not
// a login, because it proves no key. The client must then prove a key, which is registered. The client must not have
// tried its keys before, because most clients do not try a key twice.
func (l *attempt) interactive(meta ssh.ConnMetadata, ask ssh.KeyboardInteractiveChallenge) (p *ssh.Permissions, err error) {
	defer l.recovered(&err)
	if !l.enrolling(meta) || l.keys > 0 || l.prompts >= tokenTries {
		switch {
		case l.unavailable:
			return nil, l.hangUp()
		case l.explained:
			return nil, errRefused
		}
		return nil, l.explainRefusal()
	}
	if l.prompts++; !l.slot.BeginPrompt() {
		return nil, errRefused
	}
	defer l.slot.EndPrompt()
	l.Extend(l.o.EnrolTime)
	instruction := "Type an API token to register the key that your client offers next, or press Enter."
	if l.prompts > 1 {
		instruction = ""
	}
	answers, err := ask("", instruction, []string{"Token: "}, []bool{false})
	l.Extend(l.o.HandshakeTimeout)
	if err != nil || len(answers) != 1 {
		return nil, errRefused
	}
	secret := strings.TrimSpace(answers[0])
	if secret == "" { // the client has no terminal for the prompt, or no token
		l.prompts = tokenTries
		return nil, errRefused
	}
	return nil, l.token(secret)
}

// token checks a token. For a valid token the error is a partial success: the client must prove a key next.
func (l *attempt) token(secret string) error {
	ctx, cancel := context.WithTimeout(l.conn.Context(), lookupTime)
	defer cancel()
	if len(secret) > maxToken {
		secret = ""
	}
	who, err := l.o.Accounts.TokenOwner(ctx, secret)
	switch {
	case errors.Is(err, relay.ErrNotFound):
		l.conn.Log().Info("ssh login with a wrong token")
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

// register registers, for the account of the token, a key that was just proven.
func (l *attempt) register(key ssh.PublicKey) (relay.Actor, error) {
	ctx, cancel := context.WithTimeout(l.conn.Context(), lookupTime)
	defer cancel()
	accounts := l.o.Accounts
	if err := accounts.StillValid(ctx, *l.tokenActor); err != nil {
		return relay.Actor{}, l.refuseWith("the token is not valid any more")
	}
	if err := l.o.Create(*l.tokenActor); err != nil {
		return relay.Actor{}, l.refuseWith(record.SafeText(relay.AsError(err).Detail))
	}
	name := "ssh from " + l.remote.Addr().String()
	if _, err := accounts.AddKey(ctx, *l.tokenActor, "", name, authorizedKey(key)); err != nil {
		l.conn.Log().Warn("cannot register an ssh key by token", "err", err)
		return relay.Actor{}, l.refuseWith(record.SafeText(relay.AsError(err).Detail))
	}
	l.conn.Log().Info("ssh key registered by token", "account", l.tokenActor.AccountName, "fingerprint", ssh.FingerprintSHA256(key))
	_ = l.banner.SendAuthBanner("relay: key " + ssh.FingerprintSHA256(key) + " is registered now\r\n")
	return l.owner(key)
}
