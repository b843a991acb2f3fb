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
	"strconv"
	"strings"
	"time"

	"relay"
	"relay/record"
)

const (
	defaultEvents   = 20
	pageLimit       = 200 // of one list request
	responseTimeout = 90 * time.Second
)

// API runs commands over HTTP with a token.
type API struct {
	base  string
	token string
	agent string
	http  *http.Client

	// TokenHint is the hint for a refused token; "" means the default one.
	TokenHint string
}

// NotEncrypted is the refusal to send a token, or to take a host key, over clear http.
func NotEncrypted(base string) error {
	return Errorf(ExitRefused, "%s is not encrypted: anybody in between could read the token and show another host key", base).
		WithHint("use its https address; without login and RELAY_TOKEN commands go over SSH with the key")
}

// NewAPI returns a client for the relay at a base URL. It refuses to use a token over
// clear http, except on this machine. Hosts that end in localhost are dialed on this
// machine, whatever the resolver says.
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
	transport.ResponseHeaderTimeout = responseTimeout
	transport.DisableKeepAlives = true // one command, one or two requests
	return &API{
		base: strings.TrimSuffix(base, "/"), token: token, agent: "relay/" + version,
		http: &http.Client{
			Transport: transport,
			// A redirect could send the token elsewhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
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

// Endpoint returns the base URL.
func (a *API) Endpoint() Endpoint { return Endpoint{Name: "api", Addr: a.base} }

// Run sends the requests that make up the command.
func (a *API) Run(ctx context.Context, c Command, out io.Writer) error {
	err := a.run(ctx, c, out)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (a *API) run(ctx context.Context, c Command, out io.Writer) error {
	arg := url.PathEscape(c.Arg)
	switch c.Name {
	case "whoami":
		return a.copy(ctx, http.MethodGet, "/me", nil, out)
	case "aliases":
		return a.copy(ctx, http.MethodGet, "/aliases", nil, out)
	case "events":
		if c.Follow {
			return follow(ctx, a, c, out)
		}
		return a.events(ctx, c, out)
	case "show":
		return a.copy(ctx, http.MethodGet, "/events/"+arg, nil, out)
	case "replay":
		return a.replay(ctx, arg, out)
	case "replay-queued":
		return a.copy(ctx, http.MethodPost, "/aliases/"+arg+"/replay-queued", nil, out)
	case "share":
		return a.share(ctx, c, out)
	case "export":
		return a.export(ctx, c, out)
	case "wait":
		return a.wait(ctx, c, out)
	}
	return Errorf(ExitUsage, "there is no command %s over the API", c.Name)
}

// request sends a request and returns a 2xx response, whose body the caller closes; any
// other response is an error.
func (a *API) request(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	return a.requestAfter(ctx, method, path, body, "")
}

// requestAfter is request with Last-Event-ID; after is "" for none.
func (a *API) requestAfter(ctx context.Context, method, path string, body []byte, after string) (*http.Response, error) {
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
	if err != nil {
		return nil, (&Error{Exit: ExitUnreachable, Text: "cannot reach the relay at " + a.base, Cause: requestCause(err)}).
			WithHint("is that its dashboard's address, and does it run? RELAY_URL names another; without login and RELAY_TOKEN commands go over SSH")
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, a.answerError(resp)
}

// requestCause strips the URL that the HTTP client puts before an error.
func requestCause(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// answerError turns a response that is not 2xx into an error.
func (a *API) answerError(resp *http.Response) error {
	exit := ExitFailure
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		exit = ExitRefused
	case http.StatusNotFound:
		exit = ExitNotFound
	case http.StatusUnprocessableEntity:
		exit = ExitUsage
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var p record.Problem
	if json.Unmarshal(text, &p) == nil && p.Code != "" {
		e := problemError(exit, &p)
		e.forbidden = resp.StatusCode == http.StatusForbidden
		e.conflict = resp.StatusCode == http.StatusConflict
		if exit == ExitRefused {
			return e.WithHint("%s", cmp.Or(a.TokenHint, "relay login URL stores a new token; without login and RELAY_TOKEN commands go over SSH with the key"))
		}
		return e
	}
	e := Errorf(ExitFailure, "%s answered %s, which is no answer of a relay", a.base, resp.Status).
		WithHint("set RELAY_URL to the address of the dashboard")
	if to, err := resp.Location(); err == nil && resp.StatusCode/100 == 3 && to.Host != "" {
		e = e.WithHint("it points to %s://%s; is that the address of the dashboard?", to.Scheme, to.Host)
	}
	e.transient = resp.StatusCode >= http.StatusInternalServerError // such as a proxy in front of a stopped relay
	return e
}

func (a *API) copy(ctx context.Context, method, path string, body []byte, out io.Writer) error {
	resp, err := a.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := copyBounded(out, resp.Body); err != nil {
		return err
	}
	_, err = io.WriteString(out, "\n")
	return err
}

// replay fails when the attempt failed, as the command over SSH does.
func (a *API) replay(ctx context.Context, id string, out io.Writer) error {
	var answer bytes.Buffer
	if err := a.copy(ctx, http.MethodPost, "/events/"+id+"/replay", nil, &answer); err != nil {
		return err
	}
	var e record.Summary
	_ = json.Unmarshal(answer.Bytes(), &e) // the printer reports invalid JSON
	if _, err := out.Write(answer.Bytes()); err != nil {
		return err
	}
	if e.State == relay.StateFailed || e.State == relay.StateInterrupted {
		return &Error{Exit: ExitFailure}
	}
	return nil
}

// page is record.Page with its events unparsed, because a newer relay may send fields
// that this program does not know.
type page struct {
	Data           []json.RawMessage `json:"data"`
	NextCursor     *string           `json:"nextCursor"`
	SearchedBackTo json.RawMessage   `json:"searchedBackTo,omitempty"`
}

// list returns up to n events, newest first.
func (a *API) list(ctx context.Context, alias string, n int) (page, error) {
	var all page
	cursor := ""
	for {
		query := url.Values{"alias": {alias}, "limit": {strconv.Itoa(min(n-len(all.Data), pageLimit))}}
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		var part page
		if err := a.get(ctx, "/events?"+query.Encode(), &part); err != nil {
			return all, err
		}
		all.Data = append(all.Data, part.Data...)
		all.NextCursor, all.SearchedBackTo = part.NextCursor, part.SearchedBackTo
		if part.NextCursor == nil || len(all.Data) >= n {
			return all, nil
		}
		cursor = *part.NextCursor
	}
}

func (a *API) get(ctx context.Context, path string, into any) error {
	resp, err := a.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(into); err != nil {
		return (&Error{Exit: ExitFailure, Text: a.base + " gave an answer that cannot be read", Cause: err}).
			WithHint("set RELAY_URL to the address of the dashboard")
	}
	return nil
}

func (a *API) events(ctx context.Context, c Command, out io.Writer) error {
	n := c.N
	if n == 0 {
		n = defaultEvents
	}
	all, err := a.list(ctx, c.Arg, n)
	if err != nil {
		return err
	}
	if all.Data == nil {
		all.Data = []json.RawMessage{}
	}
	return json.NewEncoder(out).Encode(all)
}
