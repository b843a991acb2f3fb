package client

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"

	"relay"
	"relay/record"
	"relay/wire"
)

// Kinds of TargetEvent.
const (
	LocalDown        = "local-down"        // nobody listens, or the name is unknown
	LocalUp          = "local-up"          // it could be dialed again
	LocalHost        = "local-host"        // it refuses the Host header
	LocalSpeaksTLS   = "local-speaks-tls"  // an http target that is https
	LocalSpeaksPlain = "local-speaks-http" // an https target that is http
	LocalCertificate = "local-certificate" // an https target whose certificate is not trusted
)

// TargetEvent is a problem with a local server that its developer can fix, or the end of
// one. It is reported once and not at each request.
type TargetEvent struct {
	Kind   string `json:"type"`
	Alias  string `json:"alias"`   // the first one that met it
	Target string `json:"target"`  // URL
	Text   string `json:"message"` // not safe to print
	Hint   string `json:"hint,omitempty"`
}

// targetMonitor reports problems with local servers, by how dials end and answers begin.
// Its methods are safe for concurrent use.
type targetMonitor struct {
	report func(TargetEvent)

	mu       sync.Mutex
	down     map[string]bool // by URL
	reported map[string]bool // by kind and URL or alias
}

func newTargetMonitor(report func(TargetEvent)) *targetMonitor {
	if report == nil {
		report = func(TargetEvent) {}
	}
	return &targetMonitor{report: report, down: map[string]bool{}, reported: map[string]bool{}}
}

// dialed notes how a dial of the local server ended.
func (m *targetMonitor) dialed(f Forward, err error) {
	var noTLS tls.RecordHeaderError
	var cert *tls.CertificateVerificationError
	var unknown *net.DNSError
	url := f.Target.URL
	switch {
	case err == nil:
		if m.setDown(url, false) {
			m.report(TargetEvent{Kind: LocalUp, Alias: f.Alias, Target: url, Text: "the local server " + url + " is up"})
		}
	case errors.As(err, &noTLS):
		m.once(url, TargetEvent{
			Kind: LocalSpeaksPlain, Alias: f.Alias, Target: url,
			Text: "the local server " + url + " does not speak TLS",
			Hint: "is it plain http? then pass --target http" + url[len("https"):],
		})
	case errors.As(err, &cert):
		m.once(url, TargetEvent{
			Kind: LocalCertificate, Alias: f.Alias, Target: url,
			Text: fmt.Sprintf("the certificate of the local server %s is not trusted: %v", url, certText(cert.Err)),
			Hint: "only certificates of loopback addresses are accepted unverified; add its authority to the trusted ones of this machine",
		})
	case errors.Is(err, syscall.ECONNREFUSED):
		m.setDownBecause(f, "nobody listens there")
	case errors.As(err, &unknown):
		m.setDownBecause(f, "its name is unknown")
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

// once reports e unless one of the same kind was reported about the same subject.
func (m *targetMonitor) once(subject string, e TargetEvent) {
	m.mu.Lock()
	key := e.Kind + " " + subject
	known := m.reported[key]
	m.reported[key] = true
	m.mu.Unlock()
	if !known {
		m.report(e)
	}
}

// setDown notes whether a local server is down; it returns whether that changed.
func (m *targetMonitor) setDown(url string, down bool) (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed = m.down[url] != down
	m.down[url] = down
	return changed
}

func (m *targetMonitor) setDownBecause(f Forward, why string) {
	url := f.Target.URL
	if m.setDown(url, true) {
		m.report(TargetEvent{
			Kind: LocalDown, Alias: f.Alias, Target: url,
			Text: fmt.Sprintf("the local server %s is down: %s; requests are answered 502 until it is up", url, why),
		})
	}
}

// maxInspected is how much of a local answer is searched for a known error text.
const maxInspected = 16 << 10

// answerInspector looks at the start of one answer of the local server, which it does
// not change.
type answerInspector struct {
	m    *targetMonitor
	f    Forward
	seen []byte
	done bool
}

// inspect takes the next piece of the answer.
func (r *answerInspector) inspect(p []byte) {
	if r.done {
		return
	}
	if len(r.seen) == 0 && !worthInspecting(p) {
		r.done = true
		return
	}
	r.seen = append(r.seen, p[:min(len(p), maxInspected-len(r.seen))]...)
	if e, subject := diagnose(r.f, r.seen); e.Kind != "" {
		r.m.once(subject, e)
		r.done = true
	}
	if len(r.seen) >= maxInspected {
		r.done = true
	}
	if r.done {
		r.seen = nil
	}
}

// worthInspecting reports whether an answer may hold a known error text, by its first
// piece: a TLS alert or handshake, a status 4xx, or the short answer of older webpack
// servers.
func worthInspecting(p []byte) bool {
	return startsTLS(p) ||
		len(p) > 9 && bytes.HasPrefix(p, []byte("HTTP/1.")) && (p[9] == '4' || bytes.HasSuffix(p, []byte("\nInvalid Host header")))
}

func startsTLS(p []byte) bool {
	return len(p) > 2 && (p[0] == 0x15 || p[0] == 0x16) && p[1] == 3
}

// diagnose recognises a mistake in the set-up by the start of an answer. subject is what
// the mistake is reported about once.
func diagnose(f Forward, p []byte) (e TargetEvent, subject string) {
	url := f.Target.URL
	e = TargetEvent{Alias: f.Alias, Target: url}
	switch {
	case f.Target.tls == nil && (startsTLS(p) || containsAny(p, "HTTP request to an HTTPS server", "plain HTTP request was sent to HTTPS port", "speaking plain HTTP to an SSL-enabled server port")):
		e.Kind = LocalSpeaksTLS
		e.Text = "the local server " + url + " speaks TLS"
		e.Hint = "pass --target https" + url[len("http"):]
		return e, url
	case f.Target.HostHeader != "" && f.Target.HostHeader != relay.HostPreserve:
	case refusesHost(p):
		e.Kind = LocalHost
		e.Text = "the local server " + url + " refuses the Host header of " + f.Alias
		e.Hint = record.HostRefusedHint(f.Alias)
		return e, f.Alias
	}
	return TargetEvent{}, ""
}

// refusesHost reads the start of an HTTP response.
func refusesHost(p []byte) bool {
	head, body, _ := bytes.Cut(p, []byte("\r\n\r\n"))
	_, status, _ := wire.StartLine(head)
	n, err := strconv.Atoi(string(status))
	return err == nil && record.HostRefusedBy(n, body) != ""
}

func containsAny(p []byte, words ...string) bool {
	for _, w := range words {
		if bytes.Contains(p, []byte(w)) {
			return true
		}
	}
	return false
}
