package delivery

import (
	"context"
	"runtime/debug"
	"time"

	"relay"
	"relay/delivery/exchange"
	"relay/delivery/registry"
	"relay/record"
	"relay/wire"
)

// errAliasOffline is the error for a new event of an offline alias: new events are never queued.
var errAliasOffline = relay.Errorf(relay.CodeAliasOffline, "the alias has no tunnel; open one and send again (a new event is never queued)")

// errSentNowhere is the error of the attempt of a new event whose tunnel was lost before a byte of the
// request was sent.
var errSentNowhere = relay.Errorf(relay.CodeAliasOffline, "the tunnel was lost before the request was sent; nothing of it was sent, and it is not queued")

// Send stores a new event and delivers it once, as its attempt 1. If the request is not sent, the attempt
// ends as failed; an attempt that is in progress when the relay ends becomes interrupted. Send returns the
// event when the attempt has ended, or after the duration wait, with that attempt and without bodies. An error
// means that nothing was sent: ErrNotFound, alias-offline, storage-full, store-unavailable, stopping.
func (d *Delivery) Send(ctx context.Context, who relay.Actor, out relay.Outgoing, wait time.Duration) (*relay.Event, error) {
	if !d.begin() {
		return nil, errStopping()
	}
	running := false
	defer func() {
		if !running {
			d.end()
		}
	}()
	st := d.registry.ByID(out.Alias.ID)
	if st == nil {
		return nil, relay.ErrNotFound
	}
	if h, _ := st.Online(); h == nil {
		return nil, errAliasOffline
	}
	if err := d.store.MayClaim(); err != nil {
		return nil, exchange.StoreError(err)
	}
	j, err := d.acceptNew(ctx, st, &out)
	if err != nil {
		return nil, err
	}
	begun, done := begunAs(j.q.Event), make(chan struct{})
	running = true
	go func() {
		defer d.end()
		defer close(done)
		defer j.release()
		j.deliverNew()
	}()
	return d.awaitAttempt(ctx, who, begun, 1, done, wait), nil
}

// acceptNew stores a new event with its attempt as delivering, and returns the job that sends it.
func (d *Delivery) acceptNew(ctx context.Context, st *registry.Alias, out *relay.Outgoing) (*job, error) {
	h, _, err := wire.Request(out.Request.Head, wire.Limits{})
	if err != nil {
		return nil, err
	}
	now, alias := time.Now(), st.Current()
	in := &relay.Inbound{Alias: alias, From: out.From, TLS: out.TLS, Arrived: now, Head: out.Request.Head}
	if e := d.checkCapacity(in, int64(len(out.Request.Body.Data)), capacityWait); e != nil {
		return nil, e
	}
	e := newEvent(in, h)
	e.ID, e.Request, e.ForwardedLines, e.Sent = d.store.NewID(), out.Request, out.ForwardedLines, &out.Sent
	record.ReadRequest(e, e.Request.Body.Data, d.opt.Site, st.Secrets())
	a := relay.Attempt{N: 1, Kind: relay.KindOriginal, State: relay.StateDelivering, ReceivedAt: now}
	e.State, e.Attempts, e.AttemptCount = a.State, []relay.Attempt{a}, 1
	// From now on the attempt counts as in progress.
	j := d.newJob(st, alias, d.exchanges.Stored(e, a, h, alias.Owner), nil)
	if err := d.storeParts(ctx, e); err != nil {
		j.release()
		return nil, exchange.StoreError(err)
	}
	t := d.store.Accept(e)
	if err := d.exchanges.Await(t); err != nil {
		d.markStoreDegraded(st, err)
		why := exchange.StoreError(err)
		if !closed(t.Done()) {
			// The store may still accept the event later. Its attempt would then stay in the state delivering,
			// so Finish ends it now.
			failed := j.q.Failed(why)
			d.store.Finish(e.ID, &failed, "")
			d.counters.finished(&failed, false)
		}
		j.release()
		return nil, why
	}
	d.markStoreHealthy(st)
	return j, nil
}

// storeParts stores a large body in parts; the event is then sent from the store.
func (d *Delivery) storeParts(ctx context.Context, e *relay.Event) error {
	b := &e.Request.Body
	if len(b.Data) <= relay.InlineBody {
		return nil
	}
	data := b.Data
	b.Data = nil
	for ; len(data) > 0; b.Parts++ {
		n := min(len(data), relay.BodyPart)
		t := d.store.Chunk(e.ID, 0, b.Parts, data[:n:n])
		data = data[n:]
		select {
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		if err := d.exchanges.Await(t); err != nil {
			return err
		}
	}
	return nil
}

// deliverNew sends a new event. After a panic its attempt becomes interrupted, like every attempt
// without a running exchange.
func (j *job) deliverNew() {
	d, q := j.d, j.q
	defer func() {
		if v := recover(); v != nil {
			d.log.Error("panic while delivering a new event", "event", q.Event.ID, "panic", v, "stack", string(debug.Stack()))
		}
	}()
	if d.opt.AwaitRenewal != nil {
		d.opt.AwaitRenewal()
	}
	j.att, j.lost = j.st.Online()
	q.SetHead(j.sentHead())
	q.Gather()
	r := exchange.Result{Untaken: true}
	if j.att != nil {
		r = j.send()
	}
	j.releaseSlot()
	if r.Untaken {
		r = exchange.Fail(q, errSentNowhere, j.journal, nil)
	}
	j.noteResult(&r)
	if r.StoreErr != nil {
		d.log.Error("cannot store the result of a new event", "event", q.Event.ID, "err", r.StoreErr)
	}
}
