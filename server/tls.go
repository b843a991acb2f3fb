package server

import (
	"context"
	"crypto/tls"
	"errors"
	"slices"
	"time"

	"relay"
)

// acmeProto is the protocol of certificate challenges (RFC 8737).
const acmeProto = "acme-tls/1"

// ALPN protocols by host. http/1.0 is what `curl -0` offers, and nothing else: without
// it the handshake would fail with no_application_protocol.
var (
	aliasProtos = []string{"http/1.1", "http/1.0"}
	baseProtos  = []string{"h2", "http/1.1", "http/1.0"}
)

// byServerName returns a configuration that offers ALPN protocols by server name.
func (s *Server) byServerName(cfg *tls.Config) *tls.Config {
	forBase, forAlias := withProtos(cfg, baseProtos), withProtos(cfg, aliasProtos)
	byName := cfg.Clone()
	byName.NextProtos = forAlias.NextProtos
	byName.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		protos, shared := aliasProtos, forAlias
		if s.routeName(hello.ServerName).kind == hostBase {
			protos, shared = baseProtos, forBase
		}
		if cfg.GetConfigForClient != nil {
			own, err := cfg.GetConfigForClient(hello)
			if err != nil {
				return nil, err
			}
			if own != nil {
				return withProtos(own, protos), nil
			}
		}
		return shared, nil
	}
	return byName
}

// withProtos returns cfg with exactly these ALPN protocols, and acme-tls/1 if cfg has
// it.
func withProtos(cfg *tls.Config, protos []string) *tls.Config {
	c := cfg.Clone()
	c.GetConfigForClient = nil
	c.NextProtos = slices.Clone(protos)
	if slices.Contains(cfg.NextProtos, acmeProto) {
		c.NextProtos = append(c.NextProtos, acmeProto)
	}
	return c
}

// routeName routes the server name of a TLS connection. No name is hostUnknown.
func (s *Server) routeName(name string) route {
	return s.hosts.findName(plainName(name))
}

// handshake does the TLS handshake; false when there is nothing to serve.
func (c *conn) handshake(cfg *tls.Config) bool {
	ctx, cancel := c.srv.ctx, context.CancelFunc(func() {})
	if d := c.srv.opt.HeadTimeout; d > 0 {
		ctx, cancel = context.WithTimeout(ctx, d)
	}
	defer cancel()
	t := tls.Server(c.sock, cfg)
	err := t.HandshakeContext(ctx)
	var plain tls.RecordHeaderError
	if errors.As(err, &plain) && plain.Conn != nil && looksLikeHTTP(plain.RecordHeader) {
		c.rewind()
		c.refuse(relay.Errorf(relay.CodeRequestMalformed, "this port speaks TLS; use https"),
			string(plain.RecordHeader[:]) == "HEAD ")
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

// looksLikeHTTP tells whether the first bytes of a connection begin a plain HTTP
// request line instead of a TLS record.
func looksLikeHTTP(b [5]byte) bool {
	switch string(b[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO":
		return true
	}
	return false
}
