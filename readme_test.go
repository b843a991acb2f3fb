package relay_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"relay/relaytest"
)

// Every step of the README works as written, except for ports and folders, and prints the output that
// the README shows.
func TestFirstStepsOfReadme(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Fatal("this test drives ssh and curl; make setup installs them")
	}
	_, steps, _ := strings.Cut(readPages(t)["README.md"], "## Try it on your machine")
	steps, _, _ = strings.Cut(steps, "\n## ")
	var lines []string
	var shown []*regexp.Regexp // expected output of each line
	for _, block := range codeBlock.FindAllStringSubmatch(steps, -1) {
		if block[1] == "sh" {
			lines = append(lines, strings.TrimSpace(block[2]))
			continue
		}
		shown = append(shown, pattern(block[2]))
	}
	if len(lines) != 5 || len(shown) != 5 || lines[0] != "make run" {
		t.Fatalf("the first steps are %q, and print %q", lines, shown)
	}

	dir := t.TempDir()
	key, web, sshAddr := filepath.Join(dir, ".ssh", "id_ed25519"), relaytest.FreeAddr(t), relaytest.FreeAddr(t)
	_, webPort, _ := net.SplitHostPort(web)
	_, sshPort, _ := net.SplitHostPort(sshAddr)
	local, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mended atomic.Bool
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !mended.Load() {
			http.NotFound(w, r)
		}
	})}
	go func() { _ = server.Serve(local) }()
	t.Cleanup(func() { _ = server.Close() })
	_, localPort, _ := net.SplitHostPort(local.Addr().String())
	if err := os.MkdirAll(filepath.Dir(key), 0o700); err != nil {
		t.Fatal(err)
	}
	// ssh reads the home directory of the account from the system and ignores HOME, so the options name the
	// files. It needs -tt because its input is no terminal.
	ours := "ssh -tt -F none -i " + key + " -o IdentitiesOnly=yes -o StrictHostKeyChecking=accept-new -o UserKnownHostsFile=" + filepath.Join(dir, "known_hosts")
	replace := strings.NewReplacer("make run", "bin/relayd serve --data-dir .relay --admin-addr off --http-addr "+web+" --ssh-addr "+sshAddr,
		"ssh -p 2222", ours+" -p "+sshPort, ":8080", ":"+webPort, "localhost:3000", "localhost:"+localPort,
		"curl", "curl -s --resolve stripe-dev.localhost:"+webPort+":127.0.0.1")
	command := func(line string) *exec.Cmd {
		c := exec.Command("sh", "-c", "exec "+replace.Replace(line))
		c.Dir, c.Env = dir, append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+filepath.Join(dir, ".config"), "SSH_AUTH_SOCK=", "RELAY_TOKEN=", "RELAY_SERVER="+sshAddr)
		return c
	}
	run := func(line string) string {
		t.Helper()
		out, err := command(line).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
		return plainText(string(out))
	}
	prints := func(i int, p *relaytest.Process) {
		t.Helper()
		relaytest.Until(t, 20*time.Second, fmt.Sprintf("%s to print %s", lines[i], shown[i]), func() bool {
			return shown[i].MatchString(strings.ReplaceAll(plainText(p.Out.String()), ":"+webPort, ":8080"))
		})
	}
	if err := os.Symlink(relaytest.Programs(t), filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	run("ssh-keygen -q -t ed25519 -N '' -f " + key)
	shown[0] = regexp.MustCompile(strings.NewReplacer("alice@laptop", `\S+`, "alice", `\S+`, "2222", sshPort).Replace(shown[0].String()))
	relayd := relaytest.Start(t, command(lines[0]))
	prints(0, relayd)
	relaytest.Until(t, 20*time.Second, "the alias of the README to be that of the commands that relayd prints", func() bool {
		out := relayd.Out.String()
		return strings.Contains(out, "/relay up --alias stripe-dev --echo --server localhost:"+sshPort+"\n") &&
			strings.Contains(out, "\nssh -p "+sshPort+" localhost replay stripe-dev\n")
	})

	tunnel := relaytest.Start(t, command(lines[1]))
	prints(1, tunnel)
	run(lines[2])
	prints(2, tunnel)
	mended.Store(true)
	if out := run(lines[3]); !shown[3].MatchString(out) {
		t.Errorf("%s prints %q, and the README shows %s", lines[3], out, shown[3])
	}
	_ = tunnel.Cmd.Process.Kill()
	relaytest.Until(t, 20*time.Second, lines[4]+" to be queued", func() bool { return shown[4].MatchString(run(lines[4])) })

	up := regexp.MustCompile("`(bin/relay up [^`]+)`").FindStringSubmatch(steps)
	if up == nil {
		t.Fatal("the steps have no `bin/relay up`")
	}
	echo := relaytest.Start(t, command(up[1]))
	relaytest.Until(t, 20*time.Second, "the echo of "+up[1], func() bool {
		return strings.Contains(run(lines[2]), "invoice.paid") && strings.Contains(echo.Out.String(), "evt_")
	})
}

// pattern matches the output that a block of a page shows, with any time, duration and id.
func pattern(block string) *regexp.Regexp {
	text := regexp.QuoteMeta(strings.TrimSpace(block))
	for _, of := range [][2]string{
		{`\d\d:\d\d:\d\d`, `\d\d:\d\d:\d\d`}, {`\\\(\d+ms\\\)`, `\([\d.]+m?s\)`}, {`evt_01k…`, `evt_\w+`}, {`attempt \d+`, `.*attempt \d+`}, {`…`, `.*`}, {`\n`, `\s+`},
	} {
		text = regexp.MustCompile(of[0]).ReplaceAllLiteralString(text, of[1])
	}
	return regexp.MustCompile(text)
}

// plainText removes the colours and line ends of a terminal.
func plainText(s string) string {
	return strings.ReplaceAll(regexp.MustCompile(`\x1b\[[0-9;?]*[a-zA-Z]`).ReplaceAllString(s, ""), "\r", "")
}
