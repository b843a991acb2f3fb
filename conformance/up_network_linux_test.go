package conformance

import (
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// defaultServer returns a server for clients in the namespace. Its timeouts for silent tunnels are the
// defaults.
func (c *netNamespace) defaultServer() *relayServer {
	c.t.Helper()
	r := newRelay(c.t, "")
	_, port, _ := net.SplitHostPort(r.ssh)
	r.ssh = net.JoinHostPort(c.near, port)
	r.extra = append(r.extra, "RELAY_BASE_URL=http://"+r.http)
	r.start()
	r.token = strings.TrimSpace(r.relayd("token", "add", "--user", "admin"))
	return r
}

// up runs relay up inside the namespace.
func (c *netNamespace) up(r *relayServer, alias string) *upClient {
	c.t.Helper()
	return r.upBy([]string{"ip", "netns", "exec", c.space}, "--echo", "--alias", alias)
}

// drop drops all packets between both ends until restore is called.
func (c *netNamespace) drop() (restore func()) {
	c.t.Helper()
	run := func(args ...string) {
		args = append([]string{"netns", "exec", c.space, "iptables", "-w"}, args...)
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			c.t.Fatalf("ip %v (package iptables): %v %s", args, err, out)
		}
	}
	run("-I", "INPUT", "-i", c.there, "-j", "DROP")
	run("-I", "OUTPUT", "-o", c.there, "-j", "DROP")
	return func() {
		run("-D", "OUTPUT", "-o", c.there, "-j", "DROP")
		run("-D", "INPUT", "-i", c.there, "-j", "DROP")
	}
}

// TestUpAfterSilence drops every packet for a while, without telling the client, and measures the time until
// the alias serves again. The time is only logged, because the machine may be busy.
func TestUpAfterSilence(t *testing.T) {
	t.Parallel()
	c := newNetNamespace(t)
	r := c.defaultServer()
	u := c.up(r, "silence")
	r.back("silence", 10*time.Second)
	// The last gap is longer than the client's longest wait for a byte.
	for _, gap := range size([]time.Duration{13 * time.Second}, []time.Duration{3 * time.Second, 7 * time.Second, 20 * time.Second, 40 * time.Second}) {
		restore := c.drop()
		<-time.After(gap)
		restore()
		figure(t, "%v without a packet: back after %v", gap, r.back("silence", 30*time.Second).Round(10*time.Millisecond))
	}
	if !strings.Contains(u.Err.String(), "has been silent") {
		t.Errorf("it said %s", u.Err)
	}
}

// TestUpAfterAnotherNetwork removes the network and restores it, once with the same address and once with
// another address, as when a laptop moves.
func TestUpAfterAnotherNetwork(t *testing.T) {
	t.Parallel()
	c := newNetNamespace(t)
	near, far := strings.Replace(c.near, ".18.", ".19.", 1), strings.Replace(c.far, ".18.", ".19.", 1)
	c.ip("addr", "add", near+"/30", "dev", c.here)
	r := c.defaultServer()
	u := c.up(r, "moved")
	r.back("moved", 10*time.Second)
	gap := size(3*time.Second, 20*time.Second)
	c.inside("link", "set", c.there, "down")
	<-time.After(gap)
	c.inside("link", "set", c.there, "up")
	same := r.back("moved", 30*time.Second)
	c.inside("addr", "del", c.far+"/30", "dev", c.there)
	<-time.After(gap)
	c.inside("addr", "add", far+"/30", "dev", c.there)
	c.inside("route", "replace", "default", "via", near)
	other := r.back("moved", 30*time.Second)
	figure(t, "network gone for %v and back: serves %v after the same address, %v after another one", gap, same.Round(10*time.Millisecond), other.Round(10*time.Millisecond))
	if !strings.Contains(u.Err.String(), "connecting again") {
		t.Errorf("it said %s", u.Err)
	}
}
