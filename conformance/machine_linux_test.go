package conformance

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"relay/relaytest"
)

// machine is a Debian system with its own systemd, in namespaces. It shares the files of the computer that
// runs the test. What it writes goes to an overlay, which is removed after the test.
type machine struct {
	t   *testing.T
	pid string // process id of the machine's systemd
	log *relaytest.Buffer
}

// bootMachine is the script of the first process in the namespaces. At its end, the process becomes systemd,
// which starts only the units up to basic.target. The kernel's settings are mounted read-only, because
// systemd must not change them.
const bootMachine = `set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/changes" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/changes,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
for node in null zero full random urandom tty; do
	touch dev/$node
	mount --bind /dev/$node dev/$node
done
ln -s /proc/self/fd dev/fd
mkdir dev/shm dev/pts old
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
mkdir sys/fs/cgroup/systemd sys/fs/cgroup/unified
if ! mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd 2>/dev/null; then
	umount sys/fs/cgroup
	mount -t cgroup2 cgroup2 sys/fs/cgroup
fi
cp -r "$2" packages
rm -f usr/sbin/policy-rc.d # in a container it forbids to start services
ip link set lo up
pivot_root . old
umount -l old
mount --make-rshared / # systemd's credentials need it
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --unit=basic.target --log-target=journal
`

// bootedMachine boots a machine. The files of the folder packages are in /packages of the machine.
func bootedMachine(t *testing.T, packages string) *machine {
	t.Helper()
	needRoot(t, "a machine in namespaces")
	m := &machine{t: t, log: &relaytest.Buffer{}}
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--cgroup", "--net",
		"sh", "-c", bootMachine, "boot", t.TempDir(), packages)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = m.log, m.log, time.Second
	p := relaytest.Start(t, cmd)
	relaytest.Until(t, 20*time.Second, "the machine to boot", func() bool {
		if p.HasEnded() {
			t.Fatalf("it did not boot: %s", m.log)
		}
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		m.pid = strings.TrimSpace(string(children))
		if m.pid == "" {
			return false
		}
		name, _ := os.ReadFile("/proc/" + m.pid + "/comm")
		return strings.TrimSpace(string(name)) == "systemd" && m.command("systemctl", "is-active", "basic.target").Run() == nil
	})
	return m
}

// command returns a command in the machine.
func (m *machine) command(args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"--target", m.pid, "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd"}, args...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8"}
	return cmd
}

// run runs a shell command in the machine and returns its output. The command must succeed.
func (m *machine) run(format string, args ...any) string {
	m.t.Helper()
	command := fmt.Sprintf(format, args...)
	out, err := m.command("sh", "-c", command).CombinedOutput()
	if err != nil {
		journal, _ := m.command("journalctl", "--no-pager", "-n", "60").CombinedOutput()
		m.t.Fatalf("%s: %v\n%s\njournal:\n%s", command, err, out, journal)
	}
	return strings.TrimSpace(string(out))
}

// dialer returns a function that dials inside the machine. It dials in a thread of its own that has joined the
// network namespace of the machine, because a socket belongs to the namespace of the thread that creates it. The
// thread runs no other code, and ends with the test.
func (m *machine) dialer() func(ctx context.Context, network, addr string) (net.Conn, error) {
	m.t.Helper()
	type dial struct {
		conn net.Conn
		err  error
	}
	asked := make(chan func(), 100)
	ready := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		ns, err := os.Open(filepath.Join("/proc", m.pid, "ns/net"))
		if err == nil {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
			_ = ns.Close()
		}
		ready <- err
		for do := range asked {
			do()
		}
	}()
	m.t.Cleanup(func() { close(asked) })
	if err := <-ready; err != nil {
		m.t.Fatal(err)
	}
	return func(_ context.Context, network, addr string) (net.Conn, error) {
		made := make(chan dial, 1)
		asked <- func() {
			conn, err := net.DialTimeout(network, addr, 10*time.Second)
			made <- dial{conn, err}
		}
		d := <-made
		return d.conn, d.err
	}
}
