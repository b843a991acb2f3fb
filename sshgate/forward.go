package sshgate

import (
	"context"
	"crypto/rand"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"relay"
	"relay/link"
	"relay/record"
	"relay/sshgate/login"
	"relay/sshgate/shell"
)

const (
	// maxBindLength is the largest length of the bind string in an announced target.
	maxBindLength = 300
	// givenPort is the port in the answer to a request for port 0. It is 80 because the examples of the documentation
	// use port 80.
	givenPort = 80
)

// forwardRequest is the payload of tcpip-forward and of its cancel (RFC 4254,
// section 7.1).
type forwardRequest struct {
	Bind string
	Port uint32
}

// forward is an alias on a connection, requested by one tcpip-forward. It implements relay.Tunnel.
type forward struct {
	c             *conn
	asked         forwardRequest // the request as the client wrote it
	named         bool           // whether asked.Bind names an alias: isNeutral returned false
	waits         bool           // whether the forward is counted in forwardSet.waiting
	begun         int            // value of Sessions.Began when the request arrived
	port          uint32         // the port that each channel open of this forward names
	alias         *relay.Alias
	info          relay.TunnelInfo
	rightsVersion int64            // value of revalidator.version before the alias was read
	closed        atomic.Bool      // the forward was detached or replaced, so Close does nothing
	att           relay.Attachment // guarded by forwardSet.mu; nil until attached
}

func (f *forward) online() shell.Notice {
	return shell.Notice{Kind: relay.NoticeOnline, Alias: f.alias.Name, Target: f.info.Target, Of: f.alias}
}

// detach detaches the alias.
func (f *forward) detach(graceful bool) {
	f.closed.Store(true)
	f.c.srv.nodes.Remove(f.info.ID, f, graceful)
	if att := f.attachment(); att != nil {
		att.Detach(graceful)
	}
}

// attachment returns the attachment; nil while the alias is being attached.
func (f *forward) attachment() relay.Attachment {
	f.c.forwards.mu.Lock()
	defer f.c.forwards.mu.Unlock()
	return f.att
}

// askForward decodes a request for a forward on its arrival, before earlier requests are answered, because a forward
// without a name is refused if a request for a forward with a name waits behind it. It returns nil for a malformed
// request.
func (c *conn) askForward(payload []byte) *forward {
	f := &forward{c: c}
	if err := link.Unmarshal(payload, &f.asked); err != nil || f.asked.Port > 65535 {
		return nil
	}
	f.named = !isNeutral(f.asked.Bind)
	f.begun = c.sessions.Began()
	site := &c.srv.o.Site
	label, refusal := parseBind(f.asked.Bind, site)
	// A forward with an invalid or reserved name will be refused, so it does not count in forwardSet.waiting.
	if f.waits = f.named && refusal == nil && !site.Reserved(label); f.waits {
		c.forwards.ask(1)
	}
	return f
}

// forward decides about a request for a forward. It returns the answer to the request, and a function that
// attaches the alias if ok is true. The caller sends the answer before it calls this function, because a channel
// must not reach the client before the answer.
func (c *conn) forward(f *forward) (ok bool, reply []byte, then func()) {
	nothing := func() {}
	if f == nil {
		return false, nil, nothing
	}
	if f.waits {
		c.forwards.ask(-1)
	}
	if refusal := c.admitForward(f); refusal != nil {
		c.refuse(f, refusal)
		return false, nil, nothing // some clients disconnect if a refusal has a payload
	}
	c.srv.o.Accounts.NoteAllowedForward(c.who.Account, shownBind(f.asked.Bind))
	if f.port = f.asked.Port; f.port == 0 {
		f.port = givenPort
		reply = link.Marshal(struct{ Port uint32 }{givenPort})
	}
	client, target := c.announced.of(f.asked.Bind)
	f.info = relay.TunnelInfo{
		ID:         "tun_" + rand.Text(), // the id is unique among the tunnels of all nodes
		Account:    c.who.Account,
		Client:     client,
		Remote:     c.remote,
		User:       c.who.AccountName,
		Since:      time.Now(),
		Target:     record.SafeText(target.URL),
		HostHeader: target.HostHeader,
	}
	return true, reply, func() { c.attach(f) }
}

var errCommand = relay.Errorf(relay.CodeConflict,
	"a connection that runs a command serves no forward; leave the command away, or use another ssh with -N for the tunnel")

// allowForward returns an error if the connection must not serve f, whatever its alias. A named forward that is
// requested after a command has begun, for example by ssh -O forward, is allowed, because the user has asked
// for both.
func (c *conn) allowForward(ctx context.Context, f *forward) *relay.Error {
	if f.begun == 0 && !c.sessions.IsTunnel(ctx, c.notices.toClient() != nil) {
		return errCommand
	}
	if f.named {
		return nil
	}
	if c.sessions.RunCommand() {
		return errCommand
	}
	return c.forwards.refuseUnnamed()
}

// admitForward finds the alias of a forward, or returns the reason why the connection may not have it.
func (c *conn) admitForward(f *forward) (refusal *relay.Error) {
	if refusal = c.allowForward(c.Context(), f); refusal != nil {
		return refusal
	}
	ctx, done := c.login.BeginLookup(askTime)
	if ctx == nil {
		return relay.Errorf(relay.CodeStopping, "this connection has ended")
	}
	defer done()
	f.rightsVersion = c.srv.revalidator.version.Load()
	closed, full := c.forwards.room()
	if closed {
		return relay.Errorf(relay.CodeStopping, "this connection is closing; connect again")
	}
	if f.alias, refusal = c.resolve(ctx, f.asked.Bind, full); refusal != nil {
		return refusal
	}
	if refusal = c.forwards.refuseTwice(f); refusal != nil {
		return refusal
	}
	if full {
		return errFull
	}
	return nil
}

// replaces reports whether attaching f ends the forward other of the same connection.
func (f *forward) replaces(other *forward) bool { return f.named && !other.named }

var errFull = relay.Errorf(relay.CodeOverloaded, "a connection can carry %d aliases; open another one", maxForwards)

// neutralBinds are the bind strings that clients send if their user named no alias. <nil> comes from Go's
// x/crypto before v0.45.0.
var neutralBinds = map[string]bool{"": true, "*": true, "localhost": true, "<nil>": true}

// isNeutral reports whether a bind string names no alias: it is empty, a word of neutralBinds, or an
// unspecified or loopback address.
func isNeutral(bind string) bool {
	bind = strings.TrimSuffix(strings.ToLower(bind), ".")
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(bind, "["), "]"))
	return neutralBinds[bind] || err == nil && (addr.Unmap().IsUnspecified() || addr.Unmap().IsLoopback())
}

// parseBind returns the alias that a bind string names; "" = none.
func parseBind(bind string, site *relay.Site) (label string, err *relay.Error) {
	if isNeutral(bind) {
		return "", nil
	}
	if label = site.AliasLabel(bind); relay.ValidLabel(label) {
		return label, nil
	}
	return "", relay.Errorf(relay.CodeValidationFailed,
		"%q cannot be an alias; use 1 to 63 letters, digits and inner hyphens", record.SafeTextMax(bind, 80))
}

// resolve returns the alias of a forward: the alias that the bind string names; without such a name, the alias that the
// user name of the login names, if it can be claimed; else the only alias of the account. full means that the
// connection has the maximum number of forwards, so no alias is created.
func (c *conn) resolve(ctx context.Context, bind string, full bool) (*relay.Alias, *relay.Error) {
	site := &c.srv.o.Site
	label, refusal := parseBind(bind, site)
	if refusal != nil {
		return nil, refusal
	}
	byUser := label == ""
	if user := site.AliasLabel(c.user); byUser && relay.ValidLabel(user) && !site.Reserved(user) {
		label = user
	}
	if label != "" {
		if full && !c.forwards.holds(func(a *relay.Alias) bool { return a.Name == label }) {
			return nil, errFull
		}
		var a *relay.Alias
		a, refusal = c.claim(ctx, label)
		retry := []string{relay.CodeNotFound, relay.CodeConflict, relay.CodeValidationFailed}
		if refusal == nil || !byUser || !slices.Contains(retry, refusal.Code) {
			return a, refusal
		}
	}
	aliases, err := c.srv.o.Accounts.Aliases(ctx, c.who)
	if err != nil {
		return nil, relay.AsError(err)
	}
	if only, ok := login.OnlyAlias(c.who, aliases); ok {
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

// attach attaches the tunnel to its alias and replaces an earlier tunnel.
func (c *conn) attach(f *forward) {
	if c.Context().Err() != nil {
		return // an ended connection must not take the alias from a live one
	}
	replaced, ok := c.forwards.add(f)
	if !ok {
		return
	}
	c.usage.add(1 - len(replaced))

	// This node must know the tunnel before other nodes can learn of it.
	c.srv.nodes.Add(f.info.ID, f)
	att := c.srv.o.Attach.Attach(f.alias, f)
	for _, old := range replaced {
		old.detach(true)
		c.notify(shell.Notice{Kind: relay.NoticeOffline, Alias: old.alias.Name, Message: "its forward without a name gave way to one with a name"})
	}
	c.WithStale(func(stale bool) {
		ok = c.forwards.attach(f, att, func() { c.notify(f.online()) })
		if ok && stale {
			att.Stale()
		}
	})
	if !ok {
		f.detach(false)
		return
	}
	c.srv.revalidator.recheckIfChanged(c, f.rightsVersion)
	c.Log().Info("alias online", "alias", f.alias.Name)
}

// cancelForward ends a forward at the client's request. It returns false if there is no such forward.
func (c *conn) cancelForward(payload []byte) bool {
	var asked forwardRequest
	if link.Unmarshal(payload, &asked) != nil {
		return false
	}
	f, _ := c.takeForward(func(f *forward) bool {
		return f.asked.Bind == asked.Bind && (f.asked.Port == asked.Port || f.port == asked.Port)
	})
	if f == nil {
		return false
	}
	f.detach(true)
	c.notify(shell.Notice{Kind: relay.NoticeOffline, Alias: f.alias.Name})
	return true
}

// takeForward removes and returns the forward for which the function meant returns true; see forwardSet.take.
func (c *conn) takeForward(meant func(*forward) bool) (f *forward, last bool) {
	if f, last = c.forwards.take(meant); f != nil {
		c.usage.add(-1)
	}
	return f, last
}

func (f *forward) is(other *forward) bool { return f == other }

// attached returns a snapshot of the forwards that have an attachment.
func (c *conn) attached() (list []*forward) {
	c.forwards.attached(func(now []*forward) { list = now })
	return list
}

// Holds implements shell.Conn.
func (c *conn) Holds(alias int64) bool {
	return c.forwards.holds(func(a *relay.Alias) bool { return a.ID == alias })
}

// Attached implements shell.Conn.
func (c *conn) Attached() (names []string) {
	for _, f := range c.attached() {
		names = append(names, f.alias.Name)
	}
	return names
}

// refuse logs a refused forward with its reason, tells the client, and stores it for the dashboard.
func (c *conn) refuse(f *forward, why *relay.Error) {
	bind := shownBind(f.asked.Bind)
	c.Log().Info("forward refused", "bind", bind, "code", why.Code, "err", why)
	message := record.SafeText(why.Detail)
	c.notify(shell.Notice{Kind: relay.NoticeRefused, Alias: bind, Code: why.Code, Message: message})
	if why == errCommand && !f.named {
		return // ssh sends a RemoteForward of its configuration with every command, so this is no mistake to report
	}
	c.srv.o.Accounts.NoteRefusedForward(c.who.Account, relay.RefusedForward{Bind: bind, Code: why.Code, Message: message, Remote: c.remote})
}

// shownBind returns a bind address that is safe to print.
func shownBind(bind string) string { return record.SafeTextMax(bind, 80) }
