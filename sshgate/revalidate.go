package sshgate

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"relay"
)

const (
	// pollEvery is how often rights are checked as long as nobody publishes
	// changes, pollSeldom how often when somebody does.
	pollEvery  = time.Second
	pollSeldom = 15 * time.Second
)

// revalidator checks again, in one goroutine for all connections, who may stay: a
// key, an account, an alias or a membership may be gone.
type revalidator struct {
	srv     *Server
	ctx     context.Context
	cancel  context.CancelFunc
	stopped chan struct{}
	wake    chan struct{}
	version atomic.Int64 // counts the changes of rights that were published

	mu        sync.Mutex
	seldom    time.Duration // pollSeldom
	published bool
	due       bool
}

func newRevalidator(srv *Server) *revalidator {
	a := &revalidator{srv: srv, stopped: make(chan struct{}), wake: make(chan struct{}, 1), seldom: pollSeldom}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// Publish takes the store's changes, and makes what was revoked take effect at
// once. It never blocks. A gate that is not given changes looks for itself every
// second.
func (srv *Server) Publish(changes []relay.Change) {
	a := srv.revalidator
	a.mu.Lock()
	a.published = true
	for i := range changes {
		if k := changes[i].Kind; k == relay.ChangeAccount || k == relay.ChangeAlias {
			a.due = true
		}
	}
	due := a.due
	a.mu.Unlock()
	if !due {
		return
	}
	a.version.Add(1)
	a.trigger()
}

// trigger has everybody checked without waiting for the time.
func (a *revalidator) trigger() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// recheckIfChanged is called once something can be seen by check that was decided on when rights
// was what asOf is: a check meanwhile has passed it over.
func (a *revalidator) recheckIfChanged(asOf int64) {
	if a.version.Load() != asOf {
		a.trigger()
	}
}

func (a *revalidator) run() {
	defer close(a.stopped)
	timer := time.NewTimer(pollEvery)
	defer timer.Stop()
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-a.wake:
		case <-timer.C:
		}
		a.mu.Lock()
		next := pollEvery
		if a.published {
			next = a.seldom
		}
		a.due = false
		a.mu.Unlock()
		if !a.check() {
			next = pollEvery
		}
		timer.Reset(next)
	}
}

// stop ends run and waits for it.
func (a *revalidator) stop() {
	a.cancel()
	<-a.stopped
}

// check asks once for each credential, however many connections came by it. false
// means that the store could not answer, so that it is to be done again.
func (a *revalidator) check() bool {
	type credential struct {
		account int64
		id      string
	}
	byCredential := map[credential][]*conn{}
	for _, c := range a.srv.all() {
		if c.canRevalidate() {
			key := credential{c.who.Account, c.who.Credential}
			byCredential[key] = append(byCredential[key], c)
		}
	}
	for _, conns := range byCredential {
		if a.ctx.Err() != nil || !a.checkConns(conns) {
			return false
		}
	}
	return true
}

func (a *revalidator) checkConns(conns []*conn) bool {
	ctx, cancel := context.WithTimeout(a.ctx, askTime)
	defer cancel()
	who := conns[0].who
	if err := a.srv.o.Accounts.StillValid(ctx, who); err != nil {
		if !refusal(err) {
			a.srv.o.Log.Warn("check ssh key", "err", err)
			return false
		}
		for _, c := range conns {
			c.closeRevoked("this key was removed; register it again to come back")
		}
		return true
	}
	// Only what was attached before the list is read must be on it.
	var forwards []*forward
	for _, c := range conns {
		forwards = append(forwards, c.attached()...)
	}
	if len(forwards) == 0 {
		return true
	}
	aliases, err := a.srv.o.Accounts.Aliases(ctx, who)
	if err != nil {
		a.srv.o.Log.Warn("check aliases", "err", err)
		return false
	}
	may := make(map[int64]bool, len(aliases))
	for i := range aliases {
		may[aliases[i].ID] = true
	}
	for _, f := range forwards {
		if !may[f.alias.ID] {
			c := f.tunnel.c
			c.spawn(func() { c.removeForward(f) })
		}
	}
	return true
}

// refusal tells a revoked right from a store that cannot answer: nobody is cut off because
// of the latter.
func refusal(err error) bool {
	var e *relay.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case relay.CodeNotFound, relay.CodeUnauthorized, relay.CodeForbidden:
		return true
	}
	return false
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
	c.mu.Lock()
	if !c.hasForward(f) {
		c.mu.Unlock()
		return
	}
	c.forwards = slices.DeleteFunc(slices.Clone(c.forwards), func(other *forward) bool { return other == f })
	last := len(c.forwards) == 0
	c.updateIdleTimer()
	c.mu.Unlock()
	why := "alias " + f.alias.Name + " was removed, or you may not use it any more"
	c.log.Info("forward withdrawn", "alias", f.alias.Name)
	c.notify(notice{kind: noticeRevoked, alias: f.alias.Name, message: why})
	f.detach(false)
	if last {
		c.drain(c.ctx, closeReason{exit: exitTaken})
	}
}

// closeRevoked gives a connection up whose key is not good any more.
func (c *conn) closeRevoked(message string) {
	c.log.Info("ssh connection dismissed", "why", message)
	c.spawn(func() { c.drain(c.ctx, revokedReason(message)) })
}
