package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// Kinds of LocalNews.
const (
	LocalDown        = "local-down"        // nobody listens, or the name is unknown
	LocalUp          = "local-up"          // it is there again
	LocalHost        = "local-host"        // it refuses the Host header
	LocalSpeaksTLS   = "local-speaks-tls"  // an http target that is https
	LocalSpeaksPlain = "local-speaks-http" // an https target that is http
	LocalCertificate = "local-certificate" // an https target whose certificate is not trusted
)

// LocalNews is something odd about a local server that whoever runs it can mend. It
// is told once, not at each request.
type LocalNews struct {
	Kind   string
	Alias  string // the first one that met it
	Target string // URL
	Text   string // not safe to print
	Hint   string // or ""
}

// listenLook is how often it is looked whether a local server listens again.
const listenLook = time.Second

// locals knows what was told about local servers. Its methods may be called by
// several goroutines.
type locals struct {
	tell func(LocalNews)
	stop context.CancelFunc
	ctx  context.Context
	wg   sync.WaitGroup

	mu   sync.Mutex
	down map[string]context.CancelFunc // by target; ends the look whether it is back
	told map[string]bool               // by kind and alias or target
}

func newLocals(tell func(LocalNews)) *locals {
	l := &locals{tell: tell, down: map[string]context.CancelFunc{}, told: map[string]bool{}}
	if tell == nil {
		l.tell = func(LocalNews) {}
	}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// close waits for what it started.
func (l *locals) close() {
	l.stop()
	l.wg.Wait()
}

// dialed is told how a dial of the local server ended.
func (l *locals) dialed(f Forward, err error) {
	var record tls.RecordHeaderError
	var cert *tls.CertificateVerificationError
	var unknown *net.DNSError
	url := f.Target.URL
	switch {
	case err == nil:
		l.back(f)
	case errors.As(err, &record):
		l.once(url, LocalNews{
			Kind: LocalSpeaksPlain, Alias: f.Alias, Target: url,
			Text: "the local server " + url + " does not speak TLS",
			Hint: "is it plain http? then pass --target http" + url[len("https"):],
		})
	case errors.As(err, &cert):
		l.once(url, LocalNews{
			Kind: LocalCertificate, Alias: f.Alias, Target: url,
			Text: fmt.Sprintf("the certificate of the local server %s is not trusted: %v", url, certText(cert.Err)),
			Hint: "only certificates of loopback addresses go unverified; add its authority to this machine's",
		})
	case errors.Is(err, syscall.ECONNREFUSED):
		l.gone(f, "nobody listens there")
	case errors.As(err, &unknown):
		l.gone(f, "its name is unknown")
	}
}

// certText is a reason without the certificate itself.
func certText(err error) string {
	var host x509.HostnameError
	if errors.As(err, &host) {
		return "it is for another name"
	}
	return err.Error()
}

// once tells news unless the same kind was told of this target or alias.
func (l *locals) once(of string, n LocalNews) {
	l.mu.Lock()
	key := n.Kind + " " + of
	known := l.told[key]
	l.told[key] = true
	l.mu.Unlock()
	if !known {
		l.tell(n)
	}
}

func (l *locals) gone(f Forward, why string) {
	url := f.Target.URL
	l.mu.Lock()
	if l.down[url] != nil || l.ctx.Err() != nil {
		l.mu.Unlock()
		return
	}
	ctx, cancel := context.WithCancel(l.ctx)
	l.down[url] = cancel
	l.wg.Go(func() {
		if listensAgain(ctx, f.Target.addrs) {
			l.back(f)
		}
	})
	l.mu.Unlock()
	l.tell(LocalNews{
		Kind: LocalDown, Alias: f.Alias, Target: url,
		Text: fmt.Sprintf("the local server %s is down: %s; requests are answered 502 until it is up", url, why),
	})
}

func (l *locals) back(f Forward) {
	l.mu.Lock()
	cancel := l.down[f.Target.URL]
	delete(l.down, f.Target.URL)
	l.mu.Unlock()
	if cancel == nil {
		return
	}
	cancel()
	l.tell(LocalNews{
		Kind: LocalUp, Alias: f.Alias, Target: f.Target.URL,
		Text: "the local server " + f.Target.URL + " is up",
	})
}

// listensAgain waits until somebody listens on one of the addresses, as far as that
// can be seen without connecting: a connection that brings no request would disturb
// small servers. It gives false at the end of ctx, and where it cannot be seen.
func listensAgain(ctx context.Context, addrs []string) bool {
	for wait(ctx, listenLook) {
		listening, known := listens(addrs)
		if listening || !known {
			return listening
		}
	}
	return false
}

// lookAt is how much of a local answer is looked at for a known complaint.
const lookAt = 16 << 10

// reader looks at the start of an answer of the local server. It changes nothing.
type reader struct {
	l    *locals
	f    Forward
	seen []byte
	done bool
}

// see takes the next piece.
func (r *reader) see(p []byte) {
	if r.done {
		return
	}
	if len(r.seen) == 0 && !suspicious(p) {
		r.done = true
		return
	}
	r.seen = append(r.seen, p[:min(len(p), lookAt-len(r.seen))]...)
	if n, of := complaint(r.f, r.seen); n.Kind != "" {
		r.l.once(of, n)
		r.done = true
	}
	if len(r.seen) >= lookAt {
		r.done = true
	}
	if r.done {
		r.seen = nil
	}
}

// suspicious tells whether the first piece of an answer is worth a look: a TLS
// alert or handshake, a status 4xx, or the short answer of older webpack servers.
func suspicious(p []byte) bool {
	return startsTLS(p) ||
		len(p) > 9 && bytes.HasPrefix(p, []byte("HTTP/1.")) && (p[9] == '4' || bytes.HasSuffix(p, []byte("\nInvalid Host header")))
}

func startsTLS(p []byte) bool {
	return len(p) > 2 && (p[0] == 0x15 || p[0] == 0x16) && p[1] == 3
}

// complaint finds what a local server says about a mistake of the set-up, and of
// what that is told once.
func complaint(f Forward, p []byte) (n LocalNews, of string) {
	url := f.Target.URL
	n = LocalNews{Alias: f.Alias, Target: url}
	switch {
	case f.Target.tls == nil && (startsTLS(p) || containsAny(p, "HTTP request to an HTTPS server", "plain HTTP request was sent to HTTPS port", "speaking plain HTTP to an SSL-enabled server port")):
		n.Kind = LocalSpeaksTLS
		n.Text = "the local server " + url + " speaks TLS"
		n.Hint = "pass --target https" + url[len("http"):]
		return n, url
	case f.Target.HostHeader != "" && f.Target.HostHeader != "preserve":
	case containsAny(p, "Blocked request. This host", "DisallowedHost", "Invalid HTTP_HOST header", "Blocked host", "Invalid Host header"):
		n.Kind = LocalHost
		n.Text = "the local server " + url + " refuses the Host header of " + f.Alias
		n.Hint = "run relay up with --host-header rewrite, or let the server allow that host"
		return n, f.Alias
	}
	return LocalNews{}, ""
}

func containsAny(p []byte, words ...string) bool {
	for _, w := range words {
		if bytes.Contains(p, []byte(w)) {
			return true
		}
	}
	return false
}
