package client

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"relay"
	"relay/link"
)

// maxChannels is the maximum number of open channels of one connection.
const maxChannels = 256

// drainAfterClose is the time that a local server has to read the rest of a request after the relay has
// closed the channel.
const drainAfterClose = 10 * time.Second

// bufferSize is the size of one copy; x/crypto cuts packets of 32 KiB from it.
const bufferSize = 64 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// serveChannel accepts a channel and carries it to the target until both directions
// have ended. The local server is dialed at the first byte, so that spare channels cost
// it nothing and the relay learns of a failed dial before anything was sent.
func (t *tunnel) serveChannel(ctx context.Context, offer *link.Offer, f Forward) {
	// open ends with the relay's CLOSE, or with the connection.
	open, closed := context.WithCancel(ctx)
	ch, err := offer.Accept(link.ChannelOptions{Direct: true, Closed: closed})
	if err != nil {
		closed()
		return
	}
	defer ch.Close()
	buf := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buf)
	n, _ := ch.Read(buf[:])
	if n == 0 {
		return
	}
	t.busy.Add(1)
	defer t.busy.Add(-1)
	local, err := f.Target.Dial(open)
	t.up.monitor.dialed(f, err)
	if err != nil {
		_, _ = ch.SendRequest(relay.DialFailedRequest, false, link.Marshal(dialFailed(err)))
		return
	}
	t.splice(ctx, open, ch, local, &answerInspector{m: t.up.monitor, f: f}, buf, n)
}

// splice copies both ways. The first n bytes of buf were read from the channel already.
func (t *tunnel) splice(ctx, open context.Context, ch *link.Channel, local localConn, inspector *answerInspector, buf *[bufferSize]byte, n int) {
	defer local.Close()
	defer context.AfterFunc(open, func() {
		if ctx.Err() != nil {
			local.Close()
			return
		}
		_ = local.SetDeadline(time.Now().Add(drainAfterClose))
	})()
	answered := make(chan struct{})
	if !t.conn.Go("answer of the local server", func() {
		defer close(answered)
		copyResponse(ch, local, inspector)
	}) {
		return
	}
	copyRequest(ch, local, buf, n)
	// The relay has ended its side: by EOF, then the answer may continue, or by CLOSE.
	select {
	case <-answered:
	case <-open.Done():
		local.Close()
		<-answered
	}
}

// copyRequest copies from the channel to the local server and then ends the direction to it.
// A local server that stops reading may still respond, so the rest of the request is read and
// dropped: otherwise the relay would block on a full window.
func copyRequest(ch *link.Channel, local localConn, buf *[bufferSize]byte, n int) {
	broken := false
	for {
		if n > 0 && !broken {
			_, err := local.Write(buf[:n])
			broken = err != nil
		}
		var err error
		if n, err = ch.Read(buf[:]); err != nil {
			break
		}
	}
	if !broken {
		_ = local.CloseWrite()
	}
}

// copyResponse copies from the local server to the channel. An orderly end is passed on
// as EOF at once. A reset is reported by a channel request, because the relay cannot
// see whether a CLOSE followed the EOF and would take a truncated response for a whole
// one.
func copyResponse(ch *link.Channel, local localConn, inspector *answerInspector) {
	buf := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buf)
	for silent := true; ; {
		n, err := local.Read(buf[:])
		if n > 0 {
			silent = false
			_, writeErr := ch.Write(buf[:n])
			inspector.inspect(buf[:n])
			if writeErr != nil {
				return
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			_ = ch.CloseWrite()
			if silent { // until CLOSE the relay waits for the reason of a failed dial
				_ = ch.Close()
			}
			return
		case err != nil:
			// An error means that the channel or connection has ended; then the message is not needed.
			_, _ = ch.SendRequest(relay.BrokeOffRequest, true, nil)
			_ = ch.Close()
			return
		}
	}
}
