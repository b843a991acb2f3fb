package sshgate

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/record"
)

// enrolUser is the user name that asks for enrolment; no alias can have it.
const enrolUser = "link"

// enrolTries is how many wrong codes end an enrolment.
const enrolTries = 5

// How an enrolment can end, for its holder and for the figures.
type enrolEnd string

const (
	enrolApproved enrolEnd = "approved"
	enrolExpired  enrolEnd = "expired"
	enrolMistyped enrolEnd = "mistyped" // too many wrong codes
	enrolReplaced enrolEnd = "replaced" // the same key asks anew
	enrolLeft     enrolEnd = "left"     // the client has gone
	enrolFull     enrolEnd = "full"     // too many keys waited
)

var enrolEnds = []enrolEnd{enrolApproved, enrolExpired, enrolMistyped, enrolReplaced, enrolLeft, enrolFull}

// enrolment is one proven key that waits. The code is known to its holder only.
type enrolment struct {
	relay.Enrolment
	id    [sha256.Size]byte
	code  string
	key   ssh.PublicKey
	tries int
	busy  bool          // an approval is under way
	late  enrolEnd      // what ended it meanwhile, unless the approval succeeds
	ended chan enrolEnd // gets one value, once it is no longer listed
}

// enrolments are the keys that wait, by the hash of their link. Their number is
// bounded by the limiter's prompts. Safe for concurrent use.
type enrolments struct {
	mu   sync.Mutex
	list map[[sha256.Size]byte]*enrolment
}

func newEnrolments() *enrolments {
	return &enrolments{list: map[[sha256.Size]byte]*enrolment{}}
}

// add makes a key wait. An earlier enrolment of the same key ends: its holder has
// started again.
func (e *enrolments) add(key ssh.PublicKey, about relay.Enrolment) *enrolment {
	w := &enrolment{Enrolment: about, key: key, code: newCode(), ended: make(chan enrolEnd, 1)}
	w.Link, w.Fingerprint, w.KeyType = newLink(), ssh.FingerprintSHA256(key), key.Type()
	w.id = sha256.Sum256([]byte(w.Link))
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, other := range e.list {
		if other.Fingerprint == w.Fingerprint && !other.busy {
			e.endLocked(other, enrolReplaced)
		}
	}
	e.list[w.id] = w
	return w
}

// find gives what waits behind a link; nil when nothing does.
func (e *enrolments) find(link string) *enrolment {
	w := e.list[sha256.Sum256([]byte(link))]
	if w == nil || !time.Now().Before(w.ExpiresAt) {
		return nil
	}
	return w
}

// claim checks a code and takes the enrolment for one approval.
func (e *enrolments) claim(link, code string) (*enrolment, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.find(link)
	switch {
	case w == nil:
		return nil, relay.ErrNotFound
	case w.busy:
		return nil, relay.Errorf(relay.CodeConflict, "somebody else is approving this key right now; look at it again in a moment")
	case subtle.ConstantTimeCompare([]byte(w.code), []byte(plainCode(code))) == 1:
		w.busy = true
		return w, nil
	}
	w.tries++
	detail := "this is not the code that the ssh command shows; look there and type it again"
	if w.tries >= enrolTries {
		e.endLocked(w, enrolMistyped)
		detail = "this was the last of five wrong codes, so the key waits no more; run the ssh command again for a new link"
	}
	err := relay.Errorf(relay.CodeValidationFailed, "%s", detail)
	err.Fields = []relay.FieldError{{Location: "body.code", Message: detail}}
	return nil, err
}

// settle ends a claim: well when the key is registered now, else it waits on.
func (e *enrolments) settle(w *enrolment, registered bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w.busy = false
	switch {
	case registered:
		e.endLocked(w, enrolApproved)
	case w.late != "":
		e.endLocked(w, w.late)
	}
}

// end takes an enrolment out, unless it has ended. When an approval is under way its
// outcome decides first, so that nobody is told wrong.
func (e *enrolments) end(w *enrolment, how enrolEnd) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w.busy {
		w.late = how
		return
	}
	e.endLocked(w, how)
}

func (e *enrolments) endLocked(w *enrolment, how enrolEnd) {
	if e.list[w.id] != w {
		return
	}
	delete(e.list, w.id)
	w.ended <- how
}

// Enrolment tells of the key that waits behind a link; ErrNotFound when nothing
// waits there any more.
func (srv *Server) Enrolment(link string) (relay.Enrolment, error) {
	srv.enrolments.mu.Lock()
	defer srv.enrolments.mu.Unlock()
	w := srv.enrolments.find(link)
	if w == nil {
		return relay.Enrolment{}, relay.ErrNotFound
	}
	return w.Enrolment, nil
}

// Approve registers the key that waits behind a link for the actor's account, when
// the code is the one that the holder of the key was shown. A wrong code is
// validation-failed, and the fifth one ends the enrolment; ErrNotFound when nothing
// waits there any more. Other errors are those of the registration, and the key
// waits on.
func (srv *Server) Approve(ctx context.Context, who relay.Actor, link, code string) error {
	w, err := srv.enrolments.claim(link, code)
	if err != nil {
		return err
	}
	registered := false
	defer func() { srv.enrolments.settle(w, registered) }() // after a panic too
	if _, err = srv.o.Accounts.AddKey(ctx, who, "", "ssh from "+w.Remote, authorizedKey(w.key)); err != nil {
		return err
	}
	registered = true
	srv.o.Log.Info("ssh key enrolled", "account", who.AccountName, "fingerprint", w.Fingerprint, "remote", w.Remote)
	return nil
}

// authorizedKey is a key as a line of authorized_keys, without comment.
func authorizedKey(key ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

// newLink makes the secret of a link: 160 bits, only lower-case letters and digits.
func newLink() string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))
}

// codeLetters are 32 that nobody takes for one another: no 0 1 I O.
const codeLetters = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"

// newCode makes a code of 8 letters, 40 bits, independent of the link.
func newCode() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	for i := range b {
		b[i] = codeLetters[b[i]%32]
	}
	return string(b[:])
}

// shownCode is a code as people read it.
func shownCode(code string) string { return code[:4] + "-" + code[4:] }

// plainCode is a code as it was made, however somebody has typed it.
func plainCode(typed string) string {
	if len(typed) > 64 {
		return ""
	}
	return strings.ToUpper(strings.Map(func(r rune) rune {
		if r == '-' || r == ' ' || r == '\t' {
			return -1
		}
		return r
	}, typed))
}

// enrol makes a proven but unknown key wait until somebody who is signed in lets it
// in. It gives the owner then. It runs within the handshake, so that what is told
// reaches clients without a session too.
func (l *login) enrol(meta ssh.ConnMetadata, key ssh.PublicKey, show func(string) error) (relay.Actor, error) {
	srv := l.c.srv
	if l.explained { // one key of a connection waits, not each of an agent's
		return relay.Actor{}, errRefused
	}
	l.explained = true
	if !srv.limiter.beginPrompt(&l.c.slot) {
		srv.metrics.enrolment(enrolFull)
		return relay.Actor{}, l.refuseWith("too many keys wait for approval at the moment; try again in two minutes")
	}
	defer srv.limiter.endPrompt(&l.c.slot)
	l.c.extendLogin(srv.o.EnrolTime + srv.o.HandshakeTimeout) // so that the end can still be told
	now := time.Now()
	w := srv.enrolments.add(key, relay.Enrolment{
		Remote: l.c.remote.Addr().String(), Client: clientName(meta.ClientVersion()),
		RequestedAt: now, ExpiresAt: now.Add(srv.o.EnrolTime),
	})
	l.c.log.Info("ssh key waits for approval", "fingerprint", w.Fingerprint)
	if err := show(invitation(w, srv.o.Site.URL("/link/"+w.Link))); err != nil {
		srv.enrolments.end(w, enrolLeft)
		return relay.Actor{}, errRefused
	}
	return l.await(w)
}

// lateBanners tells whether a client shows banners only when the method under way
// has ended, as PuTTY's do: too late for a link.
func lateBanners(meta ssh.ConnMetadata) bool {
	return strings.HasPrefix(string(meta.ClientVersion()), "SSH-2.0-PuTTY")
}

// enrolByText is enrol for them: a second step of the login, whose text is shown at
// once, without a question.
func (l *login) enrolByText(meta ssh.ConnMetadata, ask ssh.KeyboardInteractiveChallenge) (p *ssh.Permissions, err error) {
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

// await waits for the end of an enrolment.
func (l *login) await(w *enrolment) (relay.Actor, error) {
	srv := l.c.srv
	expiry := time.NewTimer(time.Until(w.ExpiresAt))
	defer expiry.Stop()
	how := enrolLeft
	select {
	case how = <-w.ended:
	case <-expiry.C:
		srv.enrolments.end(w, enrolExpired)
		how = <-w.ended // an approval may have been faster
	case <-l.c.peerCtx.Done():
		srv.enrolments.end(w, enrolLeft)
		how = <-w.ended
	}
	l.peerLeft = how == enrolLeft
	srv.metrics.enrolment(how)
	l.c.log.Info("enrolment ended", "fingerprint", w.Fingerprint, "how", string(how))
	switch how {
	case enrolApproved:
		l.c.extendLogin(srv.o.HandshakeTimeout)
		who, err := l.owner(w.key) // as it is in the store, not as it was asked for
		if err != nil {
			return who, l.refuseWith("the key was approved, but cannot be looked up right now; connect again in a moment")
		}
		return who, nil
	case enrolMistyped:
		return relay.Actor{}, l.refuseWith("refused: the code was typed wrong too often; run the command again for a new link")
	case enrolReplaced:
		return relay.Actor{}, l.refuseWith("refused: a newer connection asks for this key; look there")
	case enrolExpired:
		return relay.Actor{}, l.refuseWith("nobody approved the key in time; run the command again for a new link")
	}
	return relay.Actor{}, errRefused
}

// invitation is what the holder of a waiting key reads.
func invitation(w *enrolment, url string) string {
	return strings.Join([]string{
		"relay: key " + w.Fingerprint,
		"relay: is not registered yet. To let it in, open this page where you are",
		"relay: signed in, and type the code there:",
		url,
		"Code: " + shownCode(w.code),
		"relay: waiting, at most until " + w.ExpiresAt.Local().Format(time.TimeOnly) + "; Ctrl+C gives up",
	}, "\r\n") + "\r\n"
}

// welcome is what the holder of a key reads that is registered now, or was before.
func welcome(site *relay.Site, who relay.Actor, before bool) []string {
	first := "approved: this key now belongs to " + record.SafeText(who.AccountName)
	if before {
		first = "this key is already registered, it belongs to " + record.SafeText(who.AccountName) + "; nothing to do"
	}
	return []string{first, fmt.Sprintf("next: ssh -N -R ALIAS:80:localhost:3000 %s", dialed(site, ""))}
}

// enrolledKey is where the lines of welcome are in the permissions of a connection that came
// to have its key registered. It has sessions, which say these lines, and nothing else.
type enrolledKey struct{}

// sayEnrolled runs a session of such a connection. A shell ends well, a command is refused.
func (s *session) sayEnrolled(command string) int {
	to, lines, exit := s.stdout(), s.c.enrolled, exitOK
	if command != "" {
		to, exit = s.stderr(), exitUsage
		lines = append(slices.Clone(lines), "no command was run: a connection of "+enrolUser+"@ only registers a key; type it again without "+enrolUser+"@")
	}
	_, _ = io.WriteString(to, strings.Join(lines, "\n")+"\n")
	return exit
}

// dialed is how people name this relay to ssh: port where it is not 22, and host,
// with what stands before it, such as a user name.
func dialed(site *relay.Site, before string) string {
	host, port, err := net.SplitHostPort(site.SSHAddr)
	switch {
	case err != nil:
		return before + site.SSHAddr
	case port == "22":
		return before + host
	}
	return "-p " + port + " " + before + host
}
