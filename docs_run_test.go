package relay_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"relay/relaytest"
)

// notRun lists the command lines of the pages that TestCommandsOfDocs does not run, with the reason.
var notRun = [...]struct {
	line   *regexp.Regexp
	reason string
}{
	{regexp.MustCompile(`^(sudo|docker|tar|sha256sum|read) |^relayd serve$`), "needs a release, root or Docker: TestPackages installs one"},
	{regexp.MustCompile(`^(dig|lego|pg_dump|pg_restore|autossh|make|claude) |--tls files`), "drives a program of others, or a domain"},
	{regexp.MustCompile(`relay\.example\.com(/readyz|$)| login |hooks\.example\.net`), "needs a domain or a person: TestLogin"},
	{regexp.MustCompile(`link@HOST`), "needs a person: TestEnrolment"},
	{regexp.MustCompile(`^(while true; do|  ssh -N |  sleep 2|done$)`), "is a loop without an end"},
	{regexp.MustCompile(`^AUTOSSH_GATETIME`), "drives autossh"},
	{regexp.MustCompile(`^relay verify |^relay send .*--sign`), "is about an event of a sender that signs: TestScripts"},
	{regexp.MustCompile(`^relay secret rm `), "names a secret of the reader: TestScripts"},
}

// endless are the command lines that run until they are stopped.
var endless = regexp.MustCompile(`^(ssh -N |relayd serve|relay up|relay events .* -f|curl -sN)`)

// verdict matches the command lines that may fail because of the state of the machine.
var verdict = regexp.MustCompile(`^relayd? doctor`)

// TestCommandsOfDocs runs the shell commands of the pages in docs, with other hosts, folders, ids and webhook
// senders. A block of text after the commands must match their output.
func TestCommandsOfDocs(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"curl", "jq", "ssh", "timeout"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Fatalf("this test drives %s; make setup installs it", name)
		}
	}
	f := startDocs(t)
	var used [len(notRun)]atomic.Bool
	t.Run("pages", func(t *testing.T) {
		for path, text := range readPages(t) {
			if strings.HasPrefix(path, "docs/") && !strings.HasPrefix(path, "docs/adr/") {
				t.Run(filepath.Base(path), func(t *testing.T) {
					t.Parallel()
					f.runPage(t, text, used[:])
				})
			}
		}
	})
	for i, n := range notRun {
		if !used[i].Load() {
			t.Errorf("no line is like %s any more", n.line)
		}
	}
}

// docs is a relay as the pages describe it, with the alias stripe-dev and an event of this alias.
type docs struct {
	dir, data  string
	env        []string
	replace    *strings.Replacer
	apartCount atomic.Int64 // number of names that apart has made
}

func startDocs(t *testing.T) *docs {
	t.Helper()
	dir := t.TempDir()
	data, key, bin := filepath.Join(dir, "data"), filepath.Join(dir, ".ssh", "id_ed25519"), filepath.Join(dir, "bin")
	web, sshAddr := relaytest.FreeAddr(t), relaytest.FreeAddr(t)
	_, webPort, _ := net.SplitHostPort(web)
	_, sshPort, _ := net.SplitHostPort(sshAddr)
	for _, folder := range []string{filepath.Dir(key), bin, filepath.Join(dir, "backup")} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// ssh reads the home directory of the account from the system and ignores HOME, so the wrapper names the
	// files.
	wrapper := fmt.Sprintf("exec %s -F none -i %s -p %s -o IdentitiesOnly=yes -o StrictHostKeyChecking=accept-new -o UserKnownHostsFile=%s \"$@\"",
		look(t, "ssh"), key, sshPort, filepath.Join(dir, "known"))
	relaytest.WriteScript(t, filepath.Join(bin, "ssh"), wrapper)
	f := &docs{dir: dir, data: data}
	f.env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+filepath.Join(dir, ".config"), "SSH_AUTH_SOCK=", "RELAY_TOKEN=",
		"RELAY_SERVER="+sshAddr, "RELAY_DATA_DIR="+data, "RELAY_ADMIN_ADDR=off", "RELAY_HTTP_ADDR="+web, "RELAY_SSH_ADDR="+sshAddr,
		"PATH="+bin+":"+relaytest.Programs(t)+":"+os.Getenv("PATH"))
	f.replace = strings.NewReplacer("https://relay.example.com", "http://"+web)
	f.sh(t, "ssh-keygen -q -t ed25519 -N '' -f "+key)
	relayd := f.start(t, "relayd serve --initial-admin-keys "+key+".pub")
	relaytest.Until(t, 10*time.Second, "relayd's greeting", func() bool { return strings.Contains(relayd.Out.String(), "Open a tunnel") })
	f.sh(t, "relayd user add alice")
	up := f.start(t, "relay up --alias stripe-dev --echo")
	send := "curl -sd '{\"hello\":1}' --resolve stripe-dev.localhost:" + webPort + ":127.0.0.1 http://stripe-dev.localhost:" + webPort + "/hook"
	relaytest.Until(t, 20*time.Second, "an answer of the echo", func() bool {
		f.sh(t, send)
		return strings.Contains(up.Out.String(), "[200]")
	})
	id := regexp.MustCompile(`evt_\w+`).FindString(up.Out.String())
	f.sh(t, "relay replay "+id)
	f.replace = strings.NewReplacer("https://relay.example.com", "http://"+web, "evt_01k…", id, " HOST", " 127.0.0.1",
		"-p 2222 relay.example.com", "-p "+sshPort+" 127.0.0.1", "localhost:2222", sshAddr, "localhost:8080", "localhost:"+webPort,
		"trigger-the-payment", send, "stripe trigger invoice.paid", send, "~/.ssh/known_hosts", filepath.Join(dir, "known_hosts"),
		"/backup/", filepath.Join(dir, "backup")+"/", "--user alice", "--user admin")
	return f
}

func look(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func (f *docs) command(script string) *exec.Cmd {
	c := exec.Command("sh", "-ec", script)
	c.Dir, c.Env = f.dir, f.env
	return c
}

func (f *docs) start(t *testing.T, line string) *relaytest.Process {
	t.Helper()
	return relaytest.Start(t, f.command("exec "+line))
}

func (f *docs) sh(t *testing.T, script string) {
	t.Helper()
	if out, err := f.command(script).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, script, out)
	}
}

// shownAfter matches a block of commands and the block of text after it, if there is one.
var shownAfter = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?")

// runPage runs the commands of a page as one script, and compares their output with the page.
func (f *docs) runPage(t *testing.T, text string, used []atomic.Bool) {
	script, prints := "", map[string]*regexp.Regexp{} // patterns of the expected output, by the file that gets the output
	out := t.TempDir()
	for i, block := range shownAfter.FindAllStringSubmatch(text, -1) {
		lines := f.script(block[1], used)
		if block[2] != "" && lines != "" {
			file := filepath.Join(out, strconv.Itoa(i))
			lines, prints[file] = "{ set +x\n"+lines+"} >"+file+" 2>&1\nset -x\n", pattern(block[2])
		}
		script += lines
	}
	// Pages run at the same time and name the same files, so each page has its own folder.
	f.sh(t, "cd "+t.TempDir()+"\ntrap 'cat "+out+"/* 2>&- || :' EXIT\nset -x\n"+f.replace.Replace(script))
	for file, want := range prints {
		got, err := os.ReadFile(file)
		if shown := strings.ReplaceAll(plainText(string(got)), relaytest.Programs(t), "/usr/local/bin"); err != nil || !want.MatchString(shown) {
			t.Errorf("the page shows %s, and the commands print %q, %v", want, got, err)
		}
	}
}

// script returns a documented block as a shell script that a test can run: with real folders, and a time
// limit for commands that do not end. It leaves out the lines that match an entry of notRun, and marks these
// entries in used.
func (f *docs) script(block string, used []atomic.Bool) (script string) {
	for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", " ")) {
		line = strings.TrimRight(line, "\n")
		folder := "restored"
		if strings.Contains(block, "relayd backup") {
			folder = "data"
		}
		line = strings.ReplaceAll(line, "DIR", filepath.Join(f.dir, folder))
		if i := reasonFor(line); i >= 0 {
			used[i].Store(true)
			continue
		}
		if endless.MatchString(line) {
			// timeout(1) exits with 124 if it had to stop the command, which is the expected end.
			line, _, _ = strings.Cut(line, " #")
			line = "timeout 3 " + f.apart(line) + " || { c=$?; [ $c = 124 ] || exit $c; }"
		}
		if verdict.MatchString(line) {
			line, _, _ = strings.Cut(line, " #")
			line += " || [ $? = 1 ]"
		}
		script += line + "\n"
	}
	return script
}

// apart returns a command line with changes so that it cannot disturb the relay of the test or another page: a
// tunnel gets an alias of its own, and a further relayd gets its own data folder and ports.
func (f *docs) apart(line string) string {
	if strings.HasPrefix(line, "ssh") || strings.HasPrefix(line, "relay up") {
		return strings.Replace(line, "stripe-dev", fmt.Sprintf("apart-%d", f.apartCount.Add(1)), 1)
	}
	if !strings.HasPrefix(line, "relayd serve") {
		return line
	}
	if !strings.Contains(line, "--data-dir") {
		line += fmt.Sprintf(" --data-dir %s/apart-%d", f.dir, f.apartCount.Add(1))
	}
	return line + " --http-addr 127.0.0.1:0 --ssh-addr 127.0.0.1:0"
}

func reasonFor(line string) int {
	for i, n := range notRun {
		if n.line.MatchString(line) {
			return i
		}
	}
	return -1
}
