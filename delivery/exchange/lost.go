package exchange

import (
	"errors"
	"io"
	"time"

	"relay"
	"relay/budget"
)

// onConnEnd handles the end of the local server's side of the connection, which err describes.
func (x *run) onConnEnd(err error) error {
	a, orderly := &x.answer, errors.Is(err, io.EOF)
	switch {
	case errors.Is(err, budget.ErrOver) && (a.final == nil || x.out.reads() && !x.out.started):
		return x.fail(relay.Errorf(relay.CodeOverloaded, "no buffer space for the local server's answer; try again in a moment"))
	case errors.Is(err, budget.ErrOver):
		// The caller reads too slowly, and gets a broken transfer.
		a.state = relay.ResponseCut
		x.out.leave(readerCut)
		return nil
	case orderly && a.endsByClose():
		a.state = relay.ResponseComplete
		return nil
	}
	if orderly && x.at.first.IsZero() {
		if why := x.conn.End(refusalWait).Refusal; why != nil {
			x.maybeReached = false
			return x.fail(withRetry(why))
		}
	}
	if x.tunnelEnded(!orderly && !errors.Is(err, io.ErrUnexpectedEOF)) {
		return x.tunnelLost()
	}
	switch {
	case a.final != nil:
		a.state = relay.ResponseTruncated
		return x.fail(relay.Errorf(relay.CodeLocalClosed, "the local server broke off inside its answer"))
	case x.conn.Reused() && x.at.first.IsZero():
		return x.fail(relay.Errorf(relay.CodeLocalClosed, "the local server closed a kept connection without an answer; each request gets its own from now on"))
	}
	return x.fail(relay.Errorf(relay.CodeLocalClosed, "the local server closed the connection without an answer; if it speaks TLS, use --target https://… of relay up"))
}

// tunnelEnded reports whether a connection has ended because its tunnel did. abnormal means that the read
// from the connection failed in a way that only the loss of the tunnel explains.
func (x *run) tunnelEnded(abnormal bool) bool {
	if abnormal {
		return true
	}
	select {
	case <-x.ctx.Done():
	case <-time.After(lostWait):
		// This wait is needed because x/crypto ends channels a moment before it reports the end of the tunnel.
	}
	return x.ctx.Err() != nil
}

// onLost handles the loss of the tunnel: it reads the next bytes of the response that have arrived, and fails the
// exchange if there are none. step calls it again until the exchange ends.
func (x *run) onLost() error {
	select {
	case <-x.conn.Ready():
		return x.read()
	default:
		return x.tunnelLost()
	}
}

// tunnelLost fails the exchange as tunnel-lost, unless its first write is still running and no byte was
// taken: then the result of that write decides. The write ends at about the same time as the tunnel.
func (x *run) tunnelLost() error {
	if x.sending && x.at.first.IsZero() {
		select {
		case u := <-x.send.done:
			if err := x.sent(u); err != nil {
				return err
			}
		case <-time.After(lastWriteWait):
		}
	}
	if x.answer.final != nil {
		// One read may have returned both the head of the response and the error of the lost tunnel.
		x.answer.state = relay.ResponseTruncated
	}
	return x.fail(x.broken("the tunnel went away"))
}

// broken returns the error of an exchange that could not continue. The parameter what is a clause that names
// the event, such as "the relay stopped".
func (x *run) broken(what string) *relay.Error {
	if x.answer.final != nil {
		return relay.Errorf(relay.CodeTunnelLost, "%s inside the local server's answer; it has run, but its answer is not whole", what)
	}
	return relay.Errorf(relay.CodeTunnelLost, "%s before the local server had answered; the outcome of the request is unknown", what)
}

// withRetry returns the error why, with which a client has reported that it could not connect to its local server.
// If the code is overloaded, because the client was out of resources, withRetry adds a RetryAfter.
func withRetry(why *relay.Error) *relay.Error {
	if why.Code != relay.CodeOverloaded || why.RetryAfter > 0 {
		return why
	}
	c := *why
	c.RetryAfter = retryAfter
	return &c
}
