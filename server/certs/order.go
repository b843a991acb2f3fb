package certs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3/acme"
)

// Bounds of orders.
const (
	orderTimeout  = 3 * time.Minute  // longest time of one order
	handshakeWait = 20 * time.Second // longest wait of a handshake for an order
	maxOrders     = 4                // largest number of orders that run at the same time
	maxPrefetches = 2                // largest number of them for names that no handshake has asked for
	challengeWait = 2 * time.Second  // longest time to read the challenges of other nodes
	stopTimeout   = 2 * time.Second  // longest wait for orders to end after their context has ended
	maxIssuances  = 1000             // largest number of entries in ACME.issuances
	renewInterval = time.Minute      // time between two checks for certificates in memory that have to be renewed
)

// issuance is the state of a name that has no certificate in memory.
type issuance struct {
	running     chan struct{} // closed when the running order ends; nil = no order is running
	prefetch    bool          // no handshake has asked for the name yet
	demanded    chan struct{} // closed when a handshake asks for the name
	unreachable int           // number of failures in a row for which the name is not the reason, such as a CA that cannot be reached
	rejections  int           // number of all other failures in a row
	notBefore   time.Time     // earliest time of the next order
	err         error         // error of the last order
}

// request starts an order for a name unless one is running, and returns a channel that is closed when
// the order has ended. An error is the reason why no order is possible now. prefetch means that no
// handshake has asked for the name; orders for which a handshake waits take precedence.
func (a *ACME) request(name string, owner int64, prefetch bool) (<-chan struct{}, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.issuances[name]
	switch {
	case a.stopped:
		return nil, errors.New("the relay is stopping")
	case o == nil:
		if len(a.issuances) >= maxIssuances {
			a.dropFailures()
		}
		if prefetch && len(a.issuances) >= maxIssuances {
			// Every entry is a running order, so dropFailures could remove none. The prefetch is given up,
			// and the first handshake for the name orders the certificate.
			return nil, errors.New("too many certificates are being ordered")
		}
		o = &issuance{}
		a.issuances[name] = o
	case o.running != nil:
		if o.prefetch && !prefetch {
			o.prefetch = false
			close(o.demanded)
		}
		return o.running, nil
	case time.Now().Before(o.notBefore):
		return nil, fmt.Errorf("the certificate of %s is tried again in %v; it failed: %w", name, time.Until(o.notBefore).Round(time.Second), o.err)
	}
	o.running, o.demanded, o.prefetch = make(chan struct{}), make(chan struct{}), prefetch
	a.wg.Add(1)
	go a.run(name, owner, o)
	return o.running, nil
}

// dropFailures removes the issuances of failed orders whose pause is over, or those of all failed orders if that
// does not free space. The calling function holds a.mu.
func (a *ACME) dropFailures() {
	for _, all := range []bool{false, true} {
		maps.DeleteFunc(a.issuances, func(_ string, o *issuance) bool {
			return o.running == nil && (all || time.Now().After(o.notBefore))
		})
		if len(a.issuances) < maxIssuances {
			return
		}
	}
}

// run loads or orders the certificate of a name. If that fails, it stores the failure in o, else it removes o.
func (a *ACME) run(name string, owner int64, o *issuance) {
	defer a.wg.Done()
	began := time.Now()
	err := a.obtain(name, owner, o)
	var exceeded *quotaError
	a.mu.Lock()
	defer a.mu.Unlock()
	close(o.running)
	o.running, o.err = nil, err
	switch {
	case err == nil:
		delete(a.issuances, name)
		a.opt.Log.Info("certificate ready", "name", name, "seconds", time.Since(began).Seconds())
	case a.stopped:
	case errors.As(err, &exceeded) && exceeded.prefetch:
		// The failure is forgotten, because a handshake may still use the other half of the quota.
		delete(a.issuances, name)
		a.opt.Log.Debug("cannot order a certificate before the first handshake", "name", name, "err", err)
	default:
		wait, retry := o.backOff(err)
		if retry || name == a.base || name == a.wildcard() {
			a.opt.Log.Warn("no certificate", "name", name, "err", err, "retry_in", wait)
			time.AfterFunc(wait, func() { a.retry(name, o) })
		} else {
			a.opt.Log.Warn("no certificate; the next handshake or tunnel for the name tries again", "name", name, "err", err, "retry_in", wait)
		}
	}
}

// retry orders a certificate again after a failure, before a handshake asks for it, because that
// handshake would have to wait or fail.
func (a *ACME) retry(name string, o *issuance) {
	a.mu.Lock()
	current := a.issuances[name] == o
	a.mu.Unlock()
	if owner, ok := a.allowed(name); ok && current {
		_, _ = a.request(name, owner, true)
	}
}

// obtain waits for a slot for the order, and then gets the certificate.
func (a *ACME) obtain(name string, owner int64, o *issuance) error {
	if a.isPrefetch(o) {
		select {
		case a.prefetchSlots <- struct{}{}:
			defer func() { <-a.prefetchSlots }()
		case <-o.demanded:
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
	ctx, cancel := context.WithTimeout(a.ctx, orderTimeout)
	defer cancel()
	result, err := a.loadOrOrder(ctx, name, owner, o)
	if result != "" {
		a.met.WithLabelValues(result).Inc()
	}
	return err
}

// isPrefetch reports whether no handshake has asked for the name yet.
func (a *ACME) isPrefetch(o *issuance) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return o.prefetch
}

// loadOrOrder loads or orders a certificate, and returns the name of the result in the metrics, "" for
// none.
func (a *ACME) loadOrOrder(ctx context.Context, name string, owner int64, o *issuance) (result string, err error) {
	cert, err := a.conf.CacheManagedCertificate(ctx, name)
	switch {
	case err == nil && !cert.Expired():
		return certLoaded, nil
	case err == nil:
		// The certificate that was loaded has expired. It is removed from memory, because certmagic orders
		// none for a name that has one in memory.
		a.cache.RemoveManaged([]certmagic.SubjectIssuer{{Subject: name}})
	case !errors.Is(err, fs.ErrNotExist):
		return certFailed, err
	case owner != 0:
		prefetch := a.isPrefetch(o)
		if err := a.quota.use(ctx, name, owner, time.Now(), prefetch); err != nil {
			if prefetch {
				return "", err
			}
			return certRefused, err
		}
	}
	if err := a.conf.ManageSync(ctx, []string{name}); err != nil {
		return certFailed, err
	}
	return certIssued, nil
}

// Pauses between orders. They are longer after a rejection of the name by the CA, because a CA limits
// rejections: Let's Encrypt allows five for a name in an hour. Failures to reach the CA do not count as rejections.
var (
	unreachableBackoff = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 15 * time.Second, time.Minute}
	rejectedBackoff    = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour}
)

// backOff returns the time to wait after err, and whether to repeat the order then, even if no handshake or
// tunnel needs the name. It repeats an order after a failure that does not count at the CA, and after the
// first five rejections, because the reason for a rejection, such as a missing DNS record, may be mended
// meanwhile.
func (o *issuance) backOff(err error) (wait time.Duration, retry bool) {
	var problem acme.Problem
	var exceeded *quotaError
	switch {
	case errors.As(err, &exceeded):
		wait = min(exceeded.wait, time.Hour)
	case errors.As(err, &problem) && problem.Type == acme.ProblemTypeRateLimited:
		wait = time.Hour
	case errors.As(err, &problem) && problem.Type != acme.ProblemTypeBadNonce && problem.Type != acme.ProblemTypeServerInternal:
		retry = o.rejections < len(rejectedBackoff)
		wait = rejectedBackoff[min(o.rejections, len(rejectedBackoff)-1)]
		o.rejections++
	default:
		retry = true
		wait = unreachableBackoff[min(o.unreachable, len(unreachableBackoff)-1)]
		o.unreachable++
	}
	o.notBefore = time.Now().Add(wait)
	return wait, retry
}
