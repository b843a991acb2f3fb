package server

import (
	"bytes"
	"errors"
	"net"
	"os"
	"time"

	"relay"
)

// Bounds of the courtesy towards connections that are turned away.
const (
	ushers    = 64                    // who are answered in order at the same time
	turnTime  = time.Second           // for the first bytes of the request to come
	turnWrite = 50 * time.Millisecond // for the answer, where nobody waits for it
)

// usher answers connections for which there is no place.
type usher struct {
	free     chan struct{} // one for each that may be answered in order now
	patience time.Duration // for the first bytes of a request
	told     lines         // of the log
}

func newUsher() *usher {
	return &usher{free: make(chan struct{}, ushers), patience: turnTime, told: lines{most: 1, per: toldPause}}
}

// turnAway ends a connection that has no place: with 503 overloaded, or without a
// word where that would have to be encrypted first. A few at a time get their answer
// in order, after their request began and with a close that cannot take it away from
// them; beyond these it is sent at once, and lost on some, but costs no goroutine.
func (s *Server) turnAway(c *conn, why string, secure bool) {
	s.met.refused[why].Inc()
	if more, ok := s.usher.told.may(time.Now()); ok {
		s.log.Warn("connection refused: too many are busy", "bound", why, "from", c.from, "more since last told", more)
	}
	if secure {
		_ = c.raw.Close()
		return
	}
	select {
	case s.usher.free <- struct{}{}:
	default:
		answerAndClose(c.raw)
		return
	}
	if !s.track(c) {
		<-s.usher.free
		_ = c.raw.Close()
		return
	}
	go func() {
		defer func() { <-s.usher.free }()
		defer s.untrack(c)
		c.turnAway()
	}()
}

// turnAway answers after the first bytes of a request: some clients take an answer
// that comes before they asked for a fault.
func (c *conn) turnAway() {
	c.rewind()
	c.deadline(c.srv.usher.patience)
	n, err := c.net.Read(c.buf)
	if n == 0 && err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	c.w = n
	c.phase.Store(phaseLinger)
	isHead := bytes.HasPrefix(c.buf[:n], []byte("HEAD "))
	if _, err := c.Write(appendAnswer(nil, &relay.Answer{Error: errOverloaded()}, requestID(), isHead, false)); err == nil {
		c.closeOrderly()
	}
}

// answerAndClose does not wait: the first bytes on a connection always fit into its
// send buffer.
func answerAndClose(nc net.Conn) {
	_ = nc.SetWriteDeadline(time.Now().Add(turnWrite))
	_, _ = nc.Write(appendAnswer(nil, &relay.Answer{Error: errOverloaded()}, requestID(), false, false))
	_ = nc.Close()
}

func errOverloaded() *relay.Error {
	e := relay.Errorf(relay.CodeOverloaded, "the relay has as many connections as it can serve; send the request again in a moment, on a connection that is kept")
	e.RetryAfter = retryDefault
	return e
}
