package delivery

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"relay"
	"relay/wire"
)

// Capture handles one request of a caller: it stores the event, delivers or queues it and
// returns the answer. The end of ctx does not stop it, because a request that was accepted
// is stored and delivered even if its caller leaves; only Close stops it. A panic is
// passed on after the attempt was marked as interrupted.
func (d *Delivery) Capture(_ context.Context, in *relay.Inbound) relay.Outcome {
	start := time.Now()
	if !d.begin() {
		return d.counters.captured(start, refusal(errStopping(), relay.ID{}))
	}
	defer d.end()
	return d.counters.captured(start, d.capture(in))
}

func (d *Delivery) capture(in *relay.Inbound) relay.Outcome {
	h, _, err := wire.Request(in.Head, wire.Limits{})
	if err != nil {
		return refusal(relay.AsError(err), relay.ID{})
	}
	st := d.registry.Find(in.Alias)
	if e := d.admit(st, in, h); e != nil {
		return refusal(e, relay.ID{})
	}
	x := d.exchange(st, in.Alias)
	defer func() {
		if v := recover(); v != nil {
			x.panicked()
			panic(v) // package server logs it with this stack and resets the connection
		}
		x.observeAdded()
		x.release()
	}()
	if d.opt.AwaitRenewal != nil {
		d.opt.AwaitRenewal()
	}
	x.inbound(in, h)
	x.att, x.lost = st.Online()
	x.wire = x.sentHead()
	x.gather()
	if x.att == nil {
		return x.enqueue()
	}
	if d.storeDegraded.Load() || st.StorageFull.Load() || d.opt.StoreFirst != nil && d.opt.StoreFirst() {
		if out, ok := x.storeFirst(); !ok {
			return out
		}
		if h, _ := st.Online(); h == nil { // the tunnel may have gone while the event was stored
			return x.enqueue()
		}
		x.switchTunnel()
	}
	v := x.run()
	for range 3 {
		if v != notSent || !x.switchTunnel() {
			break
		}
		v = x.run()
	}
	out := x.finishInbound(v)
	out.Event = x.event.ID
	if x.final != nil && x.responseStarted && !x.gone {
		out.Status = x.final.Status
	}
	return out
}

// switchTunnel switches to a newer tunnel of the alias, if there is one, after no byte
// was sent on the present one.
func (x *exchange) switchTunnel() bool {
	h, lost := x.st.Online()
	if h == nil || h == x.att {
		return false
	}
	x.releaseChannel()
	x.att, x.lost = h, lost
	body := x.first[len(x.wire):]
	x.wire = x.sentHead()
	x.first = slices.Concat(x.wire, body)
	return true
}

func refusal(e *relay.Error, id relay.ID) relay.Outcome {
	return relay.Outcome{Answer: &relay.Answer{Error: e, Event: id}}
}

// inbound makes x the exchange of a new event.
func (x *exchange) inbound(in *relay.Inbound, h *wire.Head) {
	e := newEvent(in, h)
	e.ID = x.d.store.NewID()
	if in.Alias.Settings.Forwarded {
		e.ForwardedLines = forwardedLines(in, h)
	}
	x.event = e
	x.origin = in.From
	x.attempt = relay.Attempt{N: 1, Kind: relay.KindOriginal, ReceivedAt: e.ReceivedAt}
	x.d.underWay.add(x.ref())
	x.caller, x.head = in.Caller, h
	x.rec.reset(x.d.store, e.ID, 0, 0, h.Length)
	if h.Framing == relay.FramingNone {
		x.rec.whole = true
	} else {
		x.body = wire.NewBody(h)
		x.body.Tee = x.rec.tee
		_, x.rec.whole, _ = x.body.Feed(nil) // a length of 0
	}
	x.raw.Write(in.Head)
}

func newEvent(in *relay.Inbound, h *wire.Head) *relay.Event {
	return &relay.Event{
		AliasID:        in.Alias.ID,
		Alias:          in.Alias.Name,
		ReceivedAt:     in.Arrived,
		LastReceivedAt: in.Arrived,
		Remote:         in.From,
		TLS:            in.TLS,
		Method:         method(h.Method),
		Target:         wire.ShownTarget(h.Target),
		HTTPMinor:      h.Minor,
		Host:           string(h.Host),
		Request:        relay.Message{Head: in.Head, Framing: h.Framing},
	}
}

// method returns the method as a string, without an allocation for common ones.
func method(m []byte) string {
	switch string(m) {
	case http.MethodPost:
		return http.MethodPost
	case http.MethodGet:
		return http.MethodGet
	case http.MethodPut:
		return http.MethodPut
	}
	return string(m)
}

// forwardedLines returns the header lines that the alias setting forwarded adds to the
// head. They are computed once per event, so that each delivery sends the same bytes.
func forwardedLines(in *relay.Inbound, h *wire.Head) []byte {
	var proto, host bool
	for _, f := range wire.Fields(in.Head) {
		proto = proto || strings.EqualFold(string(f.Name), "X-Forwarded-Proto")
		host = host || strings.EqualFold(string(f.Name), "X-Forwarded-Host")
	}
	b := append([]byte("X-Forwarded-For: "), in.From.Addr().Unmap().String()...)
	if !proto {
		b = append(b, "\r\nX-Forwarded-Proto: http"...)
		if in.TLS {
			b = append(b, 's')
		}
	}
	if !host && len(h.Host) > 0 {
		b = append(b, "\r\nX-Forwarded-Host: "...)
		b = append(b, h.Host...)
	}
	return append(b, "\r\n"...)
}

// sentHead returns the head that the local server gets: that of the event itself, unless the
// settings of the alias or the tunnel add lines or change the Host header.
func (x *exchange) sentHead() []byte {
	head := x.event.Request.Head
	if len(x.event.ForwardedLines) > 0 {
		head = wire.AddLines(head, x.event.ForwardedLines)
	}
	policy, target := x.alias.Settings.HostHeader, ""
	if x.att != nil {
		policy, target = cmp.Or(x.att.Info.HostHeader, policy), x.att.Info.Target
	}
	switch policy {
	case "", relay.HostPreserve:
		return head
	case relay.HostRewrite: // to the authority that relay up has announced; plain ssh announces none
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
