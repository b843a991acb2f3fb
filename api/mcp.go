package api

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	"relay"
	"relay/budget"
	"relay/cli"
	"relay/mcp"
	"relay/record"
)

// MCPPath is the path on the base host at which agents reach the tools of package mcp.
const MCPPath = "/mcp"

// mcpRoute is the route of MCPPath in the log and the metrics; it is not a route of the API.
var mcpRoute = &route{method: http.MethodPost, path: MCPPath, id: "mcp"}

// serveMCP answers one message of an agent by calling the API in this process. A bearer token
// identifies the actor. Cookies are ignored, because a page of another site could send them.
func (s *server) serveMCP(w http.ResponseWriter, r *http.Request, c *requestInfo) {
	c.route, c.waited = mcpRoute, true
	if err := s.mcpRefusal(r, c); err != nil {
		if relay.AsError(err).Code == relay.CodeUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		s.writeError(w, c, err)
		return
	}
	if err := refuseBatch(r); err != nil {
		s.writeError(w, c, err)
		return
	}
	c.answer.Account = c.who.BufferAccount()
	answers := &budget.Hold{Budget: s.Budget, Account: c.answer.Account}
	read := &budget.Hold{Budget: s.Budget, Account: c.answer.Account}
	defer answers.Release()
	defer read.Release()
	calls := cli.NewLocalAPI(s.Version, &localCalls{api: s, who: c.who, remote: r.RemoteAddr, answers: answers})
	calls.Hold = read.Set
	s.serveAgent(w, r, c, mcp.Options{
		API: calls, Me: record.OfActor(c.who), Client: record.SafeTextMax(r.UserAgent(), maxVia),
	})
}

// serveAgent answers a message by the tools. If the tool waits for an event, serveAgent calls the tool again
// after the wait.
func (s *server) serveAgent(w http.ResponseWriter, r *http.Request, c *requestInfo, o mcp.Options) {
	l := &later{}
	ctx := context.WithValue(r.Context(), laterKey{}, l)
	first := r.WithContext(ctx)
	first.Body = io.NopCloser(io.TeeReader(r.Body, l))
	s.agents.Serve(firstAnswer{w, l}, first, o)
	if l.run(c.answer.WithReads(r.Context())) {
		again := r.WithContext(ctx)
		again.Body = io.NopCloser(&l.message)
		s.agents.Serve(w, again, o)
	}
}

// maxSpaces bounds the white space before a message, in bytes.
const maxSpaces = 1024

// refuseBatch refuses a body with several messages: the library would run them all at once and hold all
// answers in memory.
func refuseBatch(r *http.Request) error {
	body := bufio.NewReaderSize(r.Body, 16) // a small buffer, because the library has its own
	r.Body = struct {
		io.Reader
		io.Closer
	}{body, r.Body}
	for range maxSpaces {
		switch next, err := body.Peek(1); {
		case err != nil: // the library reports the error
			return nil
		case next[0] == '[':
			return relay.Errorf(relay.CodeBadRequest, "send one message at a time")
		case next[0] != ' ' && next[0] != '\n' && next[0] != '\r' && next[0] != '\t':
			return nil
		}
		_, _ = body.Discard(1)
	}
	return relay.Errorf(relay.CodeBadRequest, "the body has no message")
}

// mcpRefusal checks method and origin and identifies the user of the agent, before package mcp reads the message.
func (s *server) mcpRefusal(r *http.Request, c *requestInfo) error {
	switch {
	case r.Method != http.MethodPost:
		c.header.Set("Allow", http.MethodPost)
		return relay.Errorf(relay.CodeMethodNotAllowed, "this path takes POST")
	case s.origin.Check(r) != nil:
		return relay.Errorf(relay.CodeForbidden, "a page of another origin may not call this")
	case len(r.Header["Authorization"]) == 0:
		return relay.Errorf(relay.CodeUnauthorized, "send an API token as Authorization: Bearer rly_…")
	}
	return s.authenticate(r, c)
}

// localCalls is the transport of the tools of one agent. It passes their requests to the API in this process,
// as requests of the agent's actor.
type localCalls struct {
	api     http.Handler
	who     relay.Actor
	remote  string
	answers *budget.Hold // reserves the memory of answers that are being built
}

// maxLocalAnswer bounds an answer of localCalls, in bytes.
const maxLocalAnswer = 64 << 20

// RoundTrip implements http.RoundTripper. It returns when the answer is complete.
func (l *localCalls) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	r = r.WithContext(WithActor(r.Context(), l.who))
	r.RemoteAddr = l.remote
	w := &localAnswer{header: http.Header{}, status: http.StatusOK, hold: l.answers}
	defer func() {
		if broken := recover(); broken != nil {
			resp, err = nil, fmt.Errorf("the answer broke off")
		}
		if w.err != nil {
			resp, err = nil, w.err
		}
	}()
	l.api.ServeHTTP(w, r)
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Header: w.header, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()),
		ProtoMajor: 1, ProtoMinor: 1, Request: r,
	}, nil
}

// localAnswer is an answer of the API that is built in memory.
type localAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
	hold   *budget.Hold
	err    error
}

// Header implements http.ResponseWriter.
func (w *localAnswer) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *localAnswer) WriteHeader(status int) { w.status = status }

// Write implements http.ResponseWriter. It fails when the answer would exceed maxLocalAnswer or the
// budget.
func (w *localAnswer) Write(p []byte) (int, error) {
	size := int64(w.body.Len() + len(p))
	if w.err == nil && size > maxLocalAnswer {
		w.err = relay.Overloaded("the answer is too large")
	}
	if w.err == nil && w.hold != nil && w.hold.Budget != nil {
		w.err = w.hold.Set(2 * size) // a buffer that grows may allocate twice the bytes that it holds
	}
	if w.err != nil {
		return 0, w.err
	}
	return w.body.Write(p)
}
