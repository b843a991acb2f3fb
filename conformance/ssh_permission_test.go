package conformance

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"relay/relaytest"
)

// dials logs in with a private key file.
func (r *relayServer) dials(t *testing.T, key string) *ssh.Client {
	t.Helper()
	pem, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(pem)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ssh.Dial("tcp", r.ssh, &ssh.ClientConfig{
		User: "relay", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// asks runs a command on a connection.
func asks(t *testing.T, c *ssh.Client, line string) (stdout, stderr string, code int) {
	t.Helper()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var out, bad strings.Builder
	s.Stdout, s.Stderr = &out, &bad
	if err := s.Run(line); err != nil {
		exit, ok := err.(*ssh.ExitError)
		if !ok {
			t.Fatalf("%s: %v", line, err)
		}
		code = exit.ExitStatus()
	}
	return out.String(), bad.String(), code
}

// TestSSHPermissionWalk runs every command in the help of the server, with every flag, as one account on the
// resources of another account. No command succeeds, and each answer is the same as for an unknown resource.
func TestSSHPermissionWalk(t *testing.T) {
	t.Parallel()
	storesInFull(t, func(t *testing.T, databaseURL string) {
		r := startRelay(t, databaseURL)
		mallory := filepath.Join(t.TempDir(), "id")
		relaytest.WriteKey(t, mallory)
		r.relayd("user", "add", "mallory", "--key", mallory+".pub")
		r.tunnel("mine", says(t, "x"))
		r.call("mine", "/secret-path", "secret-body")
		id := r.latest("mine").ID
		r.call("mine", "/", "x")
		other, owner := r.dials(t, mallory), r.dials(t, r.key)
		w := &walk{t: t, other: other, owner: owner, id: id, unknown: id[:len(id)-4] + "0000"}
		for _, c := range w.commands() {
			w.command(c)
		}
		for _, line := range []string{"show %s", "replay %s --json", "member list %s", "member add %s mallory", "member rm %s admin"} {
			out, bad, code := asks(t, other, fmt.Sprintf(line, "mine"))
			outNone, badNone, codeNone := asks(t, other, fmt.Sprintf(line, "none"))
			if code != 4 || out != outNone || code != codeNone || sameWords(bad) != strings.ReplaceAll(sameWords(badNone), "none", "mine") {
				t.Errorf("%s: exit %d, foreign %q %q, unknown %q %q", line, code, out, bad, outNone, badNone)
			}
		}
		w.token(r)
		for _, line := range []string{"mine", "none"} {
			ok, payload, err := other.SendRequest("tcpip-forward", true, ssh.Marshal(struct {
				Bind string
				Port uint32
			}{line, 80}))
			if line == "mine" && (ok || len(payload) > 0) || err != nil {
				t.Errorf("forward of %s: %v %q %v", line, ok, payload, err)
			}
		}
		if n := len(r.events("mine", "")); n != 2 {
			t.Errorf("%d events", n)
		}
		t.Logf("%d commands walked, on what is foreign and on what is unknown", w.walked)
	})
}

// walk runs all commands as one account (other) on the resources of another account (owner).
type walk struct {
	t            *testing.T
	other, owner *ssh.Client
	id, unknown  string // ids of an event: a real and an unknown one
	walked       int
}

// token checks that a token of the other account sees no more than the account's SSH key.
func (w *walk) token(r *relayServer) {
	out, bad, code := asks(w.t, w.other, "token --name walk --json")
	var token struct{ Token string }
	if err := json.Unmarshal([]byte(out), &token); err != nil || code != 0 {
		w.t.Fatalf("token: exit %d, %v: %s", code, err, bad)
	}
	own := r.on(w.t)
	own.token = token.Token
	for _, path := range []string{"/aliases/mine", "/events/" + w.id, "/events?alias=mine"} {
		if status, body := own.api("GET", path, nil); status != 404 {
			w.t.Errorf("%s with a token of the other account: %d %s", path, status, body)
		}
	}
}

// listed is a command in the JSON output of help.
type listed struct {
	Name, Usage string
	Flags       []listedFlag
}

type listedFlag struct{ Name, Value string }

func (w *walk) commands() []listed {
	text, _, code := asks(w.t, w.other, "help --json")
	var list struct{ Data []listed }
	if err := json.Unmarshal([]byte(text), &list); err != nil || code != 0 || len(list.Data) < 12 {
		w.t.Fatalf("help: exit %d, %v: %s", code, err, text)
	}
	return list.Data
}

// needs returns the flags that a command requires.
func (c listed) needs() string {
	switch c.Name {
	case "mark":
		return " --note x"
	case "send":
		return " -X POST"
	}
	return ""
}

// lines returns the texts that follow the argument in each tried form of a command: each flag, with and without
// --json.
func (c listed) lines() []string {
	values := map[string]string{"N": "5", "PATH": "/", "METHOD": "POST", "DURATION": "1s", "FORMAT": "json", "NAME": "stripe", "URL": "https://a.example/"}
	filters := map[string]string{
		"--method": "POST", "--status": "200", "--path": "/", "--state": "delivered", "--provider": "stripe", "--type": "x",
		"--replayed": "true", "--pinned": "true", "--label": "x", "--note": "x", "--since": "1h", "--until": "1h", "--q": "x",
		"--origin": "send", "--signature": "valid", "--handshake": "slack", "--from": "evt_00000000000000000000000000", "--header": "'A: b'", "--data": "x",
		"--remove-header": "A", "--sample": "stripe/invoice.paid", "--set": "a=1", "--request": "POST", "--sign": "stripe",
	}
	lines := []string{c.needs(), c.needs() + " --json"}
	for _, f := range slices.DeleteFunc(slices.Clone(c.Flags), func(f listedFlag) bool { return f.Name == "--json" }) {
		flag := " " + f.Name
		if f.Value != "" {
			flag += " " + cmp.Or(values[f.Value], filters[f.Name])
		}
		if c.Name == "send" {
			flag = c.needs() + strings.Replace(flag, "--sign ", "--sign=", 1)
		}
		lines = append(lines, flag, flag+" --json")
	}
	return lines
}

func (w *walk) command(c listed) {
	foreign, none := "mine", "none"
	switch {
	case strings.Contains(c.Usage, " ALIAS"):
	case strings.Contains(c.Usage, " ID"):
		foreign, none = w.id, w.unknown
		want := 0
		if c.Name == "verify" { // verify exits with 1, because the event has no signature
			want = 1
		}
		if _, bad, code := asks(w.t, w.owner, c.Name+" "+w.id+c.needs()); code != want {
			w.t.Errorf("the owner's %s: exit %d: %s", c.Name, code, bad)
		}
	default: // without an argument, the output may contain only data of the account
		if out, bad, _ := asks(w.t, w.other, c.Name); strings.Contains(out+bad, "mine") || strings.Contains(out+bad, "secret-") {
			w.t.Errorf("%s shows what is another's: %s%s", c.Name, out, bad)
		}
		return
	}
	for _, line := range c.lines() {
		w.walked++
		out, bad, code := asks(w.t, w.other, c.Name+" "+foreign+line)
		outNone, badNone, codeNone := asks(w.t, w.other, c.Name+" "+none+line)
		if code != 4 || out != "" {
			w.t.Errorf("%s %s%s: exit %d: %s%s", c.Name, foreign, line, code, out, bad)
		}
		if out != outNone || code != codeNone || sameWords(bad) != sameWords(badNone) {
			w.t.Errorf("%s%s: foreign %q, unknown %q", c.Name, line, bad, badNone)
		}
	}
}

var requestID = regexp.MustCompile(`"requestId":"[^"]*"`)

func sameWords(s string) string { return requestID.ReplaceAllString(s, "") }

// TestSSHToken: a token that was created over SSH works, with and without --json, and the audit shows it.
func TestSSHToken(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	out, bad, code := asks(t, r.dials(t, r.key), "token --name 'the laptop' --json")
	var token struct{ ID, Token, Name string }
	if err := json.Unmarshal([]byte(out), &token); err != nil || code != 0 || token.Name != "the laptop" {
		t.Fatalf("exit %d, %v: %s%s", code, err, out, bad)
	}
	r.token = token.Token
	r.must(200, "GET", "/aliases", nil)
	if out, _, code = asks(t, r.dials(t, r.key), "token"); code != 0 {
		t.Fatalf("exit %d", code)
	}
	r.token = strings.TrimSuffix(out, "\n")
	r.must(200, "GET", "/aliases", nil)
	if audit := r.relayd("audit"); !strings.Contains(audit, "token.add") || !strings.Contains(audit, "ssh:admin") {
		t.Errorf("audit:\n%s", audit)
	}
}

// TestSSHWaitAndReplay: wait prints a delivered event, replay compares its response with the first one, and
// export works in every format.
func TestSSHWaitAndReplay(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	r.tunnel("hook", says(t, "hello"))
	c := r.dials(t, r.key)
	type answer struct {
		out  string
		code int
	}
	got := make(chan answer, 1)
	go func() {
		out, bad, code := asks(t, c, "wait hook --path /wanted --json --timeout 30s")
		got <- answer{out + bad, code}
	}()
	var a answer
	// The requests are repeated, because wait prints no event from before it began.
	for n := 0; a.out == "" && n < 1000; n++ {
		r.call("hook", "/other", "x")
		r.call("hook", "/wanted", "x")
		select {
		case a = <-got:
		default:
		}
	}
	var rec record
	if err := json.Unmarshal([]byte(a.out), &rec); err != nil || a.code != 0 || rec.Path != "/wanted" || rec.State != "delivered" || len(rec.Attempts) != 1 {
		t.Fatalf("exit %d, %v: %.600s", a.code, err, a.out)
	}
	out, bad, code := asks(t, c, "replay "+rec.ID)
	if code != 0 || !strings.Contains(out, "attempt 2 (replay)\ncompared with attempt 1: 200 in both, same body, ") {
		t.Errorf("exit %d: %s%s", code, out, bad)
	}
	for _, format := range []string{"curl", "har", "json", "go", "js", "python"} {
		if out, bad, code := asks(t, c, "export "+rec.ID+" --format "+format); code != 0 || !strings.Contains(out, "/wanted") {
			t.Errorf("%s: exit %d: %s%s", format, code, out, bad)
		}
	}
}
