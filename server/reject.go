package server

import (
	"bytes"
	"errors"
	"net"
	"os"
	"time"

	"relay"
)

const (
	maxRejectors       = 64                    // connections that are answered by answerOverloaded at once
	rejectReadTimeout  = time.Second           // for the first bytes of the request
	rejectWriteTimeout = 50 * time.Millisecond // for the answer of answerAtOnce
)

// rejector answers connections that get no slot.
type rejector struct {
	slots       chan struct{} // one element for each answerOverloaded that runs
	readTimeout time.Duration // rejectReadTimeout, longer in tests
	log         logLimiter
}

func newRejector() *rejector {
	return &rejector{slots: make(chan struct{}, maxRejectors), readTimeout: rejectReadTimeout, log: logLimiter{limit: 1, interval: logInterval}}
}

// rejectConn ends a connection that gets no slot with 503 overloaded, or, where that
// would need a TLS handshake first, by closing it. Up to maxRejectors connections get
// the answer in a way that no reset can destroy. The others get it at once, which
// costs no goroutine, but some callers see a reset instead.
func (s *Server) rejectConn(c *conn, bound string, secure bool) {
	s.met.refused[bound].Inc()
	if suppressed, ok := s.rejector.log.allow(time.Now()); ok {
		s.log.Warn("connection refused: the bound of connections is reached and none is idle",
			"bound", bound, "from", c.from, "suppressed", suppressed)
	}
	if secure {
		_ = c.sock.Close()
		return
	}
	select {
	case s.rejector.slots <- struct{}{}:
	default:
		answerAtOnce(c.sock)
		return
	}
	if !s.track(c) {
		<-s.rejector.slots
		_ = c.sock.Close()
		return
	}
	go func() {
		defer func() { <-s.rejector.slots }()
		defer s.untrack(c)
		defer c.recoverPanic()
		c.answerOverloaded()
	}()
}

// answerOverloaded answers after the first bytes of the request, because some clients
// take an earlier answer for an error.
func (c *conn) answerOverloaded() {
	c.rewind()
	c.deadline(c.srv.rejector.readTimeout)
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

// answerAtOnce answers without waiting: the first bytes on a connection fit into its
// send buffer.
func answerAtOnce(nc net.Conn) {
	_ = nc.SetWriteDeadline(time.Now().Add(rejectWriteTimeout))
	_, _ = nc.Write(appendAnswer(nil, &relay.Answer{Error: errOverloaded()}, requestID(), false, false))
	_ = nc.Close()
}

func errOverloaded() *relay.Error {
	e := relay.Errorf(relay.CodeOverloaded, "the relay has as many connections as it can serve; send the request again in a moment, on a connection that is kept")
	e.RetryAfter = retryDefault
	return e
}
