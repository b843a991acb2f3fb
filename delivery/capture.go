package delivery

import (
	"context"
	"net/http"
	"strings"
	"time"

	"relay"
	"relay/wire"
)

// Capture handles one request of a caller: it delivers or queues it, has it stored, and returns the outcome, with an
// Answer only if relayd has to make one. The end of ctx does not stop it, because a request that was accepted
// is stored and delivered even if its caller leaves; only Close stops it.
func (d *Delivery) Capture(_ context.Context, in *relay.Inbound) relay.Outcome {
	start := time.Now()
	if !d.begin() {
		return d.counters.captured(start, refusal(errStopping(), relay.ID{}))
	}
	defer d.end()
	return d.counters.captured(start, d.capture(in))
}

func (d *Delivery) capture(in *relay.Inbound) relay.Outcome {
	began := time.Now()
	h, _, err := wire.Request(in.Head, wire.Limits{})
	if err != nil {
		return refusal(relay.AsError(err), relay.ID{})
	}
	st := d.registry.Find(in.Alias)
	if e := d.admit(st, in, h); e != nil {
		return refusal(e, relay.ID{})
	}
	e := newEvent(in, h)
	e.ID = d.store.NewID()
	if in.Alias.Settings.Forwarded {
		e.ForwardedLines = forwardedLines(in, h)
	}
	q := d.exchanges.Receive(d.store, e, h, in.Caller, in.Alias.Owner)
	q.Secrets = st.Secrets()
	j := d.newJob(st, in.Alias, q, in.Caller)
	defer j.release()
	if d.opt.AwaitRenewal != nil {
		d.opt.AwaitRenewal()
	}
	j.att, j.lost = st.Online()
	q.SetHead(j.sentHead())
	q.Gather()
	if j.att == nil {
		return j.enqueue()
	}
	if d.storeDegraded.Load() || st.StorageFull.Load() || d.opt.StoreFirst != nil && d.opt.StoreFirst() {
		if out, ok := j.storeFirst(); !ok {
			return out
		}
		if att, _ := st.Online(); att == nil {
			// The tunnel may have been lost while the event was stored.
			return j.enqueue()
		}
		j.switchTunnel()
	}
	r := j.send()
	var out relay.Outcome
	if r.Untaken {
		j.releaseSlot()
		out = j.enqueue()
	} else {
		out = j.outcome(r)
	}
	if r.Answered {
		d.counters.added.Observe((time.Since(began) - r.Local).Seconds())
	}
	return out
}

func refusal(e *relay.Error, id relay.ID) relay.Outcome {
	return relay.Outcome{Answer: &relay.Answer{Error: e, Event: id}}
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

// forwardedLines returns the header lines that the alias setting forwarded adds to the head. They are
// computed once per event, so that each delivery sends the same bytes.
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
