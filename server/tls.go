package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"relay"
	"relay/waits"
	"relay/wire"
)

// acmeProto is the ALPN protocol by which a CA checks a TLS-ALPN-01 challenge (RFC 8737).
const acmeProto = "acme-tls/1"

// byServerName returns a configuration that offers ALPN protocols by server name, and
// acme-tls/1 if cfg has it.
func (s *Server) byServerName(cfg *tls.Config) *tls.Config {
	withProtos := func(protos ...string) *tls.Config {
		c := cfg.Clone()
		if slices.Contains(cfg.NextProtos, acmeProto) {
			protos = append(protos, acmeProto)
		}
		c.NextProtos = protos
		return c
	}
	// `curl -0` offers only http/1.0: without it in the list, the handshake fails with
	// no_application_protocol.
	forAlias, forBase := withProtos("http/1.1", "http/1.0"), withProtos("h2", "http/1.1", "http/1.0")
	byName := forAlias.Clone()
	byName.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if s.routeName(hello.ServerName).kind == hostBase {
			return forBase, nil
		}
		return forAlias, nil
	}
	return byName
}

// routeName routes the server name of a TLS connection. Without a name the route is hostUnknown.
func (s *Server) routeName(name string) route {
	return s.hosts.findName(plainName(name))
}

// handshake makes the TLS handshake. It returns false if no request can follow: the handshake failed, or a CA
// made it to check a challenge.
func (c *conn) handshake() bool {
	ctx, cancel := c.srv.ctx, context.CancelFunc(func() {})
	if d := c.srv.opt.HeadTimeout; d > 0 {
		ctx, cancel = waits.WithTimeout(ctx, d)
	}
	defer cancel()
	t := tls.Server(c.sock, c.tls)
	err := t.HandshakeContext(ctx)
	if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok && plain.Conn != nil && slices.Contains(httpStarts, string(plain.RecordHeader[:])) {
		c.rewind()
		why := relay.Errorf(relay.CodeRequestMalformed, "this port speaks TLS; use https")
		status := c.refuse(why, string(plain.RecordHeader[:]) == "HEAD ", "")
		c.access(route{}, nil, Access{Status: status, Code: why.Code})
		c.closeOrderly()
	}
	if err != nil {
		c.srv.log.Debug("tls handshake failed", "from", c.from, "err", err)
		return false
	}
	state := t.ConnectionState()
	if state.NegotiatedProtocol == acmeProto {
		_ = t.SetWriteDeadline(time.Now().Add(time.Second))
		_ = t.Close()
		return false
	}
	c.net, c.secure = t, true
	c.sni = c.srv.routeName(state.ServerName)
	return true
}

// httpStarts are the first five bytes of plain HTTP requests, as many as a TLS record header has. They show
// that a caller sends plain HTTP to the TLS port.
var httpStarts = []string{"GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO"}

// challengePath is the path prefix of HTTP-01 challenges (RFC 8555, section 8.3).
const challengePath = "/.well-known/acme-challenge/"

// challengeAnswer returns the answer to a pending HTTP-01 challenge. ok is false for any other
// request.
func (s *Server) challengeAnswer(secure bool, method, host, path string) (answer string, ok bool) {
	if s.opt.Challenge == nil || secure || method != http.MethodGet || !strings.HasPrefix(path, challengePath) {
		return "", false
	}
	if host, ok = splitHost(host); !ok {
		return "", false
	}
	return s.opt.Challenge(host, path)
}

// challenge answers a request for a pending HTTP-01 challenge, before the request is routed. It leaves
// other requests alone. status is the status that the caller got, 0 = none.
func (c *conn) challenge(h *wire.Head) (status int, answered bool) {
	if !bytes.HasPrefix(h.Target, []byte(challengePath)) {
		return 0, false
	}
	answer, ok := c.srv.challengeAnswer(c.secure, string(h.Method), string(h.Host), string(h.Target))
	if ok {
		c.phase.Store(phaseLinger)
		_, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(answer), answer)
		if c.linger = err == nil; c.linger {
			status = http.StatusOK
		}
	}
	return status, ok
}
