package conformance

import (
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"relay/relaytest"
)

// TestSSHRows checks a relayd with the common SSH clients. A row is one required behaviour; the names of the
// subtests begin with the numbers of their rows, C01 to C33. Other tests cover the rows about keys and logins.
func TestSSHRows(t *testing.T) {
	t.Parallel()
	// A client is stale 3 s after a ping without an answer, and a silent client stays connected for ten
	// minutes.
	r := startRelay(t, "", "RELAY_PING_INTERVAL=1s", "RELAY_PING_TIMEOUT=3s", "RELAY_STALE_CLOSE=10m", "RELAY_MAX_ALIASES=200", "RELAY_MAX_BODY=256MiB")
	r.relayd("user", "add", "bob")
	r.relayd("alias", "add", "bobs", "--user", "bob")
	r.dropbearKey()
	r.puttyKey()
	rows := func(t *testing.T, wait bool, rows ...row) {
		for _, row := range rows {
			t.Run(row.name, func(t *testing.T) {
				if wait {
					t.Parallel()
				}
				row.run(t, r.on(t))
			})
		}
	}
	rows(t, false,
		row{"C01_C03_forward", rowForward},
		row{"C02_port_zero", rowPortZero},
		row{"C04_alias_as_user", rowUser},
		row{"C05_capitals", rowCapitals},
		row{"C06_refused", rowRefused},
		row{"C12_C15_takeover_and_death", rowTakeover},
		row{"C13_twice", rowTwice},
		row{"C14_cancel", rowCancel},
		row{"C15_death_while_calls_come", rowDeath},
		row{"C17_local_down", rowLocalDown},
		row{"C18_nothing_said", rowNothingSaid},
		row{"C20_no_forward", rowNoForward},
		row{"C22_commands", rowCommands},
		row{"C23_direct", rowDirect},
		row{"C24_C25_not_offered", rowNotOffered},
		row{"C27_flood_of_requests", rowFlood},
		row{"C32_removed", rowRemoved},
		row{"C32_key_removed", rowKeyRemoved},
		row{"C33_rekey", rowRekey},
	)
	t.Run("waiting", func(t *testing.T) { // these rows mostly wait, so they run in parallel
		rows(t, true,
			row{"C07_C21_unused_and_stdin_at_its_end", rowUnused},
			row{"C16_C19_silence", rowSilence},
			row{"C26_client_asks_for_life", rowAlive},
		)
	})
	t.Run("C30_C31_stop_and_restart", func(t *testing.T) { rowRestart(t, r) }) // the last row, because it stops the server
}

// row is one behaviour that TestSSHRows requires.
type row struct {
	name string
	run  func(t *testing.T, r *relayServer)
}

// each runs f as a subtest for each of the given clients.
func each(t *testing.T, clients []string, f func(t *testing.T, client string)) {
	for _, client := range clients {
		t.Run(client, func(t *testing.T) { f(t, client) })
	}
}

func rowForward(t *testing.T, r *relayServer) {
	each(t, everyClient, func(t *testing.T, client string) {
		c := r.forward(t, client, forwarding{bind: "c1-" + client, to: says(t, client)})
		r.serves(t, "c1-"+client, client)
		if c.HasEnded() {
			t.Error("the client has ended")
		}
		if client == "plink" {
			relaytest.Until(t, 10*time.Second, "greeting", func() bool { return strings.Contains(c.Out.String(), "hello admin") })
		}
	})
}

func rowPortZero(t *testing.T, r *relayServer) {
	each(t, []string{"openssh", "dbclient", "paramiko", "asyncssh"}, func(t *testing.T, client string) {
		c := r.forward(t, client, forwarding{bind: "c2-" + client, port: "0", to: says(t, client)})
		r.serves(t, "c2-"+client, client)
		relaytest.Until(t, 10*time.Second, "the port", func() bool {
			return strings.Contains(c.Out.String(), "Allocated port 80 ") || strings.Contains(c.Out.String(), "forwarded 80")
		})
	})
}

func rowUser(t *testing.T, r *relayServer) {
	each(t, programs, func(t *testing.T, client string) {
		r.forward(t, client, forwarding{user: "C4-" + client, to: says(t, client)})
		r.serves(t, "c4-"+client, client)
	})
}

func rowCapitals(t *testing.T, r *relayServer) {
	each(t, everyClient, func(t *testing.T, client string) {
		r.forward(t, client, forwarding{bind: "C5-" + strings.ToUpper(client) + ".", to: says(t, client)})
		r.serves(t, "c5-"+client, client)
	})
}

// rowRefused: names of other accounts, invalid names and reserved names are refused, and each client shows
// its message.
func rowRefused(t *testing.T, r *relayServer) {
	words := map[string]string{
		"openssh":  "remote port forwarding failed for listen port 80",
		"dbclient": "Remote TCP forward request failed",
		"plink":    "Remote port forwarding from",
		"paramiko": "refused TCP forwarding request denied",
		"asyncssh": "refused Failed to create remote TCP listener",
	}
	each(t, everyClient, func(t *testing.T, client string) {
		binds := []string{"bobs", "bad_alias$", "admin"}
		if client == "paramiko" || client == "asyncssh" {
			binds = binds[:1] // these clients start slowly, so they try only one name
		}
		for _, bind := range binds {
			f := forwarding{bind: bind, to: "127.0.0.1:1"}
			if client == "plink" {
				f.flags = []string{"-v"} // without -v, plink prints nothing
			}
			c := r.forward(t, client, f)
			relaytest.Until(t, 15*time.Second, "words of refusal", func() bool { return strings.Contains(c.Out.String(), words[client]) })
		}
	})
	t.Run("ExitOnForwardFailure", func(t *testing.T) {
		flags := []string{"-o", "ExitOnForwardFailure=yes"}
		if code := r.forward(t, "openssh", forwarding{bind: "bobs", to: "127.0.0.1:1", flags: flags}).Code(t, 15*time.Second); code != 255 {
			t.Errorf("openssh: exit %d", code)
		}
		if code := r.forward(t, "dbclient", forwarding{bind: "bobs", to: "127.0.0.1:1", flags: flags}).Code(t, 15*time.Second); code != 1 {
			t.Errorf("dbclient: exit %d", code)
		}
	})
	t.Run("session", func(t *testing.T) {
		c := r.forward(t, "openssh", forwarding{bind: "bobs", to: "127.0.0.1:1", session: true})
		if code := c.Code(t, 15*time.Second); code != 5 || !strings.Contains(c.Out.String(), `there is no alias "bobs" here that you may use`) {
			t.Errorf("exit %d: %s", code, c.Out)
		}
	})
}

// logged matches a line of the live log; plink requests a terminal, so it gets colors.
var logged = regexp.MustCompile(`\d\d:\d\d:\d\d (\x1b\[32m)?\[200\](\x1b\[0m)? POST / \(\d+ms\) evt_`)

// rowUnused: a connection without an accepted forward and without a session ends after 5 s. A connection
// stays open if it has a forward and a session whose stdin has ended.
func rowUnused(t *testing.T, r *relayServer) {
	stay := map[string]*relaytest.Process{}
	for _, client := range []string{"openssh", "dbclient", "plink"} {
		f := forwarding{bind: "c21-" + client, to: says(t, client), session: true}
		if client == "dbclient" {
			f.flags = []string{"-T"} // without -T, dbclient requests a terminal
		}
		stay[client] = r.forward(t, client, f)
		stay[client].In.Close()
		r.serves(t, "c21-"+client, client)
	}
	leave := map[string]*relaytest.Process{}
	for _, client := range everyClient {
		leave[client] = r.forward(t, client, forwarding{bind: "bobs", to: "127.0.0.1:1"})
	}
	for client, c := range leave {
		if code := c.Code(t, 25*time.Second); code == 0 {
			t.Errorf("%s: exit 0", client)
		}
	}
	if out := leave["openssh"].Out.String(); !strings.Contains(out, "closed by remote host") {
		t.Errorf("openssh: %s", out)
	}
	for client, c := range stay {
		if c.HasEnded() {
			t.Errorf("%s ended with its stdin: %s", client, c.Out)
			continue
		}
		r.serves(t, "c21-"+client, client)
		relaytest.Until(t, 10*time.Second, "the log of "+client, func() bool { return logged.MatchString(c.Out.String()) })
	}
}

// rowTakeover: an alias moves from client to client, and each old client is disconnected. When the last
// client dies, the alias is offline.
func rowTakeover(t *testing.T, r *relayServer) {
	var old *relaytest.Process
	for _, client := range everyClient {
		c := r.forward(t, client, forwarding{bind: "c12", to: says(t, client), session: client == "openssh"})
		r.serves(t, "c12", client)
		if old != nil {
			if code := old.Code(t, 20*time.Second); code == 0 && !strings.Contains(old.Cmd.Path, "plink") {
				t.Errorf("%v: exit 0 after it was taken over", old.Cmd.Args[0])
			}
			if strings.HasSuffix(old.Cmd.Path, "/ssh") && !strings.Contains(old.Out.String(), "taken over by a newer connection") {
				t.Errorf("the session was told %s", old.Out)
			}
		}
		old = c
	}
	old.Kill()
	relaytest.Until(t, 5*time.Second, "offline", func() bool { return r.state("c12") == "offline" })
}

func rowTwice(t *testing.T, r *relayServer) {
	r.forward(t, "openssh", forwarding{bind: "c13", to: says(t, "first"), flags: []string{"-R", "c13:81:" + says(t, "second")}})
	// ssh requests the forward in the field flags first, so relayd refuses the forward of the fields bind and to.
	r.serves(t, "c13", "second")
}

func rowCancel(t *testing.T, r *relayServer) {
	t.Run("openssh", func(t *testing.T) {
		socket := filepath.Join(relaytest.SocketDir(t), "s")
		to := says(t, "x")
		r.forward(t, "openssh", forwarding{bind: "c14-keep", to: to, flags: []string{"-M", "-S", socket}})
		r.serves(t, "c14-keep", "x")
		for _, x := range []struct{ do, state string }{{"forward", "online"}, {"cancel", "offline"}} {
			args := append([]string{"-S", socket, "-O", x.do, "-R", "c14-openssh:80:" + to}, r.openSSH("relay")...)
			if code := r.runs(t, "ssh", args...).Code(t, 15*time.Second); code != 0 {
				t.Errorf("-O %s: exit %d", x.do, code)
			}
			relaytest.Until(t, 10*time.Second, x.state, func() bool { return r.state("c14-openssh") == x.state })
		}
		// Row C22: ssh runs a command on the connection that already has the forwards.
		c := r.runs(t, "ssh", append(append([]string{"-S", socket}, r.openSSH("relay")...), "whoami")...)
		if code := c.Code(t, 15*time.Second); code != 0 || !strings.Contains(c.Out.String(), "admin") {
			t.Errorf("exit %d: %s", code, c.Out)
		}
		r.serves(t, "c14-keep", "x")
	})
	each(t, []string{"paramiko", "asyncssh"}, func(t *testing.T, client string) {
		c := r.forward(t, client, forwarding{bind: "c14-" + client, to: says(t, client)})
		r.serves(t, "c14-"+client, client)
		_, _ = io.WriteString(c.In, "cancel\n")
		relaytest.Until(t, 10*time.Second, "offline", func() bool { return r.state("c14-"+client) == "offline" })
	})
}

// rowNoForward: a session without a forward shows help.
func rowNoForward(t *testing.T, r *relayServer) {
	each(t, []string{"openssh", "dbclient", "plink"}, func(t *testing.T, client string) {
		c := r.command(t, client, "")
		if code := c.Code(t, 15*time.Second); code != 1 || !strings.Contains(c.Out.String(), "replay-queued") {
			t.Errorf("exit %d: %s", code, c.Out)
		}
	})
}

func rowCommands(t *testing.T, r *relayServer) {
	each(t, everyClient, func(t *testing.T, client string) {
		for _, x := range []struct {
			line string
			code int
			text string
		}{
			{"whoami --json", 0, `{"user":"admin"`},
			{"evnts x", 2, " events"},
			{"show evt_wrong", 4, "relay: not found, or your account has no access"},
			{"replay a b", 2, "replay takes one event id"},
			{"events 'a b' -x", 2, "unknown shorthand flag"},
		} {
			if x.code != 0 && (client == "paramiko" || client == "asyncssh") {
				continue // these clients start slowly, so they run only the commands that succeed
			}
			c := r.command(t, client, x.line)
			if code := c.Code(t, 15*time.Second); code != x.code || !strings.Contains(c.Out.String(), x.text) {
				t.Errorf("%s: exit %d: %s", x.line, code, c.Out)
			}
		}
	})
}
