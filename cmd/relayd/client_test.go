package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay/relaytest"
)

// relay returns a command of the client for the server h.
func (h *testServer) relay(args ...string) *exec.Cmd {
	h.t.Helper()
	cmd := exec.Command(relaytest.Program(h.t, "relay"), append(args,
		"--server", h.app.cfg.SSHAddr, "--identity", h.key, "--host-key", ssh.FingerprintSHA256(h.app.hostKeys[0].PublicKey()), "--no-color")...)
	cmd.Dir = h.t.TempDir()
	cmd.Env = []string{"HOME=" + cmd.Dir, "PATH=" + os.Getenv("PATH")}
	return cmd
}

// TestRelayUp: relay up opens a tunnel, prints the five lines about it, carries requests unchanged, logs them,
// and exits with 0 after Ctrl+C.
func TestRelayUp(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, flags map[string]string) {
		h := newTestServer(t, flags)
		l := newLocal(t, oddAnswer)
		_, port, _ := strings.Cut(l.addr, ":")
		up := h.relay("up", "--port", port, "--alias", "demo")
		out, errs := &relaytest.Buffer{}, &relaytest.Buffer{}
		up.Stdout, up.Stderr = out, errs
		if err := up.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = up.Process.Kill() })
		if !relaytest.Poll(20*time.Second, func() bool { return strings.Contains(out.String(), "Press Ctrl+C to disconnect\n") }) {
			t.Fatalf("relay up said %q and %q", out, errs)
		}
		want := "Connected to relay localhost\nAlias demo is online\n" +
			"Public URL    " + h.app.site.AliasURL("demo") + "\n" +
			"Local target  http://127.0.0.1:" + port + "\nPress Ctrl+C to disconnect\n"
		if got := out.String(); got != want {
			t.Errorf("stdout\n got %q\nwant %q", got, want)
		}
		if a := h.alias("demo"); !a.Online || a.Tunnel == nil || a.Tunnel.Target == nil || *a.Tunnel.Target != "http://127.0.0.1:"+port {
			t.Errorf("alias %+v, tunnel %+v", a, a.Tunnel)
		}

		if got := h.send(odd); got != oddAnswer {
			t.Errorf("answer %q", got)
		}
		id := h.newest("demo").ID
		line := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d \[201\] POST /a//b/\.\./c\?x=1&&y=%zz \(\d+ms\) ` + id + ` stripe$`)
		if !relaytest.Poll(10*time.Second, func() bool { return line.MatchString(out.String()) }) {
			t.Errorf("no log line in %q", out)
		}
		h.replays(h.newest("demo"), 2)
		h.asks(id)

		if err := up.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := up.Wait(); err != nil {
			t.Errorf("Ctrl+C: %v, %s", err, errs)
		}
		for i, got := range l.seen(t, 3) {
			if got != odd {
				t.Errorf("request %d: %q", i, got)
			}
		}
	})
}

// asks runs commands of relay over SSH and checks their output. id is the id of an event with the path
// /a//b/../c.
func (h *testServer) asks(id string) {
	h.t.Helper()
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"whoami"}, h.start.Admin},
		{[]string{"aliases"}, "demo"},
		{[]string{"events", "demo", "--json"}, `"` + id + `"`},
		{[]string{"show", id}, "/a//b/../c"},
		{[]string{"replay", id}, "201"},
		{[]string{"version"}, "relay"},
	} {
		out, err := h.relay(tc.args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), tc.want) {
			h.t.Errorf("relay %v: %v, want %q in:\n%s", tc.args, err, tc.want, out)
		}
	}
	out, err := h.relay("show", "evt_00000000000000000000000000").CombinedOutput()
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 4 {
		h.t.Errorf("an unknown event: %v, want exit 4: %s", err, out)
	}
}

// TestUpOutlivesItsReader: when the reader of the output of relay up has gone or has stopped reading, relay
// up keeps its tunnel and still ends at Ctrl+C.
func TestUpOutlivesItsReader(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, nil)
	for name, gone := range map[string]bool{"gone": true, "unread": false} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if !gone { // the output of relay up fills the 8 KiB that stay free
			fillPipe(t, r, w, 8<<10)
		}
		up := h.relay("up", "--echo", "--alias", name)
		up.Stdout, up.Stderr = w, w
		p := relaytest.Start(t, up)
		_ = w.Close()
		if !relaytest.Poll(20*time.Second, func() bool { return h.alias(name).Online }) {
			t.Fatalf("%s: never online", name)
		}
		if gone {
			_ = r.Close()
		}
		const path = "/0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
		for i := range 120 { // the log lines of these requests need more than the free 8 KiB
			answer := h.send("GET " + path + " HTTP/1.1\r\nHost: " + name + ".localhost\r\nConnection: close\r\n\r\n")
			if !strings.HasPrefix(answer, "HTTP/1.1 200 ") {
				t.Fatalf("%s: request %d got %q", name, i, answer)
			}
		}
		if err := up.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if code := p.Code(t, 30*time.Second); code != 0 {
			t.Errorf("%s: exit %d", name, code)
		}
		if n, _ := io.Copy(io.Discard, r); !gone && n < 60<<10 {
			t.Errorf("%d bytes do not fill a pipe: relay up never met a full one", n)
		}
		_ = r.Close()
	}
}

// fillPipe fills the pipe from r to w until only left bytes are free.
func fillPipe(t *testing.T, r, w *os.File, left int) {
	t.Helper()
	// A write also ends without a byte if the process pauses before it, so the pipe counts as full only if it has taken
	// the size of a pipe.
	for taken, full := 0, false; !full || taken < 60<<10; {
		if err := w.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		n, err := w.Write(make([]byte, 4<<10))
		if taken, full = taken+n, errors.Is(err, os.ErrDeadlineExceeded); err != nil && !full {
			t.Fatal(err)
		}
	}
	if _, err := io.ReadFull(r, make([]byte, left)); err != nil {
		t.Fatal(err)
	}
}
