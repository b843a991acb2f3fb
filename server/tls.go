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

// byServerName gives a configuration that offers protocols by server name.
func (s *Server) byServerName(cfg *tls.Config) *tls.Config {
	front := cfg.Clone()
	base, other := offer(cfg, "h2", "http/1.1"), offer(cfg, "http/1.1")
	front.NextProtos = other.NextProtos
	front.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		isBase := s.routeName(hello.ServerName).place == toBase
		if cfg.GetConfigForClient != nil {
			own, err := cfg.GetConfigForClient(hello)
			if err != nil || own != nil {
				if own != nil && isBase {
					own = offer(own, "h2", "http/1.1")
				} else if own != nil {
					own = offer(own, "http/1.1")
				}
				return own, err
			}
		}
		if isBase {
			return base, nil
		}
		return other, nil
	}
	return front
}

// offer is cfg with exactly these protocols, and that of ACME challenges where cfg
// has it.
func offer(cfg *tls.Config, protocols ...string) *tls.Config {
	c := cfg.Clone()
	c.GetConfigForClient = nil
	if slices.Contains(cfg.NextProtos, acmeProto) {
		protocols = append(protocols, acmeProto)
	}
	c.NextProtos = protocols
	return c
}

// routeName routes the server name of a TLS connection; none leads nowhere.
func (s *Server) routeName(name string) route {
	return s.hosts.findName(plainName(name))
}

// handshake puts TLS above the socket; false when there is nothing to serve.
func (c *conn) handshake(cfg *tls.Config) bool {
	ctx, cancel := c.srv.ctx, context.CancelFunc(func() {})
	if d := c.srv.opt.HeadTimeout; d > 0 {
		ctx, cancel = context.WithTimeout(ctx, d)
	}
	defer cancel()
	t := tls.Server(c.raw, cfg)
	err := t.HandshakeContext(ctx)
	var plain tls.RecordHeaderError
	if errors.As(err, &plain) && plain.Conn != nil && looksLikeHTTP(plain.RecordHeader) {
		c.rewind()
		c.refuse(relay.Errorf(relay.CodeRequestMalformed, "this port speaks TLS; use https"),
			string(plain.RecordHeader[:]) == "HEAD ")
		c.closeOrderly()
	}
	if err != nil {
		c.srv.log.Debug("tls handshake", "from", c.from, "err", err)
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

// looksLikeHTTP tells whether the first bytes of what should have been TLS begin a
// request line.
func looksLikeHTTP(b [5]byte) bool {
	switch string(b[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO":
		return true
	}
	return false
}
