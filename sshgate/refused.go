package sshgate

import (
	"slices"
	"sync"
	"time"

	"relay"
	"relay/record"
)

// Bounds of the refused forwards that are kept for the dashboard: a person who runs
// ssh -N in a loop never sees the text of a session.
const (
	maxRefusedPerAccount = 5         // of an account
	refusedFor           = time.Hour // at most
	maxRefusedAccounts   = 1000      // accounts
)

// refusedForwards remembers the newest refused forwards of each account, in memory only. Safe
// for concurrent use.
type refusedForwards struct {
	now func() time.Time

	mu        sync.Mutex
	byAccount map[int64][]relay.RefusedForward // newest first
}

func newRefusedForwards() *refusedForwards {
	return &refusedForwards{now: time.Now, byAccount: map[int64][]relay.RefusedForward{}}
}

// note keeps one more. The same thing again is counted, not listed twice.
func (r *refusedForwards) note(account int64, x relay.RefusedForward) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x.At, x.Times = r.now(), 1
	list := r.fresh(account)
	if len(list) == 0 && len(r.byAccount) >= maxRefusedAccounts {
		r.removeOldestAccount()
	}
	same := func(old relay.RefusedForward) bool { return old.Bind == x.Bind && old.Code == x.Code }
	if i := slices.IndexFunc(list, same); i >= 0 {
		x.Times += list[i].Times
		list = slices.Delete(list, i, i+1)
	}
	list = slices.Insert(list, 0, x)
	r.byAccount[account] = list[:min(len(list), maxRefusedPerAccount)]
}

// forget forgets what was refused to an account under a bind string that is let in now.
func (r *refusedForwards) forget(account int64, bind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if list, known := r.byAccount[account]; known {
		r.byAccount[account] = slices.DeleteFunc(list, func(x relay.RefusedForward) bool { return x.Bind == bind })
		r.fresh(account)
	}
}

// fresh is what an account's list still holds; an empty one is dropped. mu is held.
func (r *refusedForwards) fresh(account int64) []relay.RefusedForward {
	list := r.byAccount[account]
	old := func(x relay.RefusedForward) bool { return r.now().Sub(x.At) >= refusedFor }
	if i := slices.IndexFunc(list, old); i >= 0 {
		list = list[:i]
		r.byAccount[account] = list
	}
	if len(list) == 0 {
		delete(r.byAccount, account)
	}
	return list
}

// removeOldestAccount makes space for another account. The caller holds mu.
func (r *refusedForwards) removeOldestAccount() {
	var oldest int64
	var at time.Time
	for account, list := range r.byAccount { // none is empty
		if at.IsZero() || list[0].At.Before(at) {
			oldest, at = account, list[0].At
		}
	}
	delete(r.byAccount, oldest)
}

// Refused tells which forwards of an account were refused within the last hour, and
// not let in since; the newest first, five at most. A restart forgets them.
func (srv *Server) Refused(account int64) []relay.RefusedForward {
	srv.refusedForwards.mu.Lock()
	defer srv.refusedForwards.mu.Unlock()
	return slices.Clone(srv.refusedForwards.fresh(account))
}

// refuse tells everybody concerned that a forward is not let in, and why.
func (c *conn) refuse(bind string, why *relay.Error) {
	bind = shownBind(bind)
	c.log.Info("forward refused", "bind", bind, "code", why.Code, "err", why)
	message := record.SafeText(why.Detail)
	c.notify(notice{kind: relay.NoticeRefused, alias: bind, code: why.Code, message: message})
	c.srv.refusedForwards.note(c.who.Account, relay.RefusedForward{Bind: bind, Code: why.Code, Message: message, Remote: c.remote})
}

// shownBind is a bind string for people.
func shownBind(bind string) string { return record.SafeTextMax(bind, 80) }
