package conformance

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"relay/relaytest"
)

// everyClient lists the SSH clients of TestSSHRows, in the order in which they take over the alias.
var everyClient = []string{"openssh", "dbclient", "plink", "paramiko", "asyncssh"}

// programs are the clients that start quickly; the Python libraries need an interpreter each.
var programs = everyClient[:3]

// forwarding is a forward that a client is told to request.
type forwarding struct {
	user, bind, port string
	to               string // address of the local server, host:port
	session          bool   // whether the client also opens a session, because it is started without -N
	flags            []string
}

// runs starts a program that is killed at the end of the test.
func (r *relayServer) runs(t *testing.T, name string, args ...string) *relaytest.Process {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(r.env(), "SSH_AUTH_SOCK=", "DISPLAY=")
	return relaytest.Start(t, cmd)
}

// openSSH returns the options of the OpenSSH client, with the destination last.
func (r *relayServer) openSSH(user string) []string {
	host, port, _ := net.SplitHostPort(r.ssh)
	return []string{
		"-F", "none", "-i", r.key, "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=no",
		"-o", "UserKnownHostsFile=" + filepath.Join(r.dir, "known_hosts"), "-p", port, user + "@" + host,
	}
}

// library returns the arguments of testdata/ssh_client.py, which uses the Python library with the given name.
func (r *relayServer) library(name, user string, more ...string) []string {
	host, port, _ := net.SplitHostPort(r.ssh)
	return append([]string{"testdata/ssh_client.py", name, host, port, user, r.key}, more...)
}

const python = "/usr/bin/python3"

// forward starts a client that requests the forward f.
func (r *relayServer) forward(t *testing.T, client string, f forwarding) *relaytest.Process {
	t.Helper()
	if f.user == "" {
		f.user = "relay"
	}
	if f.port == "" {
		f.port = "80"
	}
	spec := f.port + ":" + f.to
	if f.bind != "" {
		spec = f.bind + ":" + spec
	}
	host, port, _ := net.SplitHostPort(r.ssh)
	none := []string{"-N"}
	if f.session {
		none = nil
	}
	flags := append(none, f.flags...)
	switch client {
	case "openssh":
		return r.runs(t, "ssh", append(append(flags, "-R", spec), r.openSSH(f.user)...)...)
	case "dbclient":
		return r.runs(t, "dbclient", append(flags, "-y", "-y", "-i", r.dropbearKey(), "-p", port, "-R", spec, f.user+"@"+host)...)
	case "plink":
		return r.runs(t, "plink", append(flags, "-batch", "-hostkey", r.hostKey(), "-i", r.puttyKey(), "-P", port, "-R", spec, f.user+"@"+host)...)
	}
	toHost, toPort, _ := net.SplitHostPort(f.to)
	if f.bind == "" {
		f.bind = "localhost"
	}
	c := r.runs(t, python, r.library(client, f.user, "forward", f.bind, f.port, toHost, toPort)...)
	// asyncssh notes the forward a moment after it has read the reply, and refuses channels until then. The script says
	// what became of the forward, unless the login has failed.
	relaytest.Poll(15*time.Second, func() bool {
		out := c.Out.String()
		return strings.Contains(out, "forwarded ") || strings.Contains(out, "refused ") || c.HasEnded()
	})
	return c
}

// command runs a command of relayd's SSH server with a client.
func (r *relayServer) command(t *testing.T, client, line string) *relaytest.Process {
	t.Helper()
	host, port, _ := net.SplitHostPort(r.ssh)
	switch client {
	case "openssh":
		return r.runs(t, "ssh", append(r.openSSH("relay"), line)...)
	case "dbclient":
		return r.runs(t, "dbclient", "-y", "-y", "-i", r.dropbearKey(), "-p", port, "relay@"+host, line)
	case "plink":
		return r.runs(t, "plink", "-batch", "-hostkey", r.hostKey(), "-i", r.puttyKey(), "-P", port, "relay@"+host, line)
	}
	return r.runs(t, python, r.library(client, "relay", "exec", line)...)
}

// serves waits until an alias answers with the body want. A client that takes the alias over may need seconds
// to start, and the previous tunnel answers until then. When the new tunnel is attached, it must answer every
// request.
func (r *relayServer) serves(t *testing.T, alias, want string) {
	t.Helper()
	got, wrong := "", map[string]string{} // wrong answers, by the result of tunnelSince before the request
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		since := r.tunnelSince(alias)
		if since == "" {
			continue
		}
		var status int
		if status, got, _ = r.call(alias, "/", "x"); got == want {
			// The variable since may identify the previous tunnel, because a new one may have been attached
			// between the two calls. So tunnelSince is called again.
			if other, answered := wrong[r.tunnelSince(alias)]; answered {
				t.Errorf("%s answered %.200q when the tunnel to %q was attached", alias, other, want)
			}
			return
		}
		if status == 200 {
			wrong[since] = got
		}
	}
	t.Fatalf("%s answered %.200q, want %q", alias, got, want)
}

// tunnelSince identifies the tunnel of an alias by its start and its client's address; "" = the alias is
// offline.
func (r *relayServer) tunnelSince(alias string) string {
	status, body := r.api("GET", "/aliases/"+alias, nil)
	var a struct {
		Online bool
		Tunnel *struct{ Since, RemoteAddr string }
	}
	if status != 200 || json.Unmarshal(body, &a) != nil || !a.Online || a.Tunnel == nil {
		return ""
	}
	return a.Tunnel.Since + a.Tunnel.RemoteAddr
}

// state returns the state of an alias from the API.
func (r *relayServer) state(alias string) string {
	status, body := r.api("GET", "/aliases/"+alias, nil)
	var a struct{ State string }
	if status != 200 || json.Unmarshal(body, &a) != nil {
		return ""
	}
	return a.State
}

// says starts a local server that answers every request with a text.
func says(t *testing.T, text string) (addr string) {
	t.Helper()
	return serveLocal(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		_, _ = io.WriteString(w, text)
	})
}
