package conformance

import (
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"relay/relaytest"
)

// rowSilence: all clients are frozen at once; requests are queued, and the same connections serve
// again when the clients continue.
func rowSilence(t *testing.T, r *relayServer) {
	awake := map[string]func(){}
	running := map[string]*relaytest.Process{}
	for _, client := range everyClient {
		running[client] = r.forward(t, client, forwarding{bind: "c16-" + client, to: says(t, client)})
	}
	for _, client := range everyClient {
		r.serves(t, "c16-"+client, client)
		awake[client] = freeze(t, running[client].Cmd.Process.Pid)
	}
	for _, client := range everyClient {
		begun := time.Now()
		if status, body, _ := r.call("c16-"+client, "/asleep", "x"); status != 202 && status != 502 {
			t.Errorf("%s asleep: %d %s", client, status, body)
		} else if took := time.Since(begun); took > bound(10*time.Second) {
			t.Errorf("%s asleep: answered after %v", client, took)
		}
	}
	for _, client := range everyClient {
		relaytest.Until(t, 10*time.Second, client+" stale", func() bool { return r.state("c16-"+client) == "stale" })
		if status, _, _ := r.call("c16-"+client, "/stale", "x"); status != 202 {
			t.Errorf("%s stale: %d", client, status)
		}
		awake[client]()
		r.serves(t, "c16-"+client, client)
		if running[client].HasEnded() {
			t.Errorf("%s did not survive", client)
		}
	}
}

func rowLocalDown(t *testing.T, r *relayServer) {
	each(t, everyClient, func(t *testing.T, client string) {
		alias, want := "c17-"+client, "local-refused"
		if client == "plink" || client == "paramiko" { // these clients accept the channel before they connect to the local server
			want = "local-closed"
		}
		r.forward(t, client, forwarding{bind: alias, to: relaytest.FreeAddr(t)})
		relaytest.Until(t, 15*time.Second, "online", func() bool { return r.online(alias) })
		status, body, header := r.on(t).through(alias, "/", "x")
		if status != 502 || header.Get("Relay-Error") != want {
			t.Errorf("%d %s %s", status, header.Get("Relay-Error"), body)
		}
		if rec := r.event(header.Get("Relay-Event")); rec.State != "failed" || !rec.Replayable || r.state(alias) != "online" {
			t.Errorf("event %s, alias %s", rec.State, r.state(alias))
		}
	})
}

func rowNothingSaid(t *testing.T, r *relayServer) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096))
			c.Close()
		}
	}()
	each(t, everyClient, func(t *testing.T, client string) {
		alias := "c18-" + client
		r.forward(t, client, forwarding{bind: alias, to: ln.Addr().String()})
		relaytest.Until(t, 15*time.Second, "online", func() bool { return r.online(alias) })
		if status, _, header := r.on(t).through(alias, "/", "x"); status != 502 || header.Get("Relay-Error") != "local-closed" || r.state(alias) != "online" {
			t.Errorf("%d %s, alias %s", status, header.Get("Relay-Error"), r.state(alias))
		}
	})
}

func rowDirect(t *testing.T, r *relayServer) {
	const words = "this relay does not connect to other hosts"
	each(t, []string{"openssh", "paramiko", "asyncssh"}, func(t *testing.T, client string) {
		var c *relaytest.Process
		if client == "openssh" {
			c = r.runs(t, "ssh", append([]string{"-W", "127.0.0.1:1"}, r.openSSH("relay")...)...)
		} else {
			c = r.runs(t, python, r.library(client, "relay", "direct")...)
		}
		relaytest.Until(t, 15*time.Second, "words of refusal", func() bool {
			return strings.Contains(c.Out.String(), words) || client == "paramiko" && strings.Contains(c.Out.String(), "refused 1")
		})
	})
}

// rowNotOffered: a subsystem and the forward of a socket path are refused, and OpenSSH shows that. Agent
// forwarding and variables do not disturb a command.
func rowNotOffered(t *testing.T, r *relayServer) {
	c := r.runs(t, "ssh", append(append([]string{"-s"}, r.openSSH("relay")...), "sftp")...)
	if code := c.Code(t, 15*time.Second); code != 255 || !strings.Contains(c.Out.String(), "subsystem request failed") {
		t.Errorf("subsystem: exit %d: %s", code, c.Out)
	}
	c = r.runs(t, "ssh", append(append([]string{"-A", "-o", "SendEnv=LANG", "-o", "SetEnv=X=y"}, r.openSSH("relay")...), "whoami")...)
	if code := c.Code(t, 15*time.Second); code != 0 {
		t.Errorf("agent and environment: exit %d: %s", code, c.Out)
	}
	c = r.runs(t, "ssh", append([]string{"-N", "-R", "/c25:localhost:3000"}, r.openSSH("relay")...)...)
	relaytest.Until(t, 15*time.Second, "words of refusal", func() bool {
		return strings.Contains(c.Out.String(), "remote port forwarding failed for listen path /c25")
	})
}

// rowAlive: keepalive requests of clients are answered.
func rowAlive(t *testing.T, r *relayServer) {
	asking := map[string]*relaytest.Process{
		"openssh": r.forward(t, "openssh", forwarding{
			bind: "c26-openssh", to: says(t, "openssh"), flags: []string{"-o", "ServerAliveInterval=2", "-o", "ServerAliveCountMax=3"},
		}),
		"dbclient": r.forward(t, "dbclient", forwarding{bind: "c26-dbclient", to: says(t, "dbclient"), flags: []string{"-K", "2"}}), // dbclient allows three missing answers
	}
	begun := time.Now()
	for client := range asking {
		r.serves(t, "c26-"+client, client)
	}
	<-time.After(time.Until(begun.Add(10 * time.Second))) // without answers, the clients would have ended after eight seconds
	for client, c := range asking {
		if c.HasEnded() {
			t.Errorf("%s: %s", client, c.Out)
		}
		r.serves(t, "c26-"+client, client)
	}
}

func rowFlood(t *testing.T, r *relayServer) {
	host, port, _ := net.SplitHostPort(says(t, "through"))
	c := r.runs(t, python, r.library("asyncssh", "relay", "flood", "c27", host, port)...)
	r.serves(t, "c27", "through")
	relaytest.Until(t, 20*time.Second, "the flood", func() bool { return strings.Contains(c.Out.String(), "flooded") })
	begun := time.Now()
	r.serves(t, "c27", "through")
	if took := time.Since(begun); took > bound(2*time.Second) {
		t.Errorf("answered after %v", took)
	}
}

// rowRemoved: removing an alias ends the connection of the client that forwards it.
func rowRemoved(t *testing.T, r *relayServer) {
	each(t, programs, func(t *testing.T, client string) {
		alias := "c32-" + client
		c := r.forward(t, client, forwarding{bind: alias, to: says(t, client)})
		r.serves(t, alias, client)
		r.must(204, "DELETE", "/aliases/"+alias, nil)
		begun := time.Now()
		c.Code(t, 15*time.Second)
		inTime(t, begun, client+" was let go")
	})
}

// rekeyed returns the number of bytes to send in each direction: 8 MiB, or RELAY_TEST_REKEY_MIB. More than 8
// MiB would take too long under -race.
func rekeyed(t *testing.T) int {
	mib := 8
	if text := os.Getenv("RELAY_TEST_REKEY_MIB"); text != "" {
		var err error
		if mib, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	return mib << 20
}

// rowKeyRemoved: removing a key ends the tunnel, the live log and the waiting command of its clients.
func rowKeyRemoved(t *testing.T, r *relayServer) {
	carol := r.person("carol32")
	own := r.on(t)
	own.key, own.token = carol.key, carol.token
	tunnel := own.forward(t, "openssh", forwarding{bind: "c32-key", to: says(t, "x"), session: true})
	own.serves(t, "c32-key", "x")
	waiting := own.command(t, "openssh", "wait c32-key --path /never --timeout 5m")
	relaytest.Until(t, 15*time.Second, "the command", func() bool { return strings.Contains(waiting.Out.String(), "hello carol32") })
	r.relayd("key", "rm", carol.fingerprint)
	begun := time.Now()
	for _, c := range []*relaytest.Process{tunnel, waiting} {
		if code := c.Code(t, 20*time.Second); code == 0 {
			t.Errorf("%v: exit 0: %s", c.Cmd.Args, c.Out)
		}
	}
	inTime(t, begun, "tunnel and waiting command ended when the key was removed")
	if !strings.Contains(tunnel.Out.String(), "this key was removed") {
		t.Errorf("the session was told %s", tunnel.Out)
	}
	relaytest.Until(t, 10*time.Second, "the alias to be offline", func() bool { return own.state("c32-key") == "offline" })
}

// rowDeath: when a client is killed, its alias is offline at once.
func rowDeath(t *testing.T, r *relayServer) {
	each(t, programs, func(t *testing.T, client string) {
		alias := "c15-" + client
		c := r.forward(t, client, forwarding{bind: alias, to: says(t, client)})
		r.serves(t, alias, client)
		c.Kill()
		begun := time.Now()
		relaytest.Until(t, 10*time.Second, "offline", func() bool { return r.state(alias) == "offline" })
		if took := time.Since(begun); took > bound(time.Second) {
			t.Errorf("%s killed: offline only after %v", client, took)
		}
		if status, body, _ := r.call(alias, "/", "x"); status != 202 {
			t.Errorf("%d %s", status, body)
		}
	})
}

// rowRekey: a rekey after every MiB in both directions changes no byte. Clients other than OpenSSH rekey only
// after a GiB and have no option for it.
func rowRekey(t *testing.T, r *relayServer) {
	down := random(rekeyed(t), 5)
	to := serveLocal(t, func(w http.ResponseWriter, req *http.Request) {
		b, err := io.ReadAll(req.Body)
		if err != nil || string(b) != down {
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = io.WriteString(w, down)
	})
	r.forward(t, "openssh", forwarding{bind: "c33", to: to, flags: []string{"-o", "RekeyLimit=1M"}})
	relaytest.Until(t, 15*time.Second, "online", func() bool { return r.online("c33") })
	begun := time.Now()
	if status, body, _ := r.through("c33", "/", down); status != 200 || body != down {
		t.Errorf("%d, %d bytes", status, len(body))
	}
	t.Logf("%d MiB each way in %v", len(down)>>20, time.Since(begun).Round(time.Millisecond))
}

// rowRestart: sessions are notified of a stop, clients leave, and the host key is the same after a
// restart.
func rowRestart(t *testing.T, r *relayServer) {
	session := r.forward(t, "openssh", forwarding{bind: "c30", to: says(t, "x"), session: true})
	r.serves(t, "c30", "x")
	all := []*relaytest.Process{session}
	for _, client := range programs {
		all = append(all, r.forward(t, client, forwarding{bind: "c30-" + client, to: says(t, client)}))
		r.serves(t, "c30-"+client, client)
	}
	key := r.hostKey()
	r.stop(syscall.SIGTERM)
	for _, c := range all {
		c.Code(t, 20*time.Second)
	}
	if !strings.Contains(session.Out.String(), "the relay is stopping") {
		t.Errorf("the session was told %s", session.Out)
	}
	r.start()
	if got := r.hostKey(); got != key {
		t.Errorf("host key %s, was %s", got, key)
	}
	c := r.runs(t, "ssh", append(append([]string{"-o", "StrictHostKeyChecking=yes"}, r.openSSH("relay")...), "version")...)
	if code := c.Code(t, 15*time.Second); code != 0 {
		t.Errorf("after the restart: exit %d: %s", code, c.Out)
	}
	if state := r.state("c30"); state != "offline" {
		t.Errorf("the alias is %s", state)
	}
}
