package delivery

import (
	"bytes"
	"cmp"
	"context"
	"strings"
	"time"

	"relay"
	"relay/delivery/exchange"
	"relay/delivery/limiter"
	"relay/delivery/registry"
	"relay/wire"
)

// job is one request on its way through the tunnel of its alias: an original, which has a caller, a
// replay, a queued delivery or a sent event. It belongs to one goroutine.
type job struct {
	d       *Delivery
	st      *registry.Alias
	alias   *relay.Alias
	q       *exchange.Request
	caller  relay.Caller // nil = a replay, a queued delivery or a sent event
	journal exchange.Journal

	att        *registry.Attachment // nil = the alias has no tunnel
	lost       context.Context      // ends when the tunnel is lost
	slot       limiter.Slot
	hasSlot    bool
	endUpgrade func() // gives back the place of a connection that may be upgraded; nil = none is taken
	conn       conn   // the channel in use
	clientSlow bool   // the client of a tunnel at another node is connected, but did not answer in time
	queueBytes int64  // bytes of the request that are reserved in the queue
}

// newJob returns the job of a request; release ends it.
func (d *Delivery) newJob(st *registry.Alias, alias *relay.Alias, q *exchange.Request, caller relay.Caller) *job {
	q.ResponseTimeout = d.opt.ResponseTimeout
	if t := alias.Settings.ResponseTimeout; t != nil {
		q.ResponseTimeout = *t
	}
	d.underWay.add(q.Ref())
	return &job{d: d, st: st, alias: alias, q: q, caller: caller, journal: d.store}
}

func (j *job) release() {
	j.releaseSlot()
	if j.endUpgrade != nil {
		j.endUpgrade()
	}
	j.q.Release()
	j.d.underWay.remove(j.q.Ref())
}

func (j *job) releaseSlot() {
	if j.hasSlot {
		j.hasSlot = false
		j.att.Channels.End()
		j.slot.Release()
	}
}

// sink returns the caller as the reader of the response; nil without a caller.
func (j *job) sink() exchange.Sink {
	if j.caller == nil {
		return nil
	}
	return j.caller
}

// send sends the request through the tunnel of its alias. If a newer tunnel is attached before a byte
// was sent, it uses that one.
func (j *job) send() exchange.Result {
	r := j.sendOnTunnel()
	for range 3 {
		if !r.Untaken || r.Err != nil || j.caller == nil || !j.switchTunnel() {
			break
		}
		r = j.sendOnTunnel()
	}
	return r
}

// switchTunnel switches to a newer tunnel of the alias, and reports whether there is one. No byte of the
// request may have been sent on the current tunnel.
func (j *job) switchTunnel() bool {
	att, lost := j.st.Online()
	if att == nil || att == j.att {
		return false
	}
	j.releaseSlot()
	j.att, j.lost = att, lost
	j.q.SetHead(j.sentHead())
	return true
}

// sendOnTunnel sends the request on one tunnel. It uses a second connection only if the first had been idle, kept
// or opened ahead, and took no byte of the request.
func (j *job) sendOnTunnel() exchange.Result {
	if _, why := j.q.Whole(); why != nil {
		return j.spoilt(why)
	}
	if err := j.takeSlot(); err != nil {
		return j.unsent(err)
	}
	for fresh := j.alias.Settings.FreshConnections; ; fresh = true {
		c, err := j.open(fresh)
		if err != nil {
			return j.unsent(err)
		}
		r := exchange.Run(j.lost, j.q, c, j.journal, j.sink())
		if !r.Untaken {
			return r
		}
		_ = c.Channel.Close()
		if r.Err != nil {
			return j.unsent(r.Err)
		}
		if fresh || !c.Idled() {
			// Only an idle connection may have ended before this request came, so only after such a
			// connection the request is tried once more, on a fresh one.
			return j.unsent(relay.ErrNotSent)
		}
	}
}

// spoilt records a request that cannot be sent; why is the reason.
func (j *job) spoilt(why *relay.Error) exchange.Result {
	j.releaseSlot()
	if j.q.Accepted() {
		// The event is stored already, so its attempt has to end.
		return exchange.Fail(j.q, why, j.journal, j.sink())
	}
	return exchange.Refuse(j.q, j.journal, j.sink())
}

// unsent returns the result if no byte of the request reached the local server. After ErrNotSent, and for a queued
// delivery after any error, that is Untaken. The function that called send then queues an original or a
// replay, and fails a sent event. Any other error ends the attempt.
func (j *job) unsent(err *relay.Error) exchange.Result {
	if err == relay.ErrTunnelSlow {
		j.clientSlow, err = true, relay.ErrNotSent
	}
	count(j.d.counters.refused, err.Code)
	switch {
	case err == relay.ErrNotSent:
		return exchange.Result{Untaken: true}
	case j.q.Queued:
		return exchange.Result{Untaken: true, Err: err}
	}
	// The slot is released first, because Fail may wait hours for the caller to send the rest of the request.
	j.releaseSlot()
	return exchange.Fail(j.q, err, j.journal, j.sink())
}

// takeSlot waits for a slot of the tunnel. A connection that may be upgraded also needs one of the
// upgrade places of its account.
func (j *job) takeSlot() *relay.Error {
	if j.q.Head.Upgrade && j.caller != nil && j.endUpgrade == nil {
		if j.endUpgrade = j.st.AcquireUpgrade(); j.endUpgrade == nil {
			return &relay.Error{
				Code:       relay.CodeOverloaded,
				Detail:     "too many upgraded connections, such as WebSockets, to the aliases of this account are open; close some of them first",
				RetryAfter: retryAfter,
			}
		}
	}
	j.slot = j.att.Slot()
	j.d.counters.waiting.Inc()
	err := j.slot.Acquire(j.q.ResponseTimeout, j.lost.Done(), j.d.cut.Done())
	j.d.counters.waiting.Dec()
	if err != nil {
		return err
	}
	j.hasSlot = true
	j.att.Channels.Begin()
	if j.lost.Err() != nil {
		// The tunnel was lost while the event was stored or the request waited for a slot.
		return relay.ErrNotSent
	}
	j.q.Admitted = time.Now()
	j.q.Attempt.StartedAt = j.q.Admitted
	return nil
}

// open takes an idle channel or opens a new one; if fresh is set, it always opens one.
func (j *job) open(fresh bool) (*conn, *relay.Error) {
	l, err := j.att.Channel(j.caller, j.q.Event.Remote, fresh)
	if err != nil {
		return nil, err
	}
	count(j.d.counters.opened, l.Way())
	if j.caller == nil && j.d.store.MayClaim() != nil {
		_ = l.Close()
		// Another node may have claimed the attempt.
		return nil, relay.ErrNotSent
	}
	l.Begin()
	// This replaces the previous channel, which has taken no byte.
	j.conn = conn{Channel: l, j: j}
	return &j.conn, nil
}

// conn is the channel of a request, with its slot, in the form that an exchange uses.
type conn struct {
	registry.Channel
	j     *job
	begun bool // the channel has taken a byte
}

// Write implements relay.Conn.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Channel.Write(p)
	if !c.begun && (n > 0 || err == nil) {
		c.begun = true
		c.j.att.Requests.Add(1)
	}
	return n, err
}

// Upgraded implements exchange.Conn.
func (c *conn) Upgraded() { c.j.releaseSlot() }

// Keep implements exchange.Conn.
func (c *conn) Keep(limit time.Duration, body bool) {
	var owner relay.Caller
	if body {
		owner = c.j.caller
	}
	if c.j.alias.Settings.FreshConnections {
		_ = c.Channel.Close()
	} else {
		c.Channel.Keep(limit, owner)
	}
	c.j.releaseSlot()
}

// Close implements relay.Conn.
func (c *conn) Close() error {
	err := c.Channel.Close()
	c.j.releaseSlot()
	return err
}

// noteResult counts the end of an exchange, and notes whether the store worked or failed.
func (j *job) noteResult(r *exchange.Result) {
	switch {
	case r.StoreErr != nil:
		j.d.markStoreDegraded(j.st, r.StoreErr)
	case r.Recorded:
		j.d.markStoreHealthy(j.st)
	}
	if r.Ended {
		j.d.counters.finished(r.Attempt, j.q.Queued)
	}
}

// outcome returns the outcome for the caller of a request.
func (j *job) outcome(r exchange.Result) relay.Outcome {
	j.noteResult(&r)
	out := relay.Outcome{KeepAlive: r.KeepOpen, Status: r.Status, Event: r.Stored}
	if r.Err == nil || r.Left {
		return out
	}
	out = refusal(r.Err, r.Stored)
	if r.Ended && !r.Gone && !r.Stored.IsZero() {
		d, ref := j.d, j.q.Ref()
		out.Gone = func() { d.store.CallerGone(ref.Event, ref.N) }
	}
	return out
}

// sentHead returns the head for the local server: that of the event itself, unless the settings of the
// alias or the tunnel add lines or change the Host header.
func (j *job) sentHead() []byte {
	e := j.q.Event
	head := e.Request.Head
	if len(e.ForwardedLines) > 0 {
		head = wire.AddLines(head, e.ForwardedLines)
	}
	policy, target := j.alias.Settings.HostHeader, ""
	if j.att != nil {
		policy, target = cmp.Or(j.att.Info.HostHeader, policy), j.att.Info.Target
	}
	switch policy {
	case "", relay.HostPreserve:
		return head
	case relay.HostRewrite:
		// Plain ssh announces no target, so the local server gets the Host localhost.
		if _, rest, ok := strings.Cut(target, "://"); ok {
			target = rest
		}
		target, _, _ = strings.Cut(target, "/")
		policy = cmp.Or(target, "localhost")
	}
	if changed := wire.SetHost(head, policy); !bytes.Equal(changed, head) {
		return changed
	}
	return head
}
