package client

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"

	"relay/cli"
)

// NotEncrypted returns the error for a base URL with clear http, over which no token is sent and no host key is
// accepted.
func NotEncrypted(base string) error {
	return cli.Errorf(cli.ExitRefused, "%s is not encrypted: anybody in between could read the token and show another host key", base).
		WithHint("use its https address; without login and RELAY_TOKEN commands go over SSH with the key")
}

// NewAPI returns the API of the relay at a base URL. It refuses to use a token over clear http, except on
// this machine. Hosts that end in localhost are dialed on this machine, without the resolver.
func NewAPI(base, token, version string) (*cli.API, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, cli.Errorf(cli.ExitUsage, "%q is not a base URL", base).WithHint("set RELAY_URL to the address of the dashboard, such as https://relay.example.com")
	}
	if u.User != nil { // every error message would contain the user and the password
		return nil, cli.Errorf(cli.ExitUsage, "the base URL %s contains a login", u.Redacted()).WithHint("write it without; RELAY_TOKEN holds the token")
	}
	if token != "" && !Private(base) {
		return nil, NotEncrypted(base)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = dialLocalhost
	transport.Proxy = proxyOf
	base = strings.TrimSuffix(base, "/")
	return cli.NewAPI(cli.Connection{Endpoint: cli.Endpoint{Name: "api", Addr: base}, Base: base, Token: token, Version: version, Transport: transport}), nil
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

// proxyOf returns the proxy of the environment variables, or none for a request to this machine.
func proxyOf(r *http.Request) (*url.URL, error) {
	if LoopbackName(r.URL.Hostname()) {
		return nil, nil
	}
	return http.ProxyFromEnvironment(r)
}

func dialLocalhost(ctx context.Context, network, addr string) (net.Conn, error) {
	dialer := serverDialer(addr)
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
