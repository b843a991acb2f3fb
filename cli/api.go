package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"relay"
	"relay/record"
)

const (
	responseTimeout = 90 * time.Second
	maxAnswer       = 256 << 20 // largest answer in bytes; an answer is held in memory
	// sshBase is the base URL of a relay whose API is reached over SSH; its host is never resolved.
	sshBase = "http://relay"
	// apiChannels is the maximum number of API channels of a connection. It is below four, the number of
	// sessions that the relay accepts on one connection.
	apiChannels = 3
)

// API is the API /api/v1 of a relay: over HTTP with a token, or over an SSH connection,
// as the account of the key. Its methods are safe for concurrent use.
type API struct {
	Connection
	http      *http.Client
	maxAnswer int64 // tests set a lower limit

	// Hold reserves memory for answers, n bytes in total. Close calls Hold with 0. nil = only maxAnswer
	// bounds the memory.
	Hold func(n int64) error
	held int64

	ahead atomic.Int64 // how far the relay's clock is ahead of this machine's clock, in nanoseconds; see Now

	// TokenHint is the hint for a refused token; "" means the default one.
	TokenHint string
}

// viaKey is the context key of WithVia.
type viaKey struct{}

// WithVia returns a context for API requests that an MCP server makes for an agent. The argument via names both
// programs; the relay stores it together with the account that acts.
func WithVia(ctx context.Context, via string) context.Context {
	return context.WithValue(ctx, viaKey{}, via)
}

// Endpoint names the way to a relay for messages to the user.
type Endpoint struct {
	Name string // ssh or api
	Addr string // HOST:PORT or base URL
}

// Connection describes the way in which an API reaches its server.
type Connection struct {
	Endpoint  Endpoint
	Base      string // URL before /api/v1
	Token     string // "" = the connection itself identifies the account
	Version   string // version of the program that makes the requests
	Transport *http.Transport
	Link      Link // nil = requests need no connection made beforehand
}

// Link is a connection to the relay that an API opens when it needs one.
type Link interface {
	// Connect makes the connection unless it exists.
	Connect(ctx context.Context) error
	// Lose ends the connection after a request on it has failed, so that the next request makes a new one. It
	// returns the reason why the connection was lost, or cause if the reason is unknown.
	Lose(cause error) error
}

// NewAPI returns an API that sends its requests through c.Transport.
func NewAPI(c Connection) *API {
	c.Transport.ResponseHeaderTimeout = responseTimeout
	c.Transport.IdleConnTimeout = 30 * time.Second // shorter than the relay's idle timeout, so that no request uses a connection that the relay is closing
	return &API{Connection: c, maxAnswer: maxAnswer, http: &http.Client{
		Transport: c.Transport,
		// A redirect could send the token to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// NewSSHAPI returns the API that a relay serves over SSH channels. open makes a channel; at most apiChannels
// are open at a time. version, addr and link are fields of Connection; link may be nil.
func NewSSHAPI(version, addr string, open func() (net.Conn, error), link Link) *API {
	return NewAPI(Connection{
		Endpoint: Endpoint{Name: "ssh", Addr: addr}, Base: sshBase, Version: version, Link: link,
		Transport: &http.Transport{
			DialContext:     func(context.Context, string, string) (net.Conn, error) { return open() },
			MaxConnsPerHost: apiChannels, MaxIdleConnsPerHost: apiChannels,
		},
	})
}

// NewLocalAPI returns an API within this process: calls answers its requests.
func NewLocalAPI(version string, calls http.RoundTripper) *API {
	return &API{
		Connection: Connection{Endpoint: Endpoint{Name: "api", Addr: "this relay"}, Base: sshBase, Version: version},
		maxAnswer:  maxAnswer, http: &http.Client{Transport: calls},
	}
}

// OverSSH reports whether the API is reached over SSH.
func (a *API) OverSSH() bool { return a.Endpoint.Name == "ssh" }

// Close ends idle connections and the SSH connection of the API.
func (a *API) Close() {
	a.http.CloseIdleConnections()
	if a.Link != nil {
		_ = a.Link.Lose(nil)
	}
	if a.Hold != nil {
		_ = a.Hold(0)
	}
}

// Request sends a request and returns a 2xx response. The caller closes its body. Any other response is an
// error. after is the value of Last-Event-ID, or "".
func (a *API) Request(ctx context.Context, method, path string, body []byte, after string) (*http.Response, error) {
	return a.request(ctx, method, path, body, "application/json", after)
}

func (a *API) request(ctx context.Context, method, path string, body []byte, media, after string) (*http.Response, error) {
	if a.Link != nil {
		if err := a.Link.Connect(ctx); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, a.Base+"/api/v1"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if a.Token != "" {
		req.Header.Set("Authorization", "Bearer "+a.Token)
	}
	req.Header.Set("User-Agent", "relay/"+a.Version)
	if via, _ := ctx.Value(viaKey{}).(string); via != "" {
		req.Header.Set(record.ViaHeader, via)
	}
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	if body != nil {
		req.Header.Set("Content-Type", media)
	}
	resp, err := a.http.Do(req)
	switch {
	case ctx.Err() != nil:
		if err == nil {
			resp.Body.Close()
		}
		return nil, ctx.Err()
	case err != nil:
		return nil, a.unreachable(err)
	case resp.StatusCode/100 == 2:
		a.noteClock(resp)
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, a.answerError(resp)
}

// noteClock stores how far the relay's clock is ahead of this machine's clock. It ignores up to 5 s: the Date
// header has whole seconds, and the response took time to arrive.
func (a *API) noteClock(resp *http.Response) {
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return
	}
	if ahead := time.Until(date); ahead.Abs() > 5*time.Second {
		a.ahead.Store(int64(ahead))
	} else {
		a.ahead.Store(0)
	}
}

// Now returns the time on the relay's clock, to within 5 s, according to its last response.
func (a *API) Now() time.Time { return time.Now().Add(time.Duration(a.ahead.Load())) }

// unreachable returns the error of a request that got no complete answer.
func (a *API) unreachable(cause error) error {
	if own, ok := errors.AsType[*Error](cause); ok {
		return own
	}
	if wrapped, ok := errors.AsType[*url.Error](cause); ok { // its text would have the URL before the error
		cause = wrapped.Err
	}
	if a.OverSSH() {
		if a.Link != nil {
			cause = a.Link.Lose(cause)
		}
		return LostConnection(cause)
	}
	return (&Error{Exit: ExitUnreachable, Text: "cannot reach the relay at " + a.Base, Cause: cause}).
		WithHint("is that its dashboard's address, and does it run? RELAY_URL names another; without login and RELAY_TOKEN commands go over SSH")
}

// LostConnection returns the error for a connection that ended. If cause is such an error already, it returns
// cause.
func LostConnection(cause error) *Error {
	if own, ok := errors.AsType[*Error](cause); ok {
		return own
	}
	return &Error{Exit: ExitUnreachable, Text: "lost the connection to the relay", Cause: cause}
}

// answerError turns a response that is not 2xx into an error.
func (a *API) answerError(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var p record.Problem
	if json.Unmarshal(text, &p) != nil || p.Code == "" {
		e := Errorf(ExitFailure, "%s answered %s, which is not an answer of a relay", a.Endpoint.Addr, resp.Status).
			WithHint("set RELAY_URL to the address of the dashboard")
		if to, err := resp.Location(); err == nil && resp.StatusCode/100 == 3 && to.Host != "" {
			e = e.WithHint("it points to %s://%s; is that the address of the dashboard?", to.Scheme, to.Host)
		}
		e.Transient = resp.StatusCode >= http.StatusInternalServerError // for example, a proxy answers in place of a stopped relay
		return e
	}
	e := Errorf(ExitFailure, "%s", p.Error())
	e.Code, e.Transient = p.Code, !Permanent(p.Code)
	for _, f := range p.Errors {
		if !strings.Contains(e.Text, f.Message) { // the detail of a problem with one error has that error already
			e.Text += "; " + f.Location + ": " + f.Message
		}
	}
	switch p.Code {
	case relay.CodeNotFound:
		e.Exit = ExitNotFound
	case relay.CodeValidationFailed:
		e.Exit = ExitUsage
	case relay.CodeUnauthorized:
		e.Exit = ExitRefused
		if !a.OverSSH() {
			e.Hint = cmp.Or(a.TokenHint, "relay login URL stores a new token; without login and RELAY_TOKEN commands go over SSH with the key")
		}
	}
	return e
}

// Permanent reports whether a repeated request would fail with the same code.
func Permanent(code string) bool {
	switch code {
	case relay.CodeStopping, relay.CodeStoreUnavailable, relay.CodeOverloaded, relay.CodeRateLimited, relay.CodeInternal:
		return false
	}
	return true
}

// Call sends a request and returns the answer. body is encoded as JSON unless it is nil. An error is an
// *Error or the error of ctx.
func (a *API) Call(ctx context.Context, method, path string, body any) (json.RawMessage, error) {
	var sent []byte
	if body != nil {
		var err error
		if sent, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	resp, err := a.Request(ctx, method, path, sent, "")
	if err != nil {
		return nil, err
	}
	if method == http.MethodGet {
		return a.read(ctx, resp)
	}
	return a.readDone(ctx, resp)
}

// readDone is like read, for the answer to a request that may have changed data.
func (a *API) readDone(ctx context.Context, resp *http.Response) (json.RawMessage, error) {
	answer, err := a.read(ctx, resp)
	if err != nil && ctx.Err() == nil {
		// The error code must not be one after which programs retry, because a retry would repeat the action.
		err = (&Error{Exit: ExitFailure, Code: relay.CodeInternal, Text: "the relay did what was asked, but its answer could not be read", Cause: err}).
			WithHint("look at the event or alias before you ask again")
	}
	return answer, err
}

// read reads the body of an answer and closes it.
func (a *API) read(ctx context.Context, resp *http.Response) (json.RawMessage, error) {
	defer resp.Body.Close()
	answer, err := a.readAll(io.LimitReader(resp.Body, a.maxAnswer+1))
	switch {
	case relay.AsError(err) != nil && relay.AsError(err).Code == relay.CodeOverloaded:
		return nil, &Error{Exit: ExitFailure, Text: relay.AsError(err).Detail, Code: relay.CodeOverloaded, Transient: true}
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, a.unreachable(err)
	case int64(len(answer)) > a.maxAnswer:
		return nil, Errorf(ExitFailure, "the relay's answer is larger than %d MiB", a.maxAnswer>>20)
	}
	return answer, nil
}

// answerCopies is the number of copies of an answer in memory while it is decoded and printed.
const answerCopies = 2

// readAll is io.ReadAll that reserves memory for the bytes it reads.
func (a *API) readAll(r io.Reader) ([]byte, error) {
	if a.Hold == nil {
		return io.ReadAll(r)
	}
	const least = 64 << 10
	answer := make([]byte, 0, 4<<10)
	for {
		if len(answer) == cap(answer) {
			grown := max(least, 2*cap(answer))
			if err := a.Hold(a.held + answerCopies*int64(grown)); err != nil {
				return nil, err
			}
			answer = slices.Grow(answer, grown-len(answer))
		}
		n, err := r.Read(answer[len(answer):cap(answer)])
		if answer = answer[:len(answer)+n]; err != nil {
			if cap(answer) > 4<<10 {
				a.held += answerCopies * int64(cap(answer))
			}
			if err == io.EOF {
				err = nil
			}
			return answer, err
		}
	}
}

// forget reduces the memory that is reserved for answers to the number of bytes in held. The answers that had
// the rest of the memory must no longer be used.
func (a *API) forget(held int64) {
	if a.Hold != nil {
		a.held = held
		_ = a.Hold(held)
	}
}

// Get sends a GET request and decodes the answer.
func (a *API) Get(ctx context.Context, path string, into any) error {
	return a.Decode(ctx, http.MethodGet, path, nil, into)
}

// Decode sends a request like Call and decodes the answer.
func (a *API) Decode(ctx context.Context, method, path string, body, into any) error {
	answer, err := a.Call(ctx, method, path, body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return (&Error{Exit: ExitFailure, Text: a.Endpoint.Addr + " gave an answer that cannot be read", Cause: err}).
			WithHint("set RELAY_URL to the address of the dashboard")
	}
	return nil
}
