package sshgate

import (
	"io"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/record"
)

// peerChannel is a channel through another node as relay.Channel. The other node says how
// it ends (peerEnd) before it sends EOF: an EOF without that is the end of the connection
// between the nodes.
type peerChannel struct {
	fills
	pc      *peerConn
	ch      ssh.Channel
	ended   chan struct{} // closed when ending is set
	ending  peerEnding
	closing sync.Once
}

func (p *peers) newPeerChannel(pc *peerConn, ch ssh.Channel, reqs <-chan *ssh.Request, t *remoteTunnel) *peerChannel {
	h := &peerChannel{
		fills: fills{srv: p.srv, log: p.srv.o.Log, owner: t.rec.Owner, panics: p.srv.recovered},
		pc:    pc, ch: ch, ended: make(chan struct{}), ending: peerEnding{Kind: peerLost},
	}
	h.read, h.end = h.readOnce, h.Close
	pc.used.Add(1)
	go h.requests(reqs)
	h.startFills()
	return h
}

// requests learns how the channel ends. It returns with the channel.
func (h *peerChannel) requests(reqs <-chan *ssh.Request) {
	known := false
	for req := range reqs {
		var e peerEnding
		if req.Type == peerEnd && !known && ssh.Unmarshal(req.Payload, &e) == nil {
			known, h.ending = true, e
			close(h.ended)
		}
		_ = req.Reply(false, nil)
	}
	if !known {
		close(h.ended)
	}
}

func (h *peerChannel) readOnce(buf []byte) relay.Fill {
	n, err := h.ch.Read(buf)
	if err == nil {
		return relay.Fill{N: n}
	}
	<-h.ended
	switch h.ending.Kind {
	case peerEOF, peerRefused:
		err = io.EOF
	case peerBrokeOff:
		err = io.ErrUnexpectedEOF
	default:
		err = errLost
	}
	return relay.Fill{N: n, Err: err}
}

// Write implements relay.Channel. Close unblocks it: the other node answers the CLOSE at
// once, or its connection is given up.
func (h *peerChannel) Write(p []byte) (int, error) { return h.ch.Write(p) }

// Refusal implements relay.Channel.
func (h *peerChannel) Refusal(wait time.Duration) *relay.Error {
	limit := time.NewTimer(wait)
	defer limit.Stop()
	select {
	case <-h.ended:
	case <-limit.C:
		return nil
	}
	if h.ending.Kind != peerRefused {
		return nil
	}
	switch h.ending.Code {
	case relay.CodeLocalRefused, relay.CodeLocalUnresolvable, relay.CodeOverloaded:
		return relay.Errorf(h.ending.Code, "%s", record.SafeTextMax(h.ending.Detail, 512))
	}
	return nil
}

// CloseWrite implements relay.Channel.
func (h *peerChannel) CloseWrite() error {
	if _, err := h.ch.SendRequest(peerHalfClose, false, nil); err != nil {
		return err
	}
	return h.ch.CloseWrite()
}

// Parked tells the other node that no request uses the channel for now, so that it does not
// count as one of the tunnel's.
func (h *peerChannel) Parked() { _, _ = h.ch.SendRequest(peerParked, false, nil) }

// Close implements relay.Channel.
func (h *peerChannel) Close() error {
	h.closing.Do(func() {
		h.endFills()
		h.pc.used.Add(-1)
		go func() { // it waits where the socket is stuck
			defer h.srv.recovered("close")
			_ = h.ch.Close()
			_, _ = io.Copy(io.Discard, h.ch)
		}()
	})
	return nil
}
