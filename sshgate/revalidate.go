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

// recheckAgain is how long after a failed question to the store it is asked again.
const recheckAgain = time.Second

// revalidator checks again who may stay when a change was published that may take a right
// away: a key, an account, an alias or a membership may be gone. One goroutine asks the
// store, about those connections only that the changes name; without changes it asks
// nothing.
type revalidator struct {
	srv     *Server
	ctx     context.Context
	cancel  context.CancelFunc
	stopped chan struct{}
	wake    chan struct{}
	version atomic.Int64 // counts the changes of rights that were published

	mu  sync.Mutex
	due scope // what is to be checked
}

// scope is a set of connections, by what changes named. The zero value is empty.
type scope struct {
	all      bool // every connection
	accounts map[int64]bool
	keys     map[string]bool
	aliases  map[int64]bool
	conns    map[*conn]bool
}

// add adds what a change names; a change without an account or alias is about any.
func (s *scope) add(c relay.Change) {
	switch {
	case c.Kind == relay.ChangeAccount && c.Credential != "":
		put(&s.keys, c.Credential)
	case c.Kind == relay.ChangeAccount && c.Account != 0:
		put(&s.accounts, c.Account)
	case c.Kind == relay.ChangeAlias && c.Alias != 0:
		put(&s.aliases, c.Alias)
	default:
		s.all = true
	}
}

func put[K comparable](set *map[K]bool, key K) {
	if *set == nil {
		*set = map[K]bool{}
	}
	(*set)[key] = true
}

// merge adds what other holds.
func (s *scope) merge(other scope) {
	s.all = s.all || other.all
	s.accounts, s.keys = union(s.accounts, other.accounts), union(s.keys, other.keys)
	s.aliases, s.conns = union(s.aliases, other.aliases), union(s.conns, other.conns)
}

func union[K comparable](a, b map[K]bool) map[K]bool {
	if a == nil {
		return b
	}
	maps.Copy(a, b)
	return a
}

func (s *scope) empty() bool {
	return !s.all && len(s.accounts)+len(s.keys)+len(s.aliases)+len(s.conns) == 0
}

// whole tells whether everything of a connection is to be checked.
func (s *scope) whole(c *conn) bool {
	return s.all || s.accounts[c.who.Account] || s.keys[c.who.Credential] || s.conns[c]
}

func newRevalidator(srv *Server) *revalidator {
	a := &revalidator{srv: srv, stopped: make(chan struct{}), wake: make(chan struct{}, 1)}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// Publish takes the store's changes, and makes what was revoked take effect at once. It
// never blocks.
func (srv *Server) Publish(changes []relay.Change) {
	var due scope
	for _, c := range changes {
		if c.Kind == relay.ChangeAccount || c.Kind == relay.ChangeAlias {
			due.add(c)
		}
		if c.Kind == relay.ChangeEnrolment {
			srv.enrolments.changed(c.Credential)
		}
	}
	if !due.empty() {
		srv.revalidator.version.Add(1) // before a check that may pass over who comes now
		srv.revalidator.check(due)
	}
}

// check has connections checked.
func (a *revalidator) check(due scope) {
	a.mu.Lock()
	a.due.merge(due)
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// recheckIfChanged is called once something of a connection can be seen by revalidate that
// was decided on when version was asOf: what was checked meanwhile has passed it over.
func (a *revalidator) recheckIfChanged(c *conn, asOf int64) {
	if a.version.Load() != asOf {
		a.check(scope{conns: map[*conn]bool{c: true}})
	}
}

func (a *revalidator) run() {
	defer close(a.stopped)
	var again <-chan time.Time
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-a.wake:
		case <-again:
		}
		again = nil
		a.mu.Lock()
		due := a.due
		a.due = scope{}
		a.mu.Unlock()
		if !a.revalidate(&due) {
			a.mu.Lock()
			a.due.merge(due)
			a.mu.Unlock()
			again = time.After(recheckAgain)
		}
	}
}

// stop ends run and waits for it.
func (a *revalidator) stop() {
	a.cancel()
	<-a.stopped
}

// revalidate asks the store, in one question, which rights of the connections do not stand
// any more, and takes back what goes by them. false means that the store did not answer:
// it is to be asked again, and nobody is cut off meanwhile.
func (a *revalidator) revalidate(due *scope) bool {
	uses := map[relay.Right][]func(){}
	use := func(r relay.Right, end func()) { uses[r] = append(uses[r], end) }
	for _, c := range a.srv.all() {
		if !c.canRevalidate() {
			continue
		}
		whole := due.whole(c)
		if whole {
			use(relay.Right{Account: c.who.Account, Key: c.who.Credential}, func() {
				c.closeRevoked("this key was removed; register it again to come back")
			})
		}
		if !whole && len(due.aliases) == 0 {
			continue
		}
		// Only what was attached before the store is asked is in its answer.
		for _, f := range c.attached() {
			if whole || due.aliases[f.alias.ID] {
				use(relay.Right{Account: c.who.Account, Alias: f.alias.ID}, func() {
					c.spawn(func() { c.removeForward(f) })
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

// canRevalidate tells whether who can be read.
func (c *conn) canRevalidate() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.started && !c.dead && !c.draining
}

// removeForward takes a forward back whose alias may not be used any more. What it was the
// last forward of is given up; else the others go on.
func (c *conn) removeForward(f *forward) {
	last, ok := c.takeForward(f)
	if !ok {
		return
	}
	why := "alias " + f.alias.Name + " was removed, or you may not use it any more"
	c.log.Info("forward withdrawn", "alias", f.alias.Name)
	c.notify(shell.Notice{Kind: relay.NoticeRevoked, Alias: f.alias.Name, Message: why})
	f.detach(false)
	if last {
		c.drain(c.ctx, closeReason{exit: shell.ExitTaken})
	}
}

// closeRevoked gives a connection up whose key is not good any more.
func (c *conn) closeRevoked(message string) {
	c.log.Info("ssh connection dismissed", "why", message)
	c.spawn(func() { c.drain(c.ctx, revokedReason(message)) })
}
