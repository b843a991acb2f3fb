package client

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"relay"
	"relay/cli"
	"relay/record"
)

const localDialTimeout = 10 * time.Second

// Target is the local server that an alias leads to.
type Target struct {
	// URL has scheme and authority, without a path. It is shown to users and announced to the relay.
	URL string
	// HostHeader is the value of --host-header; "" = the setting of the alias.
	HostHeader string

	addrs []string // the addresses, which are tried in this order
	tls   *tls.Config
}

// PortTarget returns the plain HTTP server on a port of this machine: 127.0.0.1 is
// dialed first, then ::1.
func PortTarget(port int) (Target, error) {
	if port < 1 || port > 65535 {
		return Target{}, cli.Errorf(cli.ExitUsage, "port %d is not between 1 and 65535", port)
	}
	p := strconv.Itoa(port)
	return Target{URL: "http://127.0.0.1:" + p, addrs: bothLoopbacks(p)}, nil
}

func bothLoopbacks(port string) []string {
	return []string{net.JoinHostPort("127.0.0.1", port), net.JoinHostPort("::1", port)}
}

// ParseTarget parses the address of a local server: http or https, host, port, and no
// path. The certificate of a loopback host is not verified, because development servers
// sign their own.
func ParseTarget(s string) (Target, error) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return Target{}, targetError(s, "is no http or https address")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return Target{}, targetError(s, "may hold scheme, host and port only: paths pass through unchanged")
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || u.Hostname() == "" {
		return Target{}, targetError(s, "has no usable host and port")
	}
	t := Target{URL: u.Scheme + "://" + u.Host, addrs: []string{net.JoinHostPort(u.Hostname(), port)}}
	if LoopbackName(u.Hostname()) && net.ParseIP(u.Hostname()) == nil {
		t.addrs = bothLoopbacks(port) // some resolvers return only one of the loopback addresses (RFC 6761, section 6.3)
	}
	if u.Scheme == "https" {
		t.tls = &tls.Config{
			ServerName:         u.Hostname(),
			NextProtos:         []string{"http/1.1"}, // callers use HTTP/1.1
			InsecureSkipVerify: LoopbackName(u.Hostname()),
		}
	}
	return t, nil
}

func targetError(s, what string) error {
	e := cli.Errorf(cli.ExitUsage, "target %q %s", s, what)
	port := strings.TrimPrefix(s, ":")
	if _, err := strconv.ParseUint(port, 10, 16); err == nil {
		return e.WithHint("did you mean http://127.0.0.1:%s", port)
	}
	if !strings.Contains(s, ":/") && s != "" && s[0] != '/' {
		return e.WithHint("did you mean http://%s", s)
	}
	return e.WithHint("write it like http://127.0.0.1:3000")
}

// WithHostHeader returns a copy of t with the value of --host-header: preserve, rewrite or a literal value.
func (t Target) WithHostHeader(v string) (Target, error) {
	if v != "" {
		if err := record.CheckHostHeader(v); err != nil {
			return t, cli.Errorf(cli.ExitUsage, "host header %q: %s", v, err)
		}
	}
	t.HostHeader = v
	return t, nil
}

// localConn is a connection to a local server.
type localConn interface {
	io.ReadWriteCloser
	SetDeadline(t time.Time) error
	// CloseWrite ends the direction to the local server.
	CloseWrite() error
}

// Dial connects to the local server, TLS handshake included. If no address answers, it returns the error of
// the first address.
func (t Target) Dial(ctx context.Context) (localConn, error) {
	var first error
	for _, addr := range t.addrs {
		conn, err := t.dial(ctx, addr)
		if err == nil {
			return conn, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

func (t Target) dial(ctx context.Context, addr string) (localConn, error) {
	if t.tls == nil {
		if conn := dialLoopback(addr); conn != nil {
			return conn, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, localDialTimeout)
	defer cancel()
	var d net.Dialer
	if ip, err := netip.ParseAddrPort(addr); err == nil && ip.Addr().IsLoopback() {
		d.KeepAlive = -1 // a peer on this machine cannot vanish unnoticed
	}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if t.tls == nil {
		return conn.(*net.TCPConn), nil
	}
	secure := tls.Client(conn, t.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secure, nil
}

// Reasons of RFC 4254 section 5.1 for a failed dial of the local server, as OpenSSH
// uses them.
const (
	reasonProhibited    = 1
	reasonConnectFailed = 2
	reasonShortage      = 4
)

// wsaRefused is WSAECONNREFUSED, the error of a refused connection on Windows, where syscall.ECONNREFUSED is
// a number that no system call returns. On other systems no error has this number.
const wsaRefused = syscall.Errno(10061)

// isRefused reports whether a dial failed because no server listens.
func isRefused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, wsaRefused)
}

// dialFailed returns the report to the relay about a failed dial of the local server.
func dialFailed(err error) relay.DialFailed {
	f := relay.DialFailed{Reason: reasonConnectFailed, Class: "other", Text: err.Error()}
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case isRefused(err):
		f.Class = "refused"
	case errors.As(err, &dns):
		f.Reason, f.Class = reasonProhibited, "unresolvable"
	case errors.As(err, &timeout) && timeout.Timeout():
		f.Class = "timeout"
	}
	if len(f.Text) > 256 {
		f.Text = strings.ToValidUTF8(f.Text[:256], "")
	}
	return f
}
