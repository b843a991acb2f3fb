package relay_test

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"relay/relaytest"
)

// The commands of the README's first steps work as they stand there, but for their ports
// and what they would keep on the machine: the webhook is answered by the echo of
// `relay up`, and replayed by both ways that the README names.
func TestFirstStepsOfReadme(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Fatal("this test drives ssh and curl; make setup installs them")
	}
	_, steps, _ := strings.Cut(readPages(t)["README.md"], "## Three commands")
	steps, _, _ = strings.Cut(steps, "\n## ")
	var lines []string
	for _, block := range codeBlock.FindAllStringSubmatch(steps, -1) {
		lines = append(lines, strings.Split(strings.TrimSpace(block[2]), "\n")...)
	}
	if len(lines) != 6 || lines[0] != "make run" {
		t.Fatalf("the first steps are %q", lines)
	}

	dir := t.TempDir()
	key, web, sshAddr := filepath.Join(dir, ".ssh", "id_ed25519"), relaytest.FreeAddr(t), relaytest.FreeAddr(t)
	_, webPort, _ := net.SplitHostPort(web)
	_, sshPort, _ := net.SplitHostPort(sshAddr)
	local, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.NotFoundHandler()}
	go func() { _ = server.Serve(local) }()
	t.Cleanup(func() { _ = server.Close() })
	_, localPort, _ := net.SplitHostPort(local.Addr().String())
	if err := os.MkdirAll(filepath.Dir(key), 0o700); err != nil {
		t.Fatal(err)
	}
	// ssh reads the home directory of the account and not HOME.
	ours := "ssh -F none -i " + key + " -o IdentitiesOnly=yes -o StrictHostKeyChecking=accept-new -o UserKnownHostsFile=" + filepath.Join(dir, "known_hosts")
	replace := strings.NewReplacer("make run", "bin/relayd serve --data-dir .relay --admin-addr off --http-addr "+web+" --ssh-addr "+sshAddr,
		"ssh -p 2222", ours+" -p "+sshPort, ":8080", ":"+webPort, "localhost:3000", "localhost:"+localPort)
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
		return string(out)
	}
	if err := os.Symlink(relaytest.Programs(t), filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	run("ssh-keygen -q -t ed25519 -N '' -f " + key)
	daemon := relaytest.Start(t, command(lines[0]))
	relaytest.Until(t, 10*time.Second, "relayd's greeting", func() bool { return strings.Contains(daemon.Out.String(), "first account created") })

	tunnel := relaytest.Start(t, command(lines[1]))
	send := strings.Replace(lines[2], "curl", "curl -s -w ' %{http_code}' --resolve stripe-dev.localhost:"+webPort+":127.0.0.1", 1)
	answer := ""
	relaytest.Until(t, 10*time.Second, "an answer of the local server through the ssh tunnel", func() bool {
		answer = run(send)
		return strings.HasSuffix(answer, "page not found\n 404")
	})
	_ = tunnel.Cmd.Process.Kill()

	up := relaytest.Start(t, command(lines[3]))
	relaytest.Until(t, 20*time.Second, "an answer of the echo through relay up", func() bool {
		return strings.HasSuffix(run(send), " 200") && regexp.MustCompile(`evt_\w+`).MatchString(up.Out.String())
	})
	id := regexp.MustCompile(`evt_\w+`).FindString(up.Out.String())
	for _, line := range lines[4:] {
		line, _, _ = strings.Cut(line, "#")
		if out := run(strings.Replace(line, "evt_01k…", id, 1)); !strings.Contains(out, "200") {
			t.Errorf("%s says %q", line, out)
		}
	}
}
