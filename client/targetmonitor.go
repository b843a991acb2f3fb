package client

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"

	"relay"
	"relay/record"
	"relay/wire"
)

// Kinds of TargetEvent.
const (
	LocalDown        = "local-down"        // no server listens, or the name is unknown
	LocalUp          = "local-up"          // the local server could be dialed again
	LocalHost        = "local-host"        // the local server refuses the Host header
	LocalSpeaksTLS   = "local-speaks-tls"  // an http target whose server speaks https
	LocalSpeaksPlain = "local-speaks-http" // an https target whose server speaks http
	LocalCertificate = "local-certificate" // an https target whose certificate is not trusted
)

// TargetEvent is a problem with a local server that its developer can fix, or the end of such a problem. A
// problem is reported once, not for each request.
type TargetEvent struct {
	Kind   string `json:"type"`
	Alias  string `json:"alias"`   // the alias whose request met the problem first
	Target string `json:"target"`  // URL
	Text   string `json:"message"` // not safe to print
	Hint   string `json:"hint,omitempty"`
}

// targetMonitor finds problems with local servers in the errors of dials and in the first bytes of responses,
// and reports them. Its methods are safe for concurrent use.
type targetMonitor struct {
	report func(TargetEvent) // nil = problems are not reported

	mu    sync.Mutex
	known map[problem]bool
}

// problem is a kind of TargetEvent, and the URL or alias that it is about.
type problem struct{ kind, subject string }

func newTargetMonitor(report func(TargetEvent)) *targetMonitor {
	return &targetMonitor{report: report, known: map[problem]bool{}}
}

// changed stores the value of is, which says whether the subject has a problem of this kind. It returns true if
// another value was stored before and report is not nil.
func (m *targetMonitor) changed(kind, subject string, is bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := problem{kind, subject}
	if m.known[p] == is {
		return false
	}
	m.known[p] = is
	return m.report != nil
}

// note reports a problem unless it was reported before.
func (m *targetMonitor) note(subject string, e TargetEvent) {
	if m.changed(e.Kind, subject, true) {
		m.report(e)
	}
}

// dialed notes the result of a dial of the local server.
func (m *targetMonitor) dialed(f Forward, err error) {
	var noTLS tls.RecordHeaderError
	var cert *tls.CertificateVerificationError
	var unknown *net.DNSError
	url := f.Target.URL
	if err == nil {
		if m.changed(LocalDown, url, false) {
			m.report(TargetEvent{Kind: LocalUp, Alias: f.Alias, Target: url, Text: "the local server " + url + " is up"})
		}
		return
	}
	e := TargetEvent{Alias: f.Alias, Target: url}
	const down = "the local server %s is down: %s; requests are answered 502 until it is up"
	switch {
	case errors.As(err, &noTLS):
		e.Kind, e.Text = LocalSpeaksPlain, "the local server "+url+" does not speak TLS"
		e.Hint = "is it plain http? then pass --target http" + url[len("https"):]
	case errors.As(err, &cert):
		why := cert.Err.Error()
		if errors.As(cert.Err, new(x509.HostnameError)) { // the text of a HostnameError lists the names of the certificate, up to 99
			why = "it is for another name"
		}
		e.Kind, e.Text = LocalCertificate, fmt.Sprintf("the certificate of the local server %s is not trusted: %s", url, why)
		e.Hint = "only certificates of loopback addresses are accepted unverified; add its authority to the trusted ones of this machine"
	case errors.As(err, &unknown):
		e.Kind, e.Text = LocalDown, fmt.Sprintf(down, url, "its name is unknown")
	case isRefused(err):
		e.Kind, e.Text = LocalDown, fmt.Sprintf(down, url, "no program listens there")
	default:
		return
	}
	m.note(url, e)
}

// maxInspected is the number of bytes of a local response that are searched for a known error text.
const maxInspected = 16 << 10

// answerInspector searches the start of one response of the local server for a known error text,
// without changing it.
type answerInspector struct {
	m    *targetMonitor
	f    Forward
	seen []byte
	done bool
}

// inspect adds the next piece of the response to the searched start, and reports a problem if it now finds a
// known error text.
func (r *answerInspector) inspect(p []byte) {
	if r.done || len(r.seen) == 0 && !worthInspecting(p) {
		r.done = true
		return
	}
	r.seen = append(r.seen, p[:min(len(p), maxInspected-len(r.seen))]...)
	e := TargetEvent{Alias: r.f.Alias, Target: r.f.Target.URL}
	switch {
	case r.f.Target.tls == nil && speaksTLS(r.seen):
		e.Kind, e.Text = LocalSpeaksTLS, "the local server "+e.Target+" speaks TLS"
		e.Hint = "pass --target https" + e.Target[len("http"):]
		r.m.note(e.Target, e)
	case (r.f.Target.HostHeader == "" || r.f.Target.HostHeader == relay.HostPreserve) && refusesHost(r.seen):
		e.Kind, e.Text = LocalHost, "the local server "+e.Target+" refuses the Host header of "+e.Alias
		e.Hint = record.HostRefusedHint(e.Alias)
		r.m.note(e.Alias, e)
	case len(r.seen) < maxInspected:
		return
	}
	r.seen, r.done = nil, true
}

// worthInspecting reports, from the first piece of a response, whether it may hold a known error text:
// a TLS alert or handshake, a status 4xx, or the short response of older webpack servers.
func worthInspecting(p []byte) bool {
	return startsTLS(p) ||
		len(p) > 9 && bytes.HasPrefix(p, []byte("HTTP/1.")) && (p[9] == '4' || bytes.HasSuffix(p, []byte("\nInvalid Host header")))
}

func startsTLS(p []byte) bool {
	return len(p) > 2 && (p[0] == 0x15 || p[0] == 0x16) && p[1] == 3
}

// speaksTLS reports whether an answer to plain HTTP comes from a TLS server.
func speaksTLS(p []byte) bool {
	told := func(words string) bool { return bytes.Contains(p, []byte(words)) }
	return startsTLS(p) || told("HTTP request to an HTTPS server") || told("plain HTTP request was sent to HTTPS port") ||
		told("speaking plain HTTP to an SSL-enabled server port")
}

// refusesHost reports whether a development server has refused the request because of its host name. p
// is the start of an HTTP response, whose body may be chunked and compressed.
func refusesHost(p []byte) bool {
	h, n, err := wire.Response(p, wire.Limits{}, nil)
	if err != nil {
		return false
	}
	var decoded []byte
	body := wire.NewBody(h)
	body.Tee = func(data, _ []byte) { decoded = append(decoded, data...) }
	if _, _, err := body.Feed(p[n:]); err != nil {
		return false
	}
	return record.RefusedHost(record.RefusedBy(h.Status, h.Raw, decoded))
}
