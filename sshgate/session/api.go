package session

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"relay/cli"
	"relay/link"
)

// apiSubsystem is the subsystem whose channel carries HTTP/1.1 with the API /api/v1.
const apiSubsystem = "relay-api"

// Sizes of the buffers of an API channel, in bytes. They are small because each relay up has such a channel
// for its live stream while its tunnel is up.
const apiInput, apiOutput = 4 << 10, 8 << 10

// serveAPI serves the API on the channel of the session until the peer closes the channel or the session has
// to end. net/http gets one end of a pipe, and two goroutines copy between the other end and the channel.
// net/http cannot use the channel directly, because readInput has read the first bytes, and copyToAPI must
// not pass on EOF.
func (s *session) serveAPI() int {
	theirs, srv, served := s.startAPI()
	written := make(chan struct{})
	s.consumer <- func(in *bufio.Reader) { s.copyToAPI(theirs, srv, in) }
	s.Go("api output", func() {
		defer close(written)
		s.copyFromAPI(theirs)
	})
	<-served
	select {
	case <-written:
		return s.Exit(cli.ExitOK)
	case <-s.ctx.Done():
		return s.Exit(cli.ExitFailure)
	}
}

// startAPI serves the API on one end of a pipe, in goroutines, until either end is closed or the session ends. It
// returns the other end of the pipe. The channel served is closed when the last handler has returned.
func (s *session) startAPI() (theirs net.Conn, srv *http.Server, served <-chan struct{}) {
	ours, theirs := net.Pipe()
	srv = s.of.API(s.who)
	api := srv.Handler
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = s.of.Remote.String() // the log shows this address
		if r.ContentLength != 0 && r.Body != nil {
			body := &timedBody{ReadCloser: r.Body, control: http.NewResponseController(w)}
			_ = body.control.SetReadDeadline(time.Now().Add(s.of.StallTimeout))
			r.Body = body
		}
		api.ServeHTTP(w, r)
	})
	srv.BaseContext = func(net.Listener) context.Context { return s.ctx }
	ended := make(chan struct{})
	srv.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed { // net/http reports this state once, after the handler has returned
			close(ended)
		}
	}
	s.Go("api", func() {
		s.ordered()                           // waits until the forwards that were requested before the session have been handled
		_ = srv.Serve(&oneConnListener{ours}) // returns at once; the connection is served in a goroutine
		stop := context.AfterFunc(s.ctx, func() { _ = srv.Close() })
		defer stop()
		<-ended
	})
	return theirs, srv, ended
}

// OpenAPI implements shell.Session. The HTTP transport of a command may dial in its own goroutine after the
// session has ended. In that case OpenAPI returns an error.
func (s *session) OpenAPI() (net.Conn, error) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if s.done {
		return nil, net.ErrClosed
	}
	theirs, _, _ := s.startAPI()
	return theirs, nil
}

// copyToAPI copies bytes from the peer to the HTTP server. It does not pass on EOF, because net/http would
// treat that as the departure of the client and cancel the request. Instead, the connection ends after the
// current request is answered.
func (s *session) copyToAPI(to net.Conn, srv *http.Server, in *bufio.Reader) {
	buf := make([]byte, apiInput)
	for {
		n, err := in.Read(buf)
		if n > 0 && !s.writeToAPI(to, buf[:n]) {
			_, _ = io.Copy(io.Discard, in) // so that the peer does not block on a full window before it reads the end
			return
		}
		if err != nil {
			srv.SetKeepAlivesEnabled(false)
			return
		}
	}
}

// writeToAPI writes p to the HTTP server. While the server does not read, for example during a call that
// waits, x/crypto accepts up to a window of bytes from the peer. These bytes are reserved in the budget, as
// on paused channels of tunnels. writeToAPI returns false if the connection has ended, or has to end because
// the budget has no space.
func (s *session) writeToAPI(to net.Conn, p []byte) bool {
	_ = to.SetWriteDeadline(time.Now().Add(link.PauseAfter))
	n, err := to.Write(p)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err == nil
	}
	budget, account := s.of.Budget, s.who.Account
	if !budget.Reserve(account, link.PausedBytes) {
		s.of.Conn.Log().Warn("api channel closed: no buffer space for waiting requests")
		s.Stop(cli.ExitFailure)
		return false
	}
	defer budget.Release(account, link.PausedBytes)
	_ = to.SetWriteDeadline(time.Time{})
	_, err = to.Write(p[n:])
	return err == nil
}

// copyFromAPI copies the responses of the HTTP server to the peer. If the peer reads nothing for StallTimeout,
// copyFromAPI ends the channel.
func (s *session) copyFromAPI(from net.Conn) {
	defer from.Close()
	_, _ = io.CopyBuffer(commandOutput{s, s.ch}, from, make([]byte, apiOutput))
}

// timedBody is a request body that removes the read deadline of the connection at its end. net/http itself would
// keep the deadline, which would then end an API call that waits for longer.
type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
}

// Read removes the deadline once the body has ended.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// oneConnListener is a listener that accepts one connection and then ends.
type oneConnListener struct{ conn net.Conn }

// Accept returns the connection once.
func (l *oneConnListener) Accept() (net.Conn, error) {
	conn := l.conn
	if l.conn = nil; conn == nil {
		return nil, io.EOF
	}
	return conn, nil
}

// Close implements net.Listener.
func (l *oneConnListener) Close() error { return nil }

// Addr implements net.Listener; its value is not used.
func (l *oneConnListener) Addr() net.Addr { return &net.TCPAddr{} }
