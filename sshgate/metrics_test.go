package sshgate

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/ssh"

	"relay"
	"relay/admission"
)

// figure returns the value of a metric by its name and label value.
func figure(t *testing.T, reg *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() != name || len(m.GetLabel()) > 0 && m.GetLabel()[0].GetValue() != label {
				continue
			}
			if c := m.GetCounter(); c != nil {
				return c.GetValue()
			}
			return m.GetGauge().GetValue()
		}
	}
	t.Fatalf("no figure %s %s", name, label)
	return 0
}

func TestFigures(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	b := newFixture(t, func(o *Options) { o.Registry = reg })
	client := b.mustDial(b.alice)
	forwards(t, client, "a", 80)
	b.online("a")
	if ok, _, _ := client.SendRequest("tcpip-forward", true, ssh.Marshal(forwardRequest{"not_a_name", 80})); ok {
		t.Error("an invalid name was taken")
	}
	_, _, _ = b.dial("x", ssh.PublicKeys(b.newKey("stranger", 0).signer))
	banner, ended := b.link(b.newKey("visitor", 0))
	b.shown(banner)
	for _, want := range []struct {
		name, label string
		n           float64
	}{
		{"relay_sshgate_accepted_total", "", 3},
		{"relay_sshgate_connections", "logged_in", 1},
		{"relay_sshgate_connections", "prompting", 1},
		{"relay_sshgate_connections", "handshaking", 0},
		{"relay_sshgate_tunnels", "", 1},
		{"relay_sshgate_penalised_sources", "", 0},
		{"relay_sshgate_logins_total", loginOK, 1},
		{"relay_sshgate_logins_total", "refused", 1},
		{"relay_sshgate_dropped_total", admission.ReasonPenalty, 0},
		{"relay_sshgate_forwards_refused_total", "validation-failed", 1},
		{"relay_sshgate_enrolments_total", relay.EnrolmentApproved, 0},
	} {
		eventually(t, 30*time.Second, want.name+" "+want.label, func() bool { return figure(t, reg, want.name, want.label) == want.n })
	}
	eventually(t, 30*time.Second, "the same in Stats", func() bool {
		s := b.srv.Stats()
		return s.Connections == 2 && s.Enrolments == 1 && s.Tunnels == 1 && s.Refused == 1
	})
	b.cut()
	<-ended
	eventually(t, 30*time.Second, "its end counted", func() bool {
		return figure(t, reg, "relay_sshgate_enrolments_total", relay.EnrolmentLeft) == 1
	})
}

// TestFiguresAreDocumented: docs/metrics.md has every metric.
func TestFiguresAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	newFixture(t, func(o *Options) { o.Registry = reg })
	families, err := reg.Gather()
	if err != nil || len(families) == 0 {
		t.Fatal(err)
	}
	for _, f := range families {
		if !strings.Contains(string(text), "`"+f.GetName()+"`") {
			t.Errorf("%s is not in docs/metrics.md", f.GetName())
		}
	}
}
