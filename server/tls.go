package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
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

// CertFiles returns a function for tls.Config.GetCertificate that serves the
// certificate of two PEM files. It checks the files at most once a second, in a
// handshake, and reads them again when one has changed. While the pair cannot be read,
// for example in the middle of a renewal, the last good one stays in use, log (nil =
// none) gets one line, and every check tries again: a corrected file mode does not
// change the time of a file. The error is that of the first read. The function is safe
// for concurrent use.
func CertFiles(cert, key string, log *slog.Logger) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	f := &certFiles{cert: cert, key: key, log: log}
	stamp := f.readStamp()
	if err := f.load(stamp); err != nil {
		return nil, err
	}
	return f.get, nil
}

type certFiles struct {
	cert, key string
	log       *slog.Logger

	mu        sync.Mutex
	stamp     string // of the files that were read last
	lastErr   string // of that read; "" = none
	checkedAt time.Time
	pair      *tls.Certificate
}

// readStamp returns times and sizes of the files, "" if one is missing.
func (f *certFiles) readStamp() string {
	f.checkedAt = time.Now()
	stamp := ""
	for _, name := range []string{f.cert, f.key} {
		fi, err := os.Stat(name)
		if err != nil {
			return ""
		}
		stamp += fmt.Sprintf("%d %d ", fi.ModTime().UnixNano(), fi.Size())
	}
	return stamp
}

func (f *certFiles) load(stamp string) error {
	f.stamp = stamp
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return fmt.Errorf("read certificate %s with key %s: %w", f.cert, f.key, err)
	}
	f.pair = &pair
	return nil
}

// renew reads changed files. If that fails, the last good pair stays, and each
// different error is logged once.
func (f *certFiles) renew(stamp string) {
	if err := f.load(stamp); err != nil {
		if f.lastErr != err.Error() {
			f.log.Error("changed certificate files cannot be used; the last good certificate stays in use until they can",
				"err", err, "expires", f.pair.Leaf.NotAfter)
		}
		f.lastErr = err.Error()
		return
	}
	f.lastErr = ""
	f.log.Info("certificate files read again", "cert", f.cert, "expires", f.pair.Leaf.NotAfter)
}

func (f *certFiles) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.checkedAt) >= time.Second {
		if stamp := f.readStamp(); stamp != f.stamp || f.lastErr != "" {
			f.renew(stamp)
		}
	}
	return f.pair, nil
}
