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

// bufferSize is the size of a copy buffer; x/crypto splits its bytes into packets of 32 KiB.
const bufferSize = 64 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// serveChannel accepts a channel and connects it with the target until both directions have ended. The local server is
// dialed at the first byte, because spare channels need no connection to it, and a failed dial is reported before any
// byte was sent.
func (t *tunnel) serveChannel(ctx context.Context, offer *link.Offer, f Forward) {
	// The context open ends at the relay's CLOSE, or together with the connection.
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

// splice copies in both directions between the channel ch and the connection local. The first n bytes of buf were
// already read from ch. The context open ends when the relay closes ch, and ctx when the whole tunnel ends.
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
	// The direction from the relay has ended. After EOF the response may continue; CLOSE ends both
	// directions.
	select {
	case <-answered:
	case <-open.Done():
		local.Close()
		<-answered
	}
}

// copyRequest copies from the channel to the local server and then ends the direction to it. If the local
// server stops reading, the rest of the request is read and dropped: the response may still come, and the
// relay must not block on a full window.
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

// copyResponse copies from the local server to the channel. An orderly end is passed on as EOF at once. A
// reset is reported by a channel request. Without the request, the relay would see EOF and CLOSE as after a
// complete response, although this response is truncated.
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
			if silent { // until CLOSE, the relay waits for a report about a failed dial
				_ = ch.Close()
			}
			return
		case err != nil:
			// If the channel or connection has ended, sending fails; the report is not needed in that case.
			_, _ = ch.SendRequest(relay.BrokeOffRequest, true, nil)
			_ = ch.Close()
			return
		}
	}
}
