package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3/acme"
)

// Bounds of getting certificates.
const (
	orderTime     = 3 * time.Minute  // for one try, whoever still waits for it
	orderPatience = 20 * time.Second // of a handshake, where the server's own is longer
	orderSlots    = 4                // tries at the same time
	aheadSlots    = 2                // of these, for names that nobody has asked for yet
	stopPatience  = 2 * time.Second  // with tries that are told to end
	mostOrders    = 1000             // failures that are remembered, and names ahead of their first visitor
	renewCheck    = time.Minute      // between two looks at what has to be renewed; in memory
)

// order is what is known about a name whose certificate is not there.
type order struct {
	running chan struct{} // closed when the try under way ends; nil = none is
	ahead   bool          // nobody has asked for the name yet
	asked   chan struct{} // closed when somebody does
	quick   int           // failures one after another that say nothing about the name
	slow    int           // the other ones
	again   time.Time     // not before
	err     error         // of the last try
}

// order gives the end of a try for a name, a new one if need be. The error says why
// there is none now. ahead means that nobody has asked for the name yet; others that
// do have precedence.
func (a *ACME) order(name string, owner int64, ahead bool) (<-chan struct{}, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.orders[name]
	switch {
	case a.stopped:
		return nil, errors.New("the relay is stopping")
	case o == nil:
		if len(a.orders) >= mostOrders {
			a.forget()
		}
		if ahead && len(a.orders) >= mostOrders { // all under way: it waits for its first visitor
			return nil, errors.New("too many certificates are being got")
		}
		o = &order{}
		a.orders[name] = o
	case o.running != nil:
		if o.ahead && !ahead {
			o.ahead = false
			close(o.asked)
		}
		return o.running, nil
	case time.Now().Before(o.again):
		return nil, fmt.Errorf("the certificate of %s is tried again in %v; it failed: %w", name, time.Until(o.again).Round(time.Second), o.err)
	}
	o.running, o.asked, o.ahead = make(chan struct{}), make(chan struct{}), ahead
	a.wg.Add(1)
	go a.run(name, owner, o)
	return o.running, nil
}

// forget drops failures that may be tried again, or any where all are fresh; a.mu is
// held.
func (a *ACME) forget() {
	for _, all := range []bool{false, true} {
		for name, o := range a.orders {
			if o.running == nil && (all || time.Now().After(o.again)) {
				delete(a.orders, name)
			}
		}
		if len(a.orders) < mostOrders {
			return
		}
	}
}

// run is one try. What is in the folder is taken from there.
func (a *ACME) run(name string, owner int64, o *order) {
	defer a.wg.Done()
	began := time.Now()
	err := a.inTurn(o, func(ctx context.Context) error { return a.obtain(ctx, name, owner, o) })
	var spent *budgetError
	a.mu.Lock()
	defer a.mu.Unlock()
	close(o.running)
	o.running, o.err = nil, err
	switch {
	case err == nil:
		delete(a.orders, name)
		a.opt.Log.Info("certificate ready", "name", name, "seconds", time.Since(began).Seconds())
	case a.stopped:
	case errors.As(err, &spent) && spent.ahead:
		delete(a.orders, name) // there may be room for whoever asks
		a.opt.Log.Debug("no certificate ahead of its first visitor", "name", name, "err", err)
	default:
		wait, byItself := o.postpone(err)
		if byItself || name == a.hosts.base {
			a.opt.Log.Warn("no certificate", "name", name, "err", err, "again", wait)
			time.AfterFunc(wait, func() { a.retry(name, o) })
		} else {
			a.opt.Log.Warn("no certificate; it is tried again when somebody asks for it, or a tunnel is attached", "name", name, "err", err, "not before", wait)
		}
	}
}

// retry tries once more to get a certificate that did not come, without waiting for a
// visitor: he would find none, or wait too long.
func (a *ACME) retry(name string, o *order) {
	a.mu.Lock()
	current := a.orders[name] == o
	a.mu.Unlock()
	if owner, ok := a.may(name); ok && current {
		_, _ = a.order(name, owner, true)
	}
}

// inTurn runs f when there is a place for the order.
func (a *ACME) inTurn(o *order, f func(context.Context) error) error {
	if a.isAhead(o) {
		select {
		case a.early <- struct{}{}:
			defer func() { <-a.early }()
		case <-o.asked:
		case <-a.ctx.Done():
			return a.ctx.Err()
		}
	}
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	case <-a.ctx.Done():
		return a.ctx.Err()
	}
	ctx, cancel := context.WithTimeout(a.ctx, orderTime)
	defer cancel()
	return f(ctx)
}

// isAhead tells whether still nobody has asked for the name.
func (a *ACME) isAhead(o *order) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return o.ahead
}

func (a *ACME) obtain(ctx context.Context, name string, owner int64, o *order) error {
	cert, err := a.conf.CacheManagedCertificate(ctx, name)
	switch {
	case err == nil && !cert.Expired():
		a.met.count(certLoaded)
		return nil
	case err == nil: // what is in memory counts as taken care of
		a.cache.RemoveManaged([]certmagic.SubjectIssuer{{Subject: name}})
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		a.met.count(certFailed)
		return err
	case err != nil && owner != 0:
		ahead := a.isAhead(o)
		if err := a.budget.spend(name, owner, time.Now(), ahead); err != nil {
			if !ahead {
				a.met.count(certRefused)
			}
			return err
		}
	}
	if err := a.conf.ManageSync(ctx, []string{name}); err != nil {
		a.met.count(certFailed)
		return err
	}
	a.met.count(certIssued)
	return nil
}

// Pauses between tries. A CA that cannot be reached costs nobody anything; one that
// has looked and said no counts that (with Let's Encrypt five an hour for a name).
var (
	quickPauses = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 15 * time.Second, time.Minute}
	slowPauses  = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour}
)

// postpone says how long not to try again after err, and whether to try then without
// having been asked: as long as that costs nothing, or the name may yet become good.
func (o *order) postpone(err error) (wait time.Duration, byItself bool) {
	var said acme.Problem
	var spent *budgetError
	switch {
	case errors.As(err, &spent):
		wait = min(spent.wait, time.Hour)
	case errors.As(err, &said) && said.Type == acme.ProblemTypeRateLimited:
		wait = time.Hour
	case errors.As(err, &said) && said.Type != acme.ProblemTypeBadNonce && said.Type != acme.ProblemTypeServerInternal:
		byItself = o.slow < len(slowPauses)
		wait = slowPauses[min(o.slow, len(slowPauses)-1)]
		o.slow++
	default:
		byItself = true
		wait = quickPauses[min(o.quick, len(quickPauses)-1)]
		o.quick++
	}
	o.again = time.Now().Add(wait)
	return wait, byItself
}
