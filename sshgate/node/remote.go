package node

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"time"

	"relay"
	"relay/link"
	"relay/record"
)

// Remote returns a tunnel of another node.
func (n *Links) Remote(rec relay.TunnelRecord) *Remote { return &Remote{links: n, rec: rec} }

// Remote is a tunnel of another node. It implements relay.RemoteTunnel; its channels are of type
// *Channel.
type Remote struct {
	links *Links
	rec   relay.TunnelRecord
}

func (t *Remote) link() *nodeLink { return t.links.link(t.rec.Node) }

// Node returns the id of the node that has the tunnel.
func (t *Remote) Node() string { return t.rec.Node }

// Info describes the tunnel.
func (t *Remote) Info() relay.TunnelInfo { return t.rec.TunnelInfo }

// LazyDial reports whether the client of the tunnel dials at the first byte.
func (t *Remote) LazyDial() bool { return t.rec.LazyDial }

// Heard returns the time since the last byte of the other node, or an hour if there is no connection to that
// node. The other node closes unused channels of a tunnel whose client is silent: see Links.run.
func (t *Remote) Heard() time.Duration {
	if l := t.link(); l != nil {
		if pc := l.control.Load(); pc != nil {
			return pc.Sock.SilentFor()
		}
	}
	return time.Hour
}

// Wake asks the node to check the queue of the alias. It returns false if the node cannot be reached.
func (t *Remote) Wake() bool {
	l := t.link()
	return l != nil && l.tell(wakeRequest, wakeQueue{uint64(t.rec.Alias)})
}

// Close asks the node to close the tunnel. If reason is AliasRemoved, Close does nothing, because every node
// notices the removal of an alias itself.
func (t *Remote) Close(reason string) {
	if l := t.link(); l != nil && reason != relay.AliasRemoved {
		l.tell(takenOverRequest, takenOver{t.rec.ID, reason})
	}
}

// Open opens a channel to the tunnel through the other node.
func (t *Remote) Open(ctx context.Context, origin netip.AddrPort) (relay.Conn, error) {
	l := t.link()
	if l == nil {
		return nil, relay.ErrTunnelMoved
	}
	if !t.links.o.Budget.Fits(t.rec.Owner, link.PausedBytes) {
		return nil, ErrNoBuffer
	}
	pc, err := l.conn(ctx)
	if err != nil {
		return nil, relay.ErrNotSent
	}
	payload := link.Marshal(openPayload{Node: t.rec.Node, Tunnel: t.rec.ID, Origin: Origin(origin), OriginPort: uint32(origin.Port())})
	ch, err := pc.OpenChannel(ctx, tunnelChannel, payload, link.ChannelOptions{
		Request: channelEnded, EOF: link.EOFLost, Explains: true,
		Budget: t.links.o.Budget, Account: t.rec.Owner,
		Cut: func() { t.links.o.Cut(t.links.o.Log, t.rec.Owner) },
	})
	var refused *link.RefusedError
	switch {
	case err == nil:
		t.links.out.Add(1)
		return &Channel{Channel: ch}, nil
	case !errors.As(err, &refused):
		return nil, relay.ErrNotSent
	case refused.Reason == reasonSilent:
		return nil, relay.ErrTunnelSilent
	case refused.Reason == reasonSlow:
		return nil, relay.ErrTunnelSlow
	}
	if code := openCodes[refused.Reason]; code != "" {
		return nil, relay.Errorf(code, "%s", record.SafeTextMax(refused.Text, 512))
	}
	return nil, relay.ErrTunnelMoved
}

// channelEnded stores the other node's report about the end of a channel. The report comes before EOF. An EOF
// without a report means that the connection between the nodes has ended.
func channelEnded(ch *link.Channel, req *link.Request) {
	var e ending
	if req.Type != endRequest || link.Unmarshal(req.Payload, &e) != nil {
		return
	}
	end := relay.ConnEnd{How: relay.ConnLost}
	switch e.Kind {
	case endEOF, endRefused:
		end.How = relay.ConnEOF
	case endBrokeOff:
		end.How = relay.ConnBrokeOff
	}
	for _, code := range openCodes {
		if e.Kind == endRefused && e.Code == code {
			end = relay.ConnEnd{How: relay.ConnRefused, Refusal: relay.Errorf(code, "%s", record.SafeTextMax(e.Detail, 512))}
		}
	}
	ch.Say(end)
}

// Channel is a channel through another node. It implements relay.Conn.
type Channel struct {
	*link.Channel
	sent atomic.Uint64 // number of sent bytes, for Parked
}

// Write implements relay.Conn.
func (h *Channel) Write(p []byte) (int, error) {
	n, err := h.Channel.Write(p)
	h.sent.Add(uint64(n))
	return n, err
}

// CloseWrite implements relay.Conn.
func (h *Channel) CloseWrite() error {
	if _, err := h.SendRequest(halfCloseRequest, false, nil); err != nil {
		return err
	}
	return h.Channel.CloseWrite()
}

// Parked tells the other node that no request uses the channel for now. It does not wait for the socket. The
// message has the number of sent bytes, which shows which requests have ended.
func (h *Channel) Parked() { h.Tell(parkedRequest, link.Marshal(parked{h.sent.Load()})) }
