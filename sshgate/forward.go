package sshgate

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/record"
	"relay/sshgate/shell"
)

const (
	maxForwards = 16
	maxTargets  = 64
	// givenPort answers a request for port 0; it is the port that every document
	// names.
	givenPort = 80
)

// forwardRequest is the payload of tcpip-forward and of its cancel (RFC 4254,
// section 7.1).
type forwardRequest struct {
	Bind string
	Port uint32
}

// forward is one alias attached through one tcpip-forward.
type forward struct {
	asked         forwardRequest // as the client wrote it
	alias         *relay.Alias
	tunnel        *tunnel
	rightsVersion int64            // what auditor.rights was before the alias was asked for
	att           relay.Attachment // under conn.mu; nil until attached
}

func (f *forward) online() shell.Notice {
	return shell.Notice{Kind: relay.NoticeOnline, Alias: f.alias.Name, Target: f.tunnel.info.Target, Of: f.alias}
}

// detach ends the hold on the alias.
func (f *forward) detach(graceful bool) {
	f.tunnel.closed.Store(true)
	f.tunnel.c.srv.peers.detached(f)
	if att := f.attachment(); att != nil {
		att.Detach(graceful)
	}
}

// attachment is nil while the alias is being attached.
func (f *forward) attachment() relay.Attachment {
	f.tunnel.c.mu.Lock()
	defer f.tunnel.c.mu.Unlock()
	return f.att
}

// request orders a global request behind those before it. Replies carry no id, so
// that even a refusal keeps its place.
func (c *conn) request(req *ssh.Request) {
	switch req.Type {
	case "tcpip-forward", "cancel-tcpip-forward", relay.HelloRequest, relay.TargetRequest:
	default:
		if !req.WantReply {
			return
		}
	}
	c.requests.post(func() {
		ok, payload := false, []byte(nil)
		var then func()
		switch req.Type {
		case "tcpip-forward":
			ok, payload, then = c.forward(req.Payload)
		case "cancel-tcpip-forward":
			ok = c.cancelForward(req.Payload)
		case relay.HelloRequest:
			ok = c.hello(req.Payload)
		case relay.TargetRequest:
			ok = c.target(req.Payload)
		}
		_ = req.Reply(ok, payload)
		if then != nil {
			then()
		}
	})
}

// hello is the bundled client saying what it can do.
func (c *conn) hello(payload []byte) bool {
	var h relay.Hello
	if ssh.Unmarshal(payload, &h) != nil || h.Protocol != 1 {
		return false
	}
	c.lazy.Store(h.Flags&relay.HelloLazyDial != 0)
	c.mu.Lock()
	c.client = "relay " + record.SafeTextMax(h.Version, 48)
	c.moves = h.Flags&relay.HelloMoves != 0
	first := c.clientNotices == nil
	var notices *noticeSender
	if first {
		notices = c.startNotices()
	}
	c.mu.Unlock()
	return !first || c.spawn(func() { c.sendNotices(notices) })
}

// target is the bundled client saying what it will dial.
func (c *conn) target(payload []byte) bool {
	var t relay.Target
	if ssh.Unmarshal(payload, &t) != nil || len(t.Bind) > maxBindLength || len(t.URL) > 2048 || len(t.HostHeader) > 512 {
		return false
	}
	// It becomes the value of a line of requests.
	if strings.ContainsFunc(t.HostHeader, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.targets[t.Bind]; !known && len(c.targets) >= maxTargets {
		return false
	}
	c.targets[t.Bind] = t
	return true
}

// forward attaches an alias. The reply goes out before then is called: a channel
// must not reach the client before the answer that allows it.
func (c *conn) forward(payload []byte) (ok bool, reply []byte, then func()) {
	var asked forwardRequest
	if err := ssh.Unmarshal(payload, &asked); err != nil || asked.Port > 65535 {
		return false, nil, nil
	}
	a, asOf, refusal := c.admitForward(asked)
	if refusal != nil {
		c.refuse(asked.Bind, refusal)
		return false, nil, nil // a payload here makes some clients break off
	}
	c.srv.o.Accounts.NoteAllowedForward(c.who.Account, shownBind(asked.Bind))
	f := &forward{asked: asked, alias: a, rightsVersion: asOf}
	f.tunnel = c.newTunnel(f)
	if asked.Port == 0 {
		f.tunnel.port = givenPort
		reply = ssh.Marshal(struct{ Port uint32 }{givenPort})
	}
	return true, reply, func() { c.attach(f) }
}

// admitForward gives the alias that is meant, and what auditor.rights was before it was
// asked for.
func (c *conn) admitForward(asked forwardRequest) (a *relay.Alias, asOf int64, refusal *relay.Error) {
	done, ok := c.beginLookup()
	if !ok {
		return nil, 0, relay.Errorf(relay.CodeStopping, "this connection has ended")
	}
	defer done()
	ctx, cancel := c.ask()
	defer cancel()
	asOf = c.srv.revalidator.version.Load()
	a, refusal = c.mayForward(ctx, asked)
	return a, asOf, refusal
}

func (c *conn) mayForward(ctx context.Context, asked forwardRequest) (*relay.Alias, *relay.Error) {
	c.mu.Lock()
	full, leaving := len(c.forwards) >= maxForwards, c.draining
	c.mu.Unlock()
	tooMany := relay.Errorf(relay.CodeOverloaded, "a connection can carry %d aliases; open another one", maxForwards)
	switch {
	case leaving:
		return nil, relay.Errorf(relay.CodeStopping, "this connection is closing; connect again")
	case full && !c.mayHold(asked.Bind): // before a free name is claimed in vain
		return nil, tooMany
	}
	a, refusal := c.resolve(ctx, asked.Bind)
	if refusal == nil && full && !c.holds(a.ID) {
		return nil, tooMany
	}
	return a, refusal
}

// mayHold tells whether a bind string can mean an alias that is attached by this
// connection.
func (c *conn) mayHold(bind string) bool {
	label, refusal := parseBind(bind, &c.srv.o.Site)
	if label == "" && refusal == nil {
		label = c.srv.o.Site.AliasLabel(c.user)
		if !relay.ValidLabel(label) || c.srv.o.Site.Reserved(label) {
			return true // the only alias of the account
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.forwards, func(f *forward) bool { return f.alias.Name == label })
}

// attach puts the tunnel in place of whatever the alias had.
func (c *conn) attach(f *forward) {
	c.mu.Lock()
	if c.dead || c.draining {
		c.mu.Unlock()
		return
	}
	old := c.replace(f)
	c.updateIdleTimer()
	c.mu.Unlock()

	c.srv.peers.attached(f) // before other nodes can learn of it
	att := c.srv.o.Attach.Attach(f.alias, f.tunnel)
	if old != nil {
		old.detach(true)
	}
	c.stateMu.Lock()
	c.mu.Lock()
	f.att = att
	gone := !slices.Contains(c.forwards, f)
	if !gone {
		c.notifyLocked(f.online())
	}
	c.mu.Unlock()
	if c.stale.Load() && !gone {
		att.Stale()
	}
	c.stateMu.Unlock()
	if gone {
		c.srv.peers.detached(f)
		att.Detach(false)
		return
	}
	c.srv.revalidator.recheckIfChanged(c, f.rightsVersion)
	c.log.Info("alias online", "alias", f.alias.Name)
}

// replace puts f in place of the forward of the same alias, if there is one. mu is
// held.
func (c *conn) replace(f *forward) (old *forward) {
	kept := make([]*forward, 0, len(c.forwards)+1)
	for _, other := range c.forwards {
		if other.alias.ID == f.alias.ID {
			old = other
			old.tunnel.closed.Store(true) // its Close must not end this connection
			continue
		}
		kept = append(kept, other)
	}
	c.forwards = append(kept, f)
	return old
}

// cancelForward takes a forward back; false for one that is not there.
func (c *conn) cancelForward(payload []byte) bool {
	var asked forwardRequest
	if ssh.Unmarshal(payload, &asked) != nil {
		return false
	}
	c.mu.Lock()
	i := slices.IndexFunc(c.forwards, func(f *forward) bool {
		return f.asked.Bind == asked.Bind && (f.asked.Port == asked.Port || f.tunnel.port == asked.Port)
	})
	if i < 0 {
		c.mu.Unlock()
		return false
	}
	f := c.forwards[i]
	c.mu.Unlock()
	if _, ok := c.takeForward(f); !ok {
		return false
	}
	f.detach(true)
	c.notify(shell.Notice{Kind: relay.NoticeOffline, Alias: f.alias.Name})
	return true
}

// takeForward takes f out of the forwards; last tells that no other is left. ok is false
// when f was not among them.
func (c *conn) takeForward(f *forward) (last, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.forwards, f)
	if i < 0 {
		return false, false
	}
	c.forwards = slices.Delete(slices.Clone(c.forwards), i, i+1)
	c.updateIdleTimer()
	return len(c.forwards) == 0, true
}

// forwardOf is the forward that a tunnel is of; nil when it was taken back.
func (c *conn) forwardOf(t *tunnel) *forward {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.forwards {
		if f.tunnel == t {
			return f
		}
	}
	return nil
}

// holds tells whether an alias is attached by this connection.
func (c *conn) holds(alias int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.forwards, func(f *forward) bool { return f.alias.ID == alias })
}

// attached is a snapshot of the forwards that have an attachment.
func (c *conn) attached() []*forward {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*forward, 0, len(c.forwards))
	for _, f := range c.forwards {
		if f.att != nil {
			list = append(list, f)
		}
	}
	return list
}

// newTunnelID makes an id that no other tunnel of any node has.
func newTunnelID() string { return "tun_" + rand.Text() }

// newTunnel makes the tunnel of a forward.
func (c *conn) newTunnel(f *forward) *tunnel {
	c.mu.Lock()
	defer c.mu.Unlock()
	target := c.targets[f.asked.Bind]
	return &tunnel{c: c, bind: f.asked.Bind, port: f.asked.Port, alias: f.alias.Name, owner: f.alias.Owner, info: relay.TunnelInfo{
		ID:         newTunnelID(),
		Account:    c.who.Account,
		Client:     c.client,
		Remote:     c.remote,
		User:       c.who.AccountName,
		Since:      time.Now(),
		Target:     record.SafeText(target.URL),
		HostHeader: target.HostHeader,
	}}
}

// refuse tells everybody concerned that a forward is not let in, and why.
func (c *conn) refuse(bind string, why *relay.Error) {
	bind = shownBind(bind)
	c.log.Info("forward refused", "bind", bind, "code", why.Code, "err", why)
	message := record.SafeText(why.Detail)
	c.notify(shell.Notice{Kind: relay.NoticeRefused, Alias: bind, Code: why.Code, Message: message})
	c.srv.o.Accounts.NoteRefusedForward(c.who.Account, relay.RefusedForward{Bind: bind, Code: why.Code, Message: message, Remote: c.remote})
}

// shownBind is a bind string for people.
func shownBind(bind string) string { return record.SafeTextMax(bind, 80) }

// maxBindLength is longer than every sensible bind string or user name.
const maxBindLength = 300

// neutralBinds are what clients send when no alias was meant.
var neutralBinds = map[string]bool{
	"": true, "*": true, "localhost": true, "127.0.0.1": true, "0.0.0.0": true, "::": true, "::1": true,
}

// parseBind reads the alias out of a bind string; "" means that it names none.
func parseBind(bind string, site *relay.Site) (label string, err *relay.Error) {
	if neutralBinds[strings.TrimSuffix(strings.ToLower(bind), ".")] {
		return "", nil
	}
	if label = site.AliasLabel(bind); relay.ValidLabel(label) {
		return label, nil
	}
	return "", relay.Errorf(relay.CodeValidationFailed,
		"%q cannot be an alias; use 1 to 63 letters, digits and inner hyphens", record.SafeTextMax(bind, 80))
}

// resolve finds the alias that a forward means: the bind string if it names one,
// else the user name, else the only alias of the account.
func (c *conn) resolve(ctx context.Context, bind string) (*relay.Alias, *relay.Error) {
	label, bad := parseBind(bind, &c.srv.o.Site)
	if bad != nil {
		return nil, bad
	}
	if label != "" {
		return c.claim(ctx, label)
	}
	user := c.srv.o.Site.AliasLabel(c.user)
	var refusal *relay.Error
	if relay.ValidLabel(user) && !c.srv.o.Site.Reserved(user) {
		var a *relay.Alias
		if a, refusal = c.claim(ctx, user); refusal == nil {
			return a, nil
		}
		if refusal.Code != relay.CodeNotFound && refusal.Code != relay.CodeConflict && refusal.Code != relay.CodeValidationFailed {
			return nil, refusal
		}
	}
	aliases, err := c.srv.o.Accounts.Aliases(ctx, c.who)
	if err != nil {
		return nil, relay.AsError(err)
	}
	if only, ok := onlyAlias(c.who, aliases); ok {
		return c.claim(ctx, only.Name)
	}
	if refusal != nil {
		return nil, refusal
	}
	return nil, relay.Errorf(relay.CodeValidationFailed, "the forward names no alias; use -R ALIAS:80:localhost:3000")
}

func (c *conn) claim(ctx context.Context, label string) (*relay.Alias, *relay.Error) {
	if c.srv.o.Site.Reserved(label) {
		return nil, relay.Errorf(relay.CodeValidationFailed, "%q is a reserved name; choose another one", label)
	}
	a, err := c.srv.o.Accounts.ClaimAlias(ctx, c.who, label)
	switch {
	case errors.Is(err, relay.ErrNotFound):
		return nil, relay.Errorf(relay.CodeNotFound, "there is no alias %q here that you may use; the command aliases lists yours", label)
	case err != nil:
		return nil, relay.AsError(err)
	}
	return a, nil
}

// onlyAlias is the one alias that an account owns, or, owning none, the one that
// it may use.
func onlyAlias(who relay.Actor, aliases []relay.Alias) (relay.Alias, bool) {
	var own []relay.Alias
	for _, a := range aliases {
		if a.Owner == who.Account {
			own = append(own, a)
		}
	}
	if len(own) == 0 {
		own = aliases
	}
	if len(own) != 1 {
		return relay.Alias{}, false
	}
	return own[0], true
}
