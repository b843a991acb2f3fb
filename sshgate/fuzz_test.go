package sshgate

import (
	"encoding/binary"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/link"
	"relay/sshgate/login"
)

// FuzzAlias: for any bind string and alias domain, parseBind returns a valid label, no label, or a refusal that is
// safe to print. parseBind of such a label returns the same label or none.
func FuzzAlias(f *testing.F) {
	for _, s := range []string{"stripe-dev", "Stripe-Dev.example.test.", "", "*", "[::]", "localhost.", "a.b", "-a", "\u212A", "xn--a", strings.Repeat("a", 64)} {
		f.Add(s, "example.test")
		f.Add("stripe", s)
	}
	f.Fuzz(func(t *testing.T, bind, domain string) {
		site := &relay.Site{AliasDomain: domain}
		label, refusal := parseBind(bind, site)
		switch {
		case refusal != nil:
			if label != "" || unsafeText(refusal.Detail) {
				t.Errorf("%q: label %q with refusal %q", bind, label, refusal.Detail)
			}
		case label != "":
			if !relay.ValidLabel(label) {
				t.Errorf("%q: label %q", bind, label)
			}
			if again, _ := parseBind(label, site); again != label && again != "" {
				t.Errorf("%q: %q, then %q", bind, label, again)
			}
		}
		if user := site.AliasLabel(bind); relay.ValidLabel(user) && site.AliasLabel(user) != user {
			t.Errorf("user %q: %q is not stable", bind, user)
		}
	})
}

func unsafeText(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) })
}

// FuzzPayloads: no payload of a peer makes a decoder panic, or gives a text that is unsafe to print. If a forward
// or a command is accepted, encoding the decoded value gives the payload again.
func FuzzPayloads(f *testing.F) {
	f.Add(ssh.Marshal(forwardRequest{"stripe-dev", 80}))
	f.Add(ssh.Marshal(relay.Hello{Protocol: 1, Flags: 1, Version: "1"}))
	f.Add(ssh.Marshal(relay.Target{Bind: "a", URL: "http://127.0.0.1:3000", HostHeader: "x"}))
	f.Add(ssh.Marshal(relay.DialFailed{Reason: 2, Class: "refused", Text: "no"}))
	f.Add(binary.BigEndian.AppendUint32(nil, 0xffffffff))
	pipe, _ := net.Pipe()
	ended := link.New(pipe, link.Options{Workers: link.NewWorkers(), Log: slog.New(slog.DiscardHandler)})
	ended.Close(link.Stopped)
	f.Fuzz(func(t *testing.T, p []byte) {
		var forward forwardRequest
		if ssh.Unmarshal(p, &forward) == nil && !slices.Equal(ssh.Marshal(forward), p) {
			t.Errorf("forward %q is not what was sent", p)
		}
		var exec struct{ Command string }
		if ssh.Unmarshal(p, &exec) == nil && !slices.Equal(ssh.Marshal(exec), p) {
			t.Errorf("exec %q is not what was sent", p)
		}
		if e := dialFailure(p); e != nil && (unsafeText(e.Detail) || relay.Status(e.Code) == 500) {
			t.Errorf("dial failure %q: %v", p, e)
		}
		c := &conn{Conn: ended} // an ended connection starts no goroutines
		c.hello(p)
		c.target(p)
		if unsafeText(c.announced.client) {
			t.Errorf("client name %q", c.announced.client)
		}
		if name := login.ClientName(p); unsafeText(name) {
			t.Errorf("client name %q", name)
		}
	})
}
