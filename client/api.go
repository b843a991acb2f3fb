package client

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
	"strings"
	"time"

	"relay"
	"relay/record"
)

const (
	responseTimeout = 90 * time.Second
	maxAnswer       = 256 << 20 // bytes of an answer; it is held in memory
	// sshBase stands for a relay whose API is reached over SSH; nothing resolves its name.
	sshBase = "http://relay"
)

// API is the API /api/v1 of a relay: over HTTP with a token, or over an SSH connection,
// as the account of the key. Its methods are safe for concurrent use.
type API struct {
	endpoint Endpoint
	base     string
	token    string
	agent    string
	http     *http.Client
	link     *sshLink // the SSH connection that the API makes itself, or nil

	maxAnswer int64 // tests lower it

	// TokenHint is the hint for a refused token; "" means the default one.
	TokenHint string
}

// Endpoint is how a relay is reached.
type Endpoint struct {
	Name string // ssh or api
	Addr string // HOST:PORT or base URL
}

// NotEncrypted is the refusal to send a token, or to take a host key, over clear http.
func NotEncrypted(base string) error {
	return Errorf(ExitRefused, "%s is not encrypted: anybody in between could read the token and show another host key", base).
		WithHint("use its https address; without login and RELAY_TOKEN commands go over SSH with the key")
}

// NewAPI returns the API of the relay at a base URL. It refuses to use a token over clear
// http, except on this machine. Hosts that end in localhost are dialed on this machine,
// whatever the resolver says.
func NewAPI(base, token, version string) (*API, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, Errorf(ExitUsage, "%q is no base URL", base).WithHint("set RELAY_URL to the address of the dashboard, such as https://relay.example.com")
	}
	if u.User != nil { // it would be in every error message
		return nil, Errorf(ExitUsage, "the base URL %s holds a login", u.Redacted()).WithHint("write it without; RELAY_TOKEN holds the token")
	}
	if token != "" && !Private(base) {
		return nil, NotEncrypted(base)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = dialLocalhost
	transport.Proxy = proxyOf
	a := newAPI(strings.TrimSuffix(base, "/"), version, transport)
	a.token, a.endpoint = token, Endpoint{Name: "api", Addr: a.base}
	return a, nil
}

func newAPI(base, version string, transport *http.Transport) *API {
	transport.ResponseHeaderTimeout = responseTimeout
	transport.IdleConnTimeout = 30 * time.Second // below that of the relay
	return &API{base: base, agent: "relay/" + version, maxAnswer: maxAnswer, http: &http.Client{
		Transport: transport,
		// A redirect could send the token elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// BaseURL guesses the base URL of a relay of which only the host of its SSH address is
// known.
func BaseURL(serverHost string) string {
	if LoopbackName(serverHost) {
		return "http://127.0.0.1:8080"
	}
	if strings.Contains(serverHost, ":") {
		serverHost = "[" + serverHost + "]"
	}
	return "https://" + serverHost
}

// proxyOf returns the proxy that the environment names; requests to this machine use
// none.
func proxyOf(r *http.Request) (*url.URL, error) {
	if LoopbackName(r.URL.Hostname()) {
		return nil, nil
	}
	return http.ProxyFromEnvironment(r)
}

func dialLocalhost(ctx context.Context, network, addr string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: serverDialTimeout}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || !LoopbackName(host) || net.ParseIP(host) != nil {
		return dialer.DialContext(ctx, network, addr)
	}
	conn, err := dialer.DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		if six, err6 := dialer.DialContext(ctx, network, net.JoinHostPort("::1", port)); err6 == nil {
			return six, nil
		}
	}
	return conn, err
}

// Endpoint returns how the API is reached.
func (a *API) Endpoint() Endpoint { return a.endpoint }

// overSSH reports whether the API is reached over SSH.
func (a *API) overSSH() bool { return a.endpoint.Name == "ssh" }

// Close ends idle connections, and the SSH connection that the API has made.
func (a *API) Close() {
	a.http.CloseIdleConnections()
	if a.link != nil {
		_ = a.link.lose(nil)
	}
}

// request sends a request and returns a 2xx response, whose body the caller closes; any
// other response is an error. after is the value of Last-Event-ID, or "".
func (a *API) request(ctx context.Context, method, path string, body []byte, after string) (*http.Response, error) {
	if a.link != nil {
		if err := a.link.connect(ctx); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, a.base+"/api/v1"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	req.Header.Set("User-Agent", a.agent)
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
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
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, a.answerError(resp)
}

// unreachable returns the error of a request without an answer, or with half of one.
func (a *API) unreachable(cause error) error {
	var own *Error
	if errors.As(cause, &own) {
		return own
	}
	var wrapped *url.Error // has the URL before the error
	if errors.As(cause, &wrapped) {
		cause = wrapped.Err
	}
	if a.overSSH() {
		if a.link != nil {
			cause = a.link.lose(cause)
		}
		return lostConnection(cause)
	}
	return (&Error{Exit: ExitUnreachable, Text: "cannot reach the relay at " + a.base, Cause: cause}).
		WithHint("is that its dashboard's address, and does it run? RELAY_URL names another; without login and RELAY_TOKEN commands go over SSH")
}

func lostConnection(cause error) *Error {
	var own *Error
	if errors.As(cause, &own) {
		return own
	}
	return &Error{Exit: ExitUnreachable, Text: "lost the connection to the relay", Cause: cause}
}

// answerError turns a response that is not 2xx into an error.
func (a *API) answerError(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var p record.Problem
	if json.Unmarshal(text, &p) != nil || p.Code == "" {
		e := Errorf(ExitFailure, "%s answered %s, which is no answer of a relay", a.endpoint.Addr, resp.Status).
			WithHint("set RELAY_URL to the address of the dashboard")
		if to, err := resp.Location(); err == nil && resp.StatusCode/100 == 3 && to.Host != "" {
			e = e.WithHint("it points to %s://%s; is that the address of the dashboard?", to.Scheme, to.Host)
		}
		e.transient = resp.StatusCode >= http.StatusInternalServerError // such as a proxy in front of a stopped relay
		return e
	}
	e := Errorf(ExitFailure, "%s", p.Error())
	e.Code, e.transient = p.Code, !permanent(p.Code)
	for _, f := range p.Errors {
		e.Text += "; " + f.Location + ": " + f.Message
	}
	switch p.Code {
	case relay.CodeNotFound:
		e.Exit = ExitNotFound
	case relay.CodeValidationFailed:
		e.Exit = ExitUsage
	case relay.CodeUnauthorized:
		e.Exit = ExitRefused
		if !a.overSSH() {
			e.Hint = cmp.Or(a.TokenHint, "relay login URL stores a new token; without login and RELAY_TOKEN commands go over SSH with the key")
		}
	}
	return e
}

// permanent reports whether asking again cannot help.
func permanent(code string) bool {
	switch code {
	case relay.CodeStopping, relay.CodeStoreUnavailable, relay.CodeOverloaded, relay.CodeRateLimited, relay.CodeInternal:
		return false
	}
	return true
}

// Call sends a request and returns the answer. body is encoded as JSON unless it is nil.
// Errors are *Error or that of ctx.
func (a *API) Call(ctx context.Context, method, path string, body any) (json.RawMessage, error) {
	var sent []byte
	if body != nil {
		var err error
		if sent, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	resp, err := a.request(ctx, method, path, sent, "")
	if err != nil {
		return nil, err
	}
	return a.read(ctx, resp)
}

// read reads the body of an answer and closes it.
func (a *API) read(ctx context.Context, resp *http.Response) (json.RawMessage, error) {
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, a.maxAnswer+1))
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, a.unreachable(err)
	case int64(len(answer)) > a.maxAnswer:
		return nil, Errorf(ExitFailure, "the relay's answer is larger than %d MiB", a.maxAnswer>>20)
	}
	return answer, nil
}

// Get sends a GET request and decodes the answer.
func (a *API) Get(ctx context.Context, path string, into any) error {
	return a.decode(ctx, http.MethodGet, path, nil, into)
}

func (a *API) decode(ctx context.Context, method, path string, body, into any) error {
	answer, err := a.Call(ctx, method, path, body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return (&Error{Exit: ExitFailure, Text: a.endpoint.Addr + " gave an answer that cannot be read", Cause: err}).
			WithHint("set RELAY_URL to the address of the dashboard")
	}
	return nil
}
