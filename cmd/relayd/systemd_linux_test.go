package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"relay/delivery"
	"relay/relaytest"
	"relay/store"
)

// manager takes the place of systemd: it reads the messages of relayd and stores the sockets of relayd.
type manager struct {
	t      *testing.T
	conn   *net.UnixConn
	states chan string
	mu     sync.Mutex
	stored map[string]*os.File // the stored sockets, by name
}

func newManager(t *testing.T) *manager {
	t.Helper()
	path := filepath.Join(relaytest.SocketDir(t), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	m := &manager{t: t, conn: conn, states: make(chan string, 10_000), stored: map[string]*os.File{}}
	go m.read()
	t.Cleanup(func() { _ = conn.Close() })
	return m
}

func (m *manager) read() {
	text, rights := make([]byte, 4096), make([]byte, 4096)
	for {
		n, k, _, _, err := m.conn.ReadMsgUnix(text, rights)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		state := string(text[:n])
		if messages, err := syscall.ParseSocketControlMessage(rights[:k]); err == nil && len(messages) == 1 {
			fds, _ := syscall.ParseUnixRights(&messages[0])
			_, name, _ := strings.Cut(state, "FDNAME=")
			m.mu.Lock()
			m.stored[name] = os.NewFile(uintptr(fds[0]), name)
			m.mu.Unlock()
		}
		m.states <- state
	}
}

// next waits for a message of relayd with a line whose beginning matches the regular expression line. It returns
// this message and those before it.
func (m *manager) next(line string) []string {
	m.t.Helper()
	var seen []string
	wanted, late := regexp.MustCompile("(?m)^"+line), time.After(relaytest.Patience(20*time.Second))
	for {
		select {
		case state := <-m.states:
			if seen = append(seen, state); wanted.MatchString(state) {
				return seen
			}
		case <-late:
			m.t.Fatalf("no %s; it said %q", line, seen)
		}
	}
}

// start runs relayd as systemd does, with the stored sockets. It uses a shell to set LISTEN_PID to the
// process id of relayd.
func (m *manager) start(dir string, flags ...string) *relaytest.Process {
	m.t.Helper()
	command := fmt.Sprintf("export LISTEN_PID=$$ WATCHDOG_PID=$$; exec relayd serve --data-dir %s --admin-addr off %s", dir, strings.Join(flags, " "))
	cmd := exec.Command("sh", "-c", command)
	cmd.Env = append(os.Environ(), "HOME="+dir, "NOTIFY_SOCKET="+m.conn.LocalAddr().String(), "WATCHDOG_USEC=300000")
	var names []string
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, file := range m.stored {
		cmd.ExtraFiles, names = append(cmd.ExtraFiles, file), append(names, name)
	}
	if len(names) > 0 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("LISTEN_FDS=%d", len(names)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	}
	return relaytest.Start(m.t, cmd)
}

// TestServiceManager: relayd tells systemd when it serves and when it stops, its status and that it is alive,
// and stores its listeners in systemd. A caller that connects while no relayd runs gets its answer from the next
// relayd, on the same port.
func TestServiceManager(t *testing.T) {
	t.Parallel()
	m, dir := newManager(t), t.TempDir()
	p := m.start(dir, "--http-addr", "127.0.0.1:0", "--ssh-addr", "127.0.0.1:0", "--drain", "30s")
	before := strings.Join(m.next("READY=1\nSTATUS=0 tunnels, spool empty$"), "\n")
	if !strings.Contains(before, "FDSTORE=1\nFDNAME=http") || !strings.Contains(before, "FDSTORE=1\nFDNAME=ssh") {
		t.Errorf("it told before it was ready: %q", before)
	}
	m.next("WATCHDOG=1\nSTATUS=0 tunnels")
	first := listens(t, p)
	_ = p.Cmd.Process.Signal(syscall.SIGTERM)
	m.next("STOPPING=1\n(.*\n)*EXTEND_TIMEOUT_USEC=53000000")
	if code := p.Code(t, 20*time.Second); code != 0 {
		t.Errorf("it ended with %d: %s", code, p.Out.String())
	}

	between, err := net.Dial("tcp", first[1])
	if err != nil {
		t.Fatalf("a caller between two relayd is refused: %v", err)
	}
	defer between.Close()
	_, _ = fmt.Fprint(between, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	p = m.start(dir, "--http-addr", "127.0.0.1:0", "--ssh-addr", "127.0.0.1:0")
	told := strings.Join(m.next("READY=1"), "\n")
	if strings.Contains(told, "FDSTORE") {
		t.Errorf("it stores listeners that are stored: %q", told)
	}
	answer := make([]byte, len("HTTP/1.1 200"))
	_ = between.SetReadDeadline(time.Now().Add(relaytest.Patience(20 * time.Second)))
	if _, err := between.Read(answer); err != nil || string(answer) != "HTTP/1.1 200" {
		t.Errorf("a caller between two relayd got %q, %v", answer, err)
	}
	if second := listens(t, p); second[1] != first[1] || second[2] != first[2] {
		t.Errorf("the second relayd listens on %v, the first on %v", second[1:], first[1:])
	}
	_ = p.Cmd.Process.Signal(syscall.SIGTERM)
	p.Code(t, 20*time.Second)

	// A listener whose configured address has changed is removed from systemd's store.
	other := relaytest.FreeAddr(t)
	p = m.start(dir, "--http-addr", other, "--ssh-addr", "127.0.0.1:0")
	told = strings.Join(m.next("READY=1"), "\n")
	if !strings.Contains(told, "FDSTOREREMOVE=1\nFDNAME=http") || !strings.Contains(told, "FDSTORE=1\nFDNAME=http") {
		t.Errorf("a changed address: it told %q", told)
	}
	if now := listens(t, p); now[1] != other {
		t.Errorf("it listens on %s, not on %s", now[1], other)
	}
}

// listens waits for the log line with the addresses. The line may come after the message to systemd.
func listens(t *testing.T, p *relaytest.Process) (line []string) {
	t.Helper()
	relaytest.Until(t, 10*time.Second, "the addresses in the log", func() bool {
		line = listeningLine.FindStringSubmatch(p.Out.String())
		return line != nil
	})
	return line
}

// TestManagerThatReadsNothing: a relayd starts, serves and stops within its bounds, although no program reads
// its messages to the service manager.
func TestManagerThatReadsNothing(t *testing.T) {
	t.Parallel()
	p := silentManager(t).start(t.TempDir(), "--http-addr", "127.0.0.1:0", "--ssh-addr", "127.0.0.1:0", "--drain", "1s")
	listens(t, p)
	_ = p.Cmd.Process.Signal(syscall.SIGTERM)
	if code := p.Code(t, 6*time.Second); code != 0 {
		t.Errorf("it ended with %d: %s", code, p.Out.String())
	}
}

// silentManager returns a manager whose queue is full. It reads nothing until its method read runs.
func silentManager(t *testing.T) *manager {
	t.Helper()
	path := filepath.Join(relaytest.SocketDir(t), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	fill, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fill) }()
	for err == nil {
		err = syscall.Sendto(fill, []byte("x"), 0, &syscall.SockaddrUnix{Name: path})
	}
	if !errors.Is(err, syscall.EAGAIN) {
		t.Fatal(err)
	}
	return &manager{t: t, conn: conn, states: make(chan string, 10_000), stored: map[string]*os.File{}}
}

// TestManagerThatReadsLate: relayd repeats that it is ready until the service manager has read that message,
// because systemd ends a service that has not said that it is ready. A stop does not wait until the service
// manager has read the message about the stop, but this message still arrives.
func TestManagerThatReadsLate(t *testing.T) {
	t.Parallel()
	idle, err := store.Open(t.Context(), store.Options{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	late := func(log io.Writer) (*manager, *app) {
		m := silentManager(t)
		return m, &app{
			log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})), store: idle, delivery: delivery.New(delivery.Options{}),
			systemd: &serviceManager{socket: m.conn.LocalAddr().String(), watchdog: 30 * time.Millisecond},
		}
	}
	var log relaytest.Buffer
	m, a := late(&log)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); a.superviseUntil(ctx) }()
	defer func() { end(); <-ended }()
	relaytest.Until(t, 20*time.Second, "a message that fails", func() bool { return strings.Contains(log.String(), "systemd could not be notified") })
	go m.read()
	m.next("READY=1")

	m, a = late(io.Discard)
	a.tellStopping()
	go m.read()
	m.next("STOPPING=1")
}

// TestWatchdogNotFedByAHangingStore: relayd reports to the watchdog only after a new round of the store's
// loop. If the store hangs, systemd ends the process, although the loop that reports still runs.
func TestWatchdogNotFedByAHangingStore(t *testing.T) {
	t.Parallel()
	m := newManager(t)
	idle, err := store.Open(t.Context(), store.Options{DataDir: t.TempDir()}) // this store does not serve, so it has no rounds
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	a := &app{
		log: slog.New(slog.DiscardHandler), store: idle, delivery: delivery.New(delivery.Options{}),
		systemd: &serviceManager{socket: m.conn.LocalAddr().String(), watchdog: 30 * time.Millisecond},
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); a.superviseUntil(ctx) }()
	defer func() { end(); <-ended }()
	m.next("READY=1")
	for range 5 {
		if state := <-m.states; !strings.HasPrefix(state, "STATUS=") {
			t.Errorf("without a round it told %q", state)
		}
	}
}

func TestSameAddress(t *testing.T) {
	t.Parallel()
	any4, one := &net.TCPAddr{IP: net.IPv6unspecified, Port: 80}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}
	for _, tc := range []struct {
		have net.Addr
		addr string
		want bool
	}{
		{any4, ":80", true},
		{any4, "0.0.0.0:80", true},
		{any4, ":81", false},
		{any4, "127.0.0.1:80", false},
		{one, "127.0.0.1:8080", true},
		{one, "localhost:8080", true},
		{one, "127.0.0.1:0", true},
		{one, "127.0.0.2:8080", false},
		{one, ":8080", false},
	} {
		if got := sameAddress(tc.have, tc.addr); got != tc.want {
			t.Errorf("%v for %s: %v", tc.have, tc.addr, got)
		}
	}
}
