package sshgate

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"relay"
	"relay/sshgate/shell"
)

// recheckAgain is the time after which a failed query to the store is repeated.
const recheckAgain = time.Second

// revalidator checks the rights of connections again after a published change that may have revoked a right
// of a key, an account, an alias or a membership. One goroutine asks the store about the affected
// connections. The goroutine runs only while checks are due.
type revalidator struct {
	srv     *Server
	ctx     context.Context
	cancel  context.CancelFunc
	version atomic.Int64 // number of published changes of rights

	mu      sync.Mutex
	due     scope // the connections to check
	running bool
	idle    chan struct{} // created when run starts, closed when it ends
}

// subject selects connections to check: all, those of an account or a key, those that forward an alias, or a single
// connection. Exactly one field is set.
type subject struct {
	all     bool
	account int64
	key     string
	alias   int64
	conn    *conn
}

// scope is a set of subjects.
type scope map[subject]bool

// Publish takes changes from the store and starts the checks of affected connections. It never blocks.
func (srv *Server) Publish(changes []relay.Change) {
	due := scope{}
	for _, c := range changes {
		switch {
		case c.Kind == relay.ChangeAccount && c.Credential != "":
			due[subject{key: c.Credential}] = true
		case c.Kind == relay.ChangeAccount && c.Account != 0:
			due[subject{account: c.Account}] = true
		case c.Kind == relay.ChangeAlias && c.Alias != 0:
			due[subject{alias: c.Alias}] = true
		case c.Kind == relay.ChangeAccount, c.Kind == relay.ChangeAlias: // the change names no account or alias
			due[subject{all: true}] = true
			srv.nudgeEnrolments("") // the store may have missed changes of any kind
		case c.Kind == relay.ChangeEnrolment:
			srv.nudgeEnrolments(c.Credential)
		}
	}
	if len(due) > 0 {
		// The check may miss a connection or a forward that begins at the same time. The version changes first,
		// so that recheckIfChanged then schedules another check for it.
		srv.revalidator.version.Add(1)
		srv.revalidator.check(due)
	}
}

// nudgeEnrolments makes the logins that wait for the approval of a key ask the store again; "" = any key.
func (srv *Server) nudgeEnrolments(fingerprint string) {
	for _, waiting := range srv.all() {
		waiting.login.Nudge(fingerprint)
	}
}

// check schedules a check of connections.
func (a *revalidator) check(due scope) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.Copy(a.due, due)
	if !a.running && a.ctx.Err() == nil {
		a.running = true
		a.idle = make(chan struct{})
		go a.run(a.idle)
	}
}

// stop ends the checks and waits until none runs, at most until ctx ends.
func (a *revalidator) stop(ctx context.Context) {
	a.mu.Lock()
	a.cancel()
	idle := a.idle
	a.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// recheckIfChanged schedules a check of a connection if rights have changed since version asOf. It is called
// when a new part of the connection, such as a forward, becomes visible to revalidate. The part was allowed
// at version asOf, and earlier checks have not seen it.
func (a *revalidator) recheckIfChanged(c *conn, asOf int64) {
	if a.version.Load() != asOf {
		a.check(scope{{conn: c}: true})
	}
}

// run makes the due checks until there are no more, and then closes the channel ended.
func (a *revalidator) run(ended chan struct{}) {
	defer close(ended)
	for {
		a.mu.Lock()
		due := a.due
		a.due = scope{}
		a.running = len(due) > 0 && a.ctx.Err() == nil
		more := a.running
		a.mu.Unlock()
		if !more {
			return
		}
		if a.revalidate(due) {
			continue
		}
		a.mu.Lock()
		maps.Copy(a.due, due)
		a.mu.Unlock()
		select {
		case <-time.After(recheckAgain):
		case <-a.ctx.Done():
		}
	}
}

// revalidate asks the store, in one query, for the revoked rights of the connections, and ends the forwards
// and connections that depend on them. It returns false if the store did not respond. The caller tries again,
// and the clients stay connected until then.
func (a *revalidator) revalidate(due scope) bool {
	uses := map[relay.Right][]func(){}
	use := func(r relay.Right, end func()) { uses[r] = append(uses[r], end) }
	for _, c := range a.srv.all() {
		if !c.started.Load() || c.Context().Err() != nil { // the account is unknown before start
			continue
		}
		whole := due[subject{all: true}] || due[subject{account: c.who.Account}] || due[subject{key: c.who.Credential}] || due[subject{conn: c}]
		if whole {
			use(relay.Right{Account: c.who.Account, Key: c.who.Credential}, c.closeRevoked)
		}
		// For a forward that is attached later, conn.attach calls recheckIfChanged.
		for _, f := range c.attached() {
			if whole || due[subject{alias: f.alias.ID}] {
				use(relay.Right{Account: c.who.Account, Alias: f.alias.ID}, func() {
					c.Go("revoked forward", func() { c.removeForward(f) })
				})
			}
		}
	}
	if len(uses) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(a.ctx, askTime)
	defer cancel()
	revoked, err := a.srv.o.Accounts.Revoked(ctx, slices.Collect(maps.Keys(uses)))
	if err != nil {
		if a.ctx.Err() == nil {
			a.srv.o.Log.Warn("rights of ssh connections cannot be checked; tried again each second", "rights", len(uses), "err", err)
		}
		return false
	}
	for _, r := range revoked {
		for _, end := range uses[r] {
			end()
		}
	}
	return true
}

// removeForward ends a forward after the right to its alias has ended. If it was the last forward of the connection,
// the connection ends, too.
func (c *conn) removeForward(f *forward) {
	taken, last := c.takeForward(f.is)
	if taken == nil {
		return
	}
	why := "alias " + f.alias.Name + " was removed, or you may not use it any more"
	c.Log().Info("forward ended: the account lost the right to it", "alias", f.alias.Name)
	c.notify(shell.Notice{Kind: relay.NoticeRevoked, Alias: f.alias.Name, Message: why})
	f.detach(false)
	if last {
		c.closeUnused()
	}
}
