package conformance

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/relaytest"
)

// packages builds packages of relay and relayd: deb, rpm and apk of version 1.0.0, and deb of version
// 1.1.0.
func packages(t *testing.T) (folder string) {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	made := t.TempDir()
	script := fmt.Sprintf(`set -e
cd %q
made=%q
CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$made"/ ./cmd/relay ./cmd/relayd # as a release is built
scripts/generated "$made"/relay "$made"/relayd "$made"/generated
export DIST_GENERATED="$made"/generated SOURCE_DATE_EPOCH=1750000000
for kind in "1.0.0" "1.1.0 deb"; do
	set -- $kind
	version=$1
	shift
	scripts/package relay "$made"/relay $(go env GOARCH) $version "$made"/packages "$@"
	scripts/package relayd "$made"/relayd $(go env GOARCH) $version "$made"/packages "$@"
done`, root, made)
	if out, err := exec.Command("bash", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(made, "packages")
}

// TestPackages builds the packages once. The rpm and the apk have the content of the deb, lintian accepts the
// deb, and the deb is installed.
func TestPackages(t *testing.T) {
	t.Parallel()
	folder := packages(t)
	t.Run("formats", func(t *testing.T) { t.Parallel(); comparePackages(t, folder) })
	t.Run("lintian", func(t *testing.T) { t.Parallel(); checkLintian(t, folder) })
	t.Run("install", func(t *testing.T) { t.Parallel(); installPackages(t, folder) })
}

// installPackages installs, upgrades, removes and purges the packages on a Debian with systemd: the service
// runs after the installation, no caller gets an error during an upgrade under load, and stored data survives
// even a purge.
func installPackages(t *testing.T, folder string) {
	m := bootedMachine(t, folder)
	hostKey := m.firstReplays()
	for _, tc := range []struct{ command, want string }{
		{"systemctl is-active relayd", "active"},
		{"systemctl is-enabled relayd", "enabled"},
		{"stat -c '%a %U:%G' /etc/relayd/relayd.yaml", "640 root:relayd"},
		{"stat -c '%a %U:%G' /var/lib/relayd", "700 relayd:relayd"},
		{"ps -o user= -C relayd", "relayd"},
		{"gzip -dc /usr/share/man/man8/relayd.8.gz | head -n 1 | cut -d ' ' -f 2", `"RELAYD"`},
		{"bash -c '. /usr/share/bash-completion/completions/relay && complete -p relay' | grep -c __start_relay", "1"},
		{"dpkg --verify relay relayd", ""},
	} {
		if got := m.run("%s", tc.command); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.command, got, tc.want)
		}
	}
	m.run("systemd-analyze verify --man=no relayd.service")
	exposure := m.run("systemd-analyze security --offline=yes --threshold=20 relayd.service | tail -n 1")
	m.credential()
	m.up(hostKey)

	t.Run("upgrade under load", func(t *testing.T) { m.upgradeUnderLoad(t, exposure) })

	if got := m.run("ls -l /proc/$(systemctl show -P MainPID relayd)/exe | grep -c deleted || true"); got != "0" {
		t.Error("the service still runs the program of the old package")
	}
	pid := m.run("systemctl show -P MainPID relayd")
	m.run("kill -ABRT %s", pid) // the watchdog of systemd sends this signal, too
	relaytest.Until(t, 20*time.Second, "a restart after the watchdog", func() bool {
		return m.run("systemctl show -P MainPID relayd") != pid && m.run("systemctl is-active relayd || true") == "active"
	})
	relaytest.Until(t, 10*time.Second, "the goroutines in the journal, after the watchdog's end of relayd", func() bool {
		return m.run("journalctl -u relayd | grep -c 'goroutine 1 ' || true") != "0"
	})

	m.run("echo '# mine' >>/etc/relayd/relayd.yaml && apt-get -qq remove -y relayd 2>&1 || dpkg -r relayd")
	if got := m.run("systemctl is-active relayd || true"); got != "inactive" {
		t.Errorf("after the removal the service is %s", got)
	}
	if said := m.run("dpkg -P relayd 2>&1"); !strings.Contains(said, "the data stays in /var/lib/relayd") {
		t.Errorf("purge says %q", said)
	}
	m.run("test ! -e /etc/relayd/relayd.yaml && test -s /var/lib/relayd/relay.db")
	m.run("dpkg -i /packages/relayd_1.1.0_*.deb && systemctl is-active relayd")
	if got := m.run("ssh-keygen -lf /var/lib/relayd/ssh_host_ed25519_key | cut -d ' ' -f 2"); got != hostKey {
		t.Errorf("the host key changed from %s to %s", hostKey, got)
	}
	if got := m.run("relayd user list"); !strings.Contains(got, "ann") {
		t.Errorf("the accounts after purge and installation: %s", got)
	}
}

// firstReplays follows docs/install.md: it installs the packages and replays two webhooks, one with ssh only
// and one with relay. It returns the fingerprint of the host key, as relayd doctor prints it.
func (m *machine) firstReplays() (hostKey string) {
	m.t.Helper()
	m.run("ssh-keygen -q -t ed25519 -N '' -f /tmp/id") // users have a key before they install Relay
	begun := time.Now()
	m.run("dpkg -i /packages/relay_1.0.0_*.deb /packages/relayd_1.0.0_*.deb")
	installed := time.Since(begun)
	if got := m.run("relayd user list --json"); got != "[]" {
		m.t.Errorf("the service made an account for itself: %s", got)
	}
	m.run("relayd user add ann --admin --key /tmp/id.pub")
	hostKey = regexp.MustCompile(`SHA256:\S+[^,\s]`).FindString(m.run("relayd doctor"))
	if got := m.run("ssh-keygen -lf /var/lib/relayd/ssh_host_ed25519_key"); hostKey == "" || !strings.Contains(got, hostKey) {
		m.t.Errorf("relayd doctor prints the host key %q, and it is %s", hostKey, got)
	}
	printed := time.Since(begun)
	const ssh = "ssh -F none -i /tmp/id -o StrictHostKeyChecking=accept-new -o UserKnownHostsFile=/tmp/known_hosts -p 2222 "
	relay := "relay %s --server localhost:2222 --identity /tmp/id --host-key " + hostKey
	m.start("python3 -m http.server --bind 127.0.0.1 3000")
	for _, way := range []struct{ name, alias, tunnel, replay string }{
		{"ssh alone", "first", ssh + "-N -R first:80:localhost:3000 127.0.0.1", ssh + "127.0.0.1 replay"},
		{"relay", "second", fmt.Sprintf(relay, "up --port 3000 --alias second"), fmt.Sprintf(relay, "replay")},
	} {
		began := time.Now()
		tunnel := m.start(way.tunnel)
		relaytest.Until(m.t, 20*time.Second, "an answer through the tunnel of "+way.name, func() bool {
			if tunnel.HasEnded() {
				m.t.Fatalf("%s ended: %s", way.tunnel, tunnel.Out.String())
			}
			out, _ := m.command("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-d", "{}", "http://"+way.alias+".localhost:8080/hook").Output()
			return string(out) == "501" // the local server does not support POST
		})
		id := regexp.MustCompile(`evt_\w+`).FindString(m.run("%s127.0.0.1 events %s -n 1", ssh, way.alias))
		if said := m.run("%s %s", way.replay, id); !strings.Contains(said, "501") {
			m.t.Errorf("%s: %q", way.replay, said)
		}
		m.t.Logf("%s: first event replayed after %v and 3 commands", way.name, time.Since(began).Round(10*time.Millisecond))
	}
	m.t.Logf("service running after %.1f s, host key printed after %.1f s and 3 commands", installed.Seconds(), printed.Seconds())
	return hostKey
}

// credential checks that relayd reads its database URL from /etc/credstore and does not log the password.
// When the file is removed, the service starts with SQLite again.
func (m *machine) credential() {
	m.t.Helper()
	m.run("install -D -m 600 /dev/null /etc/credstore/relayd.database-url && echo postgres://relay:hidden-word@127.0.0.1:9/relay >/etc/credstore/relayd.database-url")
	_ = m.command("systemctl", "restart", "relayd").Run() // the start fails, because there is no Postgres
	said := ""
	relaytest.Until(m.t, 10*time.Second, "the reason in the journal, which gets what a service prints a moment later", func() bool {
		said = m.run("journalctl -u relayd -o cat -n 100")
		return strings.Contains(said, "127.0.0.1:9")
	})
	if strings.Contains(said, "hidden-word") {
		m.t.Errorf("with a credential relayd says %q", said)
	}
	m.run("rm /etc/credstore/relayd.database-url && systemctl restart relayd && systemctl is-active relayd")
}

// start starts a command that runs until the test ends.
func (m *machine) start(command string) *relaytest.Process {
	m.t.Helper()
	cmd := m.command(strings.Fields(command)...)
	cmd.WaitDelay = time.Second // the child of nsenter keeps the output open until the machine ends, so Wait must not wait for it
	return relaytest.Start(m.t, cmd)
}

// up runs relay up with an echoing local server, for the alias demo, until the test ends.
func (m *machine) up(hostKey string) {
	m.t.Helper()
	p := m.start("relay up --echo --alias demo --server localhost:2222 --identity /tmp/id --host-key " + hostKey)
	relaytest.Until(m.t, 20*time.Second, "the tunnel", func() bool {
		if p.HasEnded() {
			m.t.Fatalf("relay up ended: %s", p.Out.String())
		}
		return strings.Contains(p.Out.String(), "demo.localhost")
	})
}

// upgradeUnderLoad upgrades both packages while 200 requests a second arrive, each on a new connection. Each
// request must be answered by the local server or be queued. The parameter exposure is the last output line of
// systemd-analyze security; it is only printed with the figures.
func (m *machine) upgradeUnderLoad(t *testing.T, exposure string) {
	const perSecond, seconds = 200, 6
	client := &http.Client{Timeout: relaytest.Patience(20 * time.Second), Transport: &http.Transport{DialContext: m.dialer(), DisableKeepAlives: true}}
	var delivered, queued, failed, slowest atomic.Int64
	var first sync.Once
	send := func() {
		begun := time.Now()
		req, _ := http.NewRequest(http.MethodPost, "http://127.0.0.1:8080/hook", strings.NewReader(`{"hi":1}`))
		req.Host = "demo.localhost"
		res, err := client.Do(req)
		status := 0
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			status = res.StatusCode
		}
		switch {
		case err == nil && status == http.StatusOK:
			delivered.Add(1)
		case err == nil && status == http.StatusAccepted:
			queued.Add(1)
		default:
			failed.Add(1)
			first.Do(func() { t.Errorf("a request failed: status %d, %v", status, err) })
		}
		for took := int64(time.Since(begun)); ; {
			if old := slowest.Load(); took <= old || slowest.CompareAndSwap(old, took) {
				return
			}
		}
	}
	var all sync.WaitGroup
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	upgraded := make(chan string, 1)
	for i := range perSecond * seconds {
		if i == perSecond {
			go func() {
				out, err := m.command("sh", "-c", "dpkg -i /packages/relay_1.1.0_*.deb /packages/relayd_1.1.0_*.deb").CombinedOutput()
				upgraded <- fmt.Sprint(err, " ", string(out))
			}()
		}
		<-tick.C
		all.Add(1)
		go func() { defer all.Done(); send() }()
	}
	if said := <-upgraded; !strings.HasPrefix(said, "<nil>") {
		t.Errorf("the upgrade: %s", said)
	}
	all.Wait()
	stored := regexp.MustCompile(`(?m)^1\.1\.0$`).MatchString(m.run("dpkg-query -W -f '${Version}' relayd"))
	if !stored || delivered.Load() == 0 {
		t.Errorf("upgraded: %v, delivered: %d", stored, delivered.Load())
	}
	t.Logf("%d requests at %d/s over an upgrade: failed %d, delivered %d, queued %d, slowest %v; %s",
		perSecond*seconds, perSecond, failed.Load(), delivered.Load(), queued.Load(), time.Duration(slowest.Load()).Round(time.Millisecond), exposure)
}
