package conformance

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"relay/relaytest"
)

// upClient is a running relay up.
type upClient struct {
	*relaytest.Process // the process, with separate buffers for stdout and stderr
	r                  *relayServer
}

// up runs relay up with these arguments and waits until its alias is online.
func (r *relayServer) up(args ...string) *upClient {
	r.t.Helper()
	return r.upBy(nil, args...)
}

// upBy is like up, but runs relay up through another command, such as one that enters a network namespace.
func (r *relayServer) upBy(before []string, args ...string) *upClient {
	r.t.Helper()
	words := append(before, relaytest.Program(r.t, "relay"), "up", "--server", r.ssh, "--identity", r.key, "--host-key", r.hostKey())
	words = append(words, args...)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = r.env()
	u := &upClient{relaytest.StartSeparate(r.t, cmd), r}
	r.waitFor(20*time.Second, "relay up to be online", func() bool {
		if u.HasEnded() {
			r.t.Fatalf("relay up ended: %s%s", u.Out, u.Err)
		}
		return strings.Contains(u.Out.String(), "Press Ctrl+C") || strings.Contains(u.Out.String(), `"type":"ready"`)
	})
	return u
}

// exit waits for the end of the process and returns its exit code.
func (u *upClient) exit() int {
	u.r.t.Helper()
	return u.Code(u.r.t, 25*time.Second)
}

func (u *upClient) says(what string) {
	u.r.t.Helper()
	u.r.waitFor(30*time.Second, "relay up to say "+what, func() bool { return strings.Contains(u.Err.String(), what) })
}

func (u *upClient) shows(what string) {
	u.r.t.Helper()
	u.r.waitFor(30*time.Second, "relay up to show "+what, func() bool { return strings.Contains(u.Out.String(), what) })
}

// back waits until a request passes through the alias, and returns the time that this took. Requests are sent
// concurrently, because a request to a silent tunnel takes 2 s.
func (r *relayServer) back(alias string, limit time.Duration) time.Duration {
	r.t.Helper()
	begun := time.Now()
	came := make(chan time.Duration, 1)
	var first time.Duration
	r.waitFor(limit, alias+" to serve", func() bool {
		go func() {
			if status, _, _ := r.call(alias, "/back", "x"); status == 200 {
				select {
				case came <- time.Since(begun):
				default: // the channel already holds the time of an earlier answer
				}
			}
		}()
		select {
		case first = <-came:
			return true
		case <-time.After(25 * time.Millisecond):
			return false
		}
	})
	return first
}

// TestUpComesBackAfterAKill kills relayd repeatedly and starts it again on the same ports. relay up
// reconnects each time, and also after an orderly restart.
func TestUpComesBackAfterAKill(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	u := r.up("--echo", "--alias", "back")
	var took []time.Duration
	for range size(2, 10) {
		<-time.After(1200 * time.Millisecond) // relay up counts a connection of less than a second as a failed try, and then waits longer
		r.stop(syscall.SIGKILL)
		r.start()
		took = append(took, r.back("back", 40*time.Second))
	}
	// A server that stops tells relay up when to connect again.
	r.stop(syscall.SIGTERM)
	r.start()
	inOrder := r.back("back", 40*time.Second)
	figure(t, "relay up after kill -9 and restart: back %v after readiness; after an orderly restart %v", rounded(took), inOrder.Round(10*time.Millisecond))
	if !strings.Contains(u.Err.String(), "connecting again") || !strings.Contains(u.Err.String(), "connected to the relay again") {
		t.Errorf("it said %s", u.Err)
	}
	_ = u.Cmd.Process.Signal(syscall.SIGINT)
	if code := u.exit(); code != 0 {
		t.Errorf("Ctrl+C: exit %d", code)
	}
}

// TestUpTakenOver starts a second relay up for the same alias. The second one serves at once, and the first
// one stops and does not take the alias back.
func TestUpTakenOver(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	hello := func(text string) string {
		return "http://" + serveLocal(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })
	}
	first := r.up("--target", hello("first"), "--alias", "taken")
	begun := time.Now()
	second := r.up("--target", hello("second"), "--alias", "taken")
	r.waitFor(10*time.Second, "the second to serve", func() bool {
		_, body, _ := r.call("taken", "/", "x")
		return body == "second"
	})
	took := time.Since(begun)
	code := first.exit()
	figure(t, "second relay up serves %v after its start; the first ends with exit %d", took.Round(10*time.Millisecond), code)
	if code != 5 || !strings.Contains(first.Err.String(), "alias taken was taken over by a newer connection") {
		t.Errorf("exit %d, it said %s", code, first.Err)
	}
	for range 5 {
		if _, body, _ := r.call("taken", "/", "x"); body != "second" {
			t.Errorf("%q serves", body)
		}
	}
	if text := second.Err.String(); strings.Contains(text, "connecting again") {
		t.Errorf("the second said %s", text)
	}
}

// TestUpStopsForGood: relay up ends with exit code 3 when its key is removed.
func TestUpStopsForGood(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	u := r.up("--echo", "--alias", "gone")
	fields := strings.Fields(r.relayd("key", "list"))
	for _, f := range fields {
		if strings.HasPrefix(f, "SHA256:") {
			r.relayd("key", "rm", f)
		}
	}
	if code := u.exit(); code != 3 {
		t.Errorf("key removed: exit %d, it said %s", code, u.Err)
	}
}

// TestUpOfOthers: relay up leaves out the aliases of other accounts, and continues with the aliases of its
// own account.
func TestUpOfOthers(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	r.relayd("user", "add", "bob")
	r.relayd("alias", "add", "bobs", "--user", "bob")
	u := r.up("--echo", "--alias", "bobs", "--alias", "mine")
	u.says("alias bobs was refused: ")
	r.back("mine", 10*time.Second)
	u.shows(" alias mine\n")
	cmd := exec.Command(relaytest.Program(r.t, "relay"), "up", "--echo", "--alias", "bobs", "--server", r.ssh, "--identity", r.key)
	cmd.Env = r.env()
	out, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 5 {
		t.Errorf("a foreign alias: exit %d, %s", code, out)
	}
}

// TestUpPrintsNothingRaw sends hostile paths, headers and reasons, and searches all output of relay
// for control bytes, in every format.
func TestUpPrintsNothingRaw(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	const n = 200
	var calls atomic.Int32
	tg := newTarget(t)
	tg.run(func(c net.Conn, br *bufio.Reader) {
		if _, err := readRaw(br); err == nil {
			_, _ = io.WriteString(c, hostileAnswer(int(calls.Add(1))))
		}
	})
	ups := map[string]*upClient{}
	for _, mode := range []string{"compact", "json"} {
		ups[mode] = r.up("--target", "http://"+tg.addr, "--alias", "raw-"+mode, "--output", mode)
	}
	answered, raw := map[string]int{}, 0
	for i := range n {
		for mode := range ups {
			if r.hostile("raw-"+mode, i) {
				answered[mode]++
			}
		}
	}
	for mode, u := range ups {
		if answered[mode] < n/2 {
			t.Fatalf("only %d hostile requests were let through", answered[mode])
		}
		r.waitFor(20*time.Second, "the log of "+mode, func() bool {
			lines := 0
			for line := range strings.Lines(u.Out.String()) {
				if strings.Contains(line, "evt_") {
					lines++
				}
			}
			return lines >= answered[mode]
		})
		raw += checkPrintable(t, mode, u.Out.String(), u.Err.String())
	}
	all := r.events("raw-compact", "")
	for _, args := range [][]string{{"events", "raw-compact", "-n", "200"}, {"show", all[0].ID}, {"show", all[len(all)-1].ID}} {
		for _, mode := range []string{"compact", "json"} {
			cmd := exec.Command(relaytest.Program(r.t, "relay"), append(args, "--server", r.ssh, "--identity", r.key, "--host-key", r.hostKey(), "--output", mode)...)
			cmd.Env = r.env()
			out, err := cmd.CombinedOutput()
			if err != nil || len(out) == 0 {
				t.Errorf("relay %v: %v %s", args, err, out)
			}
			raw += checkPrintable(t, args[0]+" "+mode, string(out))
		}
	}
	figure(t, "%d hostile requests, %d of them let through and answered with hostile heads, in log lines, JSON, events and show: outputs with control bytes %d",
		2*n, answered["compact"]+answered["json"], raw)
}

// hostile sends a request that would control a terminal, and reports whether relayd accepted it.
func (r *relayServer) hostile(alias string, i int) bool {
	r.t.Helper()
	path := fmt.Sprintf("/x%c\u009b31m\u202e%c\xff%d", rune(0x80+i%0x20), rune(0x200b+i%5), i)
	if i%4 == 0 {
		path += fmt.Sprintf("\x1b[2J%c\x7f", rune(1+i%8))
	}
	c := r.dial()
	defer c.Close()
	host := alias + ".localhost"
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nX-A: \t\u009b5m%c\u202e\r\nConnection: close\r\n\r\n", path, host, rune(0x80+i%0x20))
	answer, _ := io.ReadAll(c)
	return len(answer) > 9 && !strings.Contains(string(answer), "Relay-Error")
}

func hostileAnswer(i int) string {
	return fmt.Sprintf("HTTP/1.1 %d r\u009b5m\u202e%c\r\nX-A: \u009b5m%c\r\nContent-Length: 6\r\nConnection: close\r\n\r\n\x1b[1m\xff\a",
		200+i%300, rune(0x80+i%0x20), rune(0x80+i%0x20))
}

// checkPrintable counts the texts with bytes or characters that move a cursor or change the writing
// direction. No such text is allowed.
func checkPrintable(t *testing.T, what string, texts ...string) (raw int) {
	t.Helper()
	for _, text := range texts {
		i := strings.IndexFunc(text, func(c rune) bool {
			return c < ' ' && c != '\n' || c >= 0x7f && c < 0xa0 || c >= 0x200b && c <= 0x200f || c >= 0x202a && c <= 0x202e
		})
		if i >= 0 {
			t.Errorf("%s holds %+q", what, text[i:min(len(text), i+4)])
			raw++
		}
	}
	return raw
}

// upEvent is a line of --output json.
type upEvent struct {
	Type, Alias, Host, URL, Target, Message string
	Aliases                                 []struct{ Alias, Target string }
	Event                                   struct{ ID string }
	Attempt                                 struct{ Kind string }
}

// TestUpJSON: each line of --output json is one object, and the first lines, a request and a replay have the
// expected fields.
func TestUpJSON(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	cmd := exec.Command(relaytest.Program(r.t, "relay"), "up", "--echo", "--alias", "js", "--server", r.ssh, "--identity", r.key, "--output", "json")
	cmd.Env = r.env()
	out := relaytest.StartSeparate(t, cmd).Out
	seen := func(n int) (all []upEvent) {
		r.waitFor(20*time.Second, fmt.Sprintf("%d lines", n), func() bool {
			all = nil
			for line := range strings.Lines(out.String()) {
				var e upEvent
				if strings.HasSuffix(line, "\n") && json.Unmarshal([]byte(line), &e) != nil {
					t.Fatalf("no JSON: %s", line)
				}
				all = append(all, e)
			}
			return len(all) >= n
		})
		return all
	}
	first := seen(3)
	if first[0].Type != "hello" || first[0].Host == "" || first[1].Type != "online" || first[1].Alias != "js" || first[1].URL == "" ||
		first[2].Type != "ready" || len(first[2].Aliases) != 1 || !strings.HasPrefix(first[2].Aliases[0].Target, "http://127.0.0.1:") {
		t.Errorf("%+v", first)
	}
	r.call("js", "/hook", "x")
	e := seen(4)[3]
	if e.Type != "request" || !strings.HasPrefix(e.Event.ID, "evt_") || e.Attempt.Kind != "original" {
		t.Errorf("%+v", e)
	}
	r.replay(e.Event.ID)
	if e := seen(5)[4]; e.Attempt.Kind != "replay" {
		t.Errorf("%+v", e)
	}
}
