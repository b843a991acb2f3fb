package bench

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sync/errgroup"

	"relay/relaytest"
	"relay/store/pgtest"
)

// bench holds the parts that all systems share, and the results.
type bench struct {
	*testing.B
	results
	dir      string
	local    string // address of the local server
	key      string // path of a private key; the public key has the suffix .pub
	signer   ssh.Signer
	postgres *pgtest.Server // nil until a system needs it
}

func newBench(t *testing.B) *bench {
	b := &bench{B: t, results: results{Rounds: *rounds, Each: each.String(), Loads: map[string]map[string][]measurement{}, Figures: map[string]map[string]float64{}}}
	parent, err := filepath.Abs(*dir)
	if err == nil {
		b.dir, err = os.MkdirTemp(parent, "relay-bench-")
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(b.dir) })
	b.key = filepath.Join(b.dir, "key")
	relaytest.WriteKey(b, b.key)
	text, err := os.ReadFile(b.key)
	if err == nil {
		b.signer, err = ssh.ParsePrivateKey(text)
	}
	if err != nil {
		b.Fatal(err)
	}
	local := httptest.NewServer(http.HandlerFunc(answer))
	b.Cleanup(local.Close)
	b.local = local.Listener.Addr().String()
	return b
}

// start runs a program until the end of the benchmark.
func (b *bench) start(args ...string) *relaytest.Process {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "HOME="+b.dir)
	return relaytest.Start(b, cmd)
}

// answers waits until the local server answers a request to addr with the Host header host.
func (b *bench) answers(addr, host string) {
	b.await("answer of "+host, func() error { _, err := (&load{fresh: true}).once(addr, host); return err })
}

// await calls try until it succeeds, for at most a minute.
func (b *bench) await(what string, try func() error) {
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	b.Fatalf("%s: %v", what, err)
}

// system is one way from a sender to the local server.
type system struct {
	name  string
	addr  string // address for the senders
	host  string // value of the Host header
	ssh   string // address of its SSH server
	admin string // address of the admin listener of a relayd; "" for others
	// Processes whose CPU time is counted, with their descendants:
	server, client, database []int

	// connect starts another client to an SSH address. It returns the client, and the address and host by
	// which the local server is reached through it.
	connect func(ssh string) (client *relaytest.Process, addr, host string)
}

// startBaseline starts sshd with a forwarded port, and nginx with keep-alive connections to that port: what
// one would build without Relay.
func (b *bench) startBaseline(name string) *system {
	me, err := user.Current()
	if err != nil {
		b.Fatal(err)
	}
	s := &system{name: name, host: "bench.localhost", addr: relaytest.FreeAddr(b), ssh: relaytest.FreeAddr(b)}
	s.connect = func(ssh string) (*relaytest.Process, string, string) {
		addr := relaytest.FreeAddr(b)
		return b.openSSH(ssh, addr+":"+b.local, me.Username+"@"), addr, s.host
	}
	_ = os.MkdirAll("/run/sshd", 0o755) // sshd requires this folder when sshd runs as root
	_, port, _ := net.SplitHostPort(s.ssh)
	sshd := b.start(server(b, "sshd"), "-D", "-e", "-f", b.write("sshd.conf", fmt.Sprintf(
		"Port %s\nListenAddress 127.0.0.1\nHostKey %[2]s\nAuthorizedKeysFile %[2]s.pub\nStrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\n", port, b.key)))
	b.await("sshd", func() error {
		conn, err := net.Dial("tcp", s.ssh)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	client, tunnel, _ := s.connect(s.ssh)
	nginx := b.start(server(b, "nginx"), "-e", "stderr", "-p", b.dir, "-c", b.write("nginx.conf", fmt.Sprintf(`master_process off; daemon off; pid %[1]s/nginx.pid; error_log stderr;
events { worker_connections 4096; }
http {
  access_log off; client_max_body_size 0; keepalive_requests 1000000000; client_body_temp_path %[1]s/nginx-body; proxy_temp_path %[1]s/nginx-proxy;
  upstream tunnel { server %[2]s; keepalive 512; keepalive_requests 1000000000; }
  server {
    listen %[3]s backlog=4096;
    location / { proxy_pass http://tunnel; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host; }
  }
}
`, b.dir, tunnel, s.addr)))
	s.server, s.client = []int{sshd.Cmd.Process.Pid, nginx.Cmd.Process.Pid}, []int{client.Cmd.Process.Pid}
	b.answers(s.addr, s.host)
	return s
}

// server finds a program in PATH or in the folders where Debian installs servers.
func server(b *bench, name string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + name)
	}
	if err != nil {
		b.Fatal(err)
	}
	return path
}

func (b *bench) write(name, text string) string {
	path := filepath.Join(b.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	return path
}

// openSSH starts an ssh client with a remote forward. It accepts any host key, because the server is on
// loopback.
func (b *bench) openSSH(address, forward, user string) *relaytest.Process {
	host, port, _ := net.SplitHostPort(address)
	return b.start("ssh", "-N", "-F", "none", "-i", b.key, "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=no",
		"-o", "UserKnownHostsFile=/dev/null", "-o", "ExitOnForwardFailure=yes", "-p", port, "-R", forward, user+host)
}

// startRelay starts relayd with a tunnel by ssh or by relay up.
func (b *bench) startRelay(name string, onPostgres, up bool) *system {
	s := &system{name: name, host: "bench.localhost", addr: relaytest.FreeAddr(b), ssh: relaytest.FreeAddr(b), admin: relaytest.FreeAddr(b)}
	args := []string{
		relaytest.Program(b, "relayd"), "serve", "--data-dir", filepath.Join(b.dir, name), "--http-addr", s.addr, "--ssh-addr", s.ssh, "--admin-addr", s.admin, "--pprof", "on",
		"--initial-admin-keys", b.key + ".pub", "--log-level", "warn", "--max-aliases", "off", "--max-connections-per-account", "off",
		"--max-connections-per-source", "off", "--max-alias-storage", "off", "--min-free", "off",
	}
	if onPostgres {
		if b.postgres == nil {
			b.postgres = pgtest.Start(b, pgtest.Options{Fsync: true, Disk: true})
		}
		pid, err := b.postgres.PID()
		if err != nil {
			b.Fatal(err)
		}
		s.database, args = []int{pid}, append(args, "--database-url", b.postgres.URL(b))
	}
	s.server = []int{b.start(args...).Cmd.Process.Pid}
	b.await("relayd", func() error { _, err := get("http://" + s.addr + "/readyz"); return err })
	n := 0
	s.connect = func(ssh string) (client *relaytest.Process, addr, host string) {
		n++
		alias := "bench" + strings.TrimPrefix(strconv.Itoa(n), "1")
		if up {
			_, port, _ := net.SplitHostPort(b.local)
			client = b.start(relaytest.Program(b, "relay"), "up", "--server", ssh, "--identity", b.key, "--port", port, "--alias", alias)
		} else {
			client = b.openSSH(ssh, alias+":80:"+b.local, "")
		}
		return client, s.addr, alias + ".localhost"
	}
	client, _, _ := s.connect(s.ssh)
	s.client = []int{client.Cmd.Process.Pid}
	b.answers(s.addr, s.host)
	return s
}

// startFRP starts frps and frpc, which make a tunnel that stores nothing. It returns nil if one of them is
// not in PATH.
func (b *bench) startFRP(name string) *system {
	frps, err := exec.LookPath("frps")
	if err != nil {
		return nil
	}
	frpc, err := exec.LookPath("frpc")
	if err != nil {
		return nil
	}
	s := &system{name: name, host: "bench.localhost", addr: relaytest.FreeAddr(b)}
	_, control, _ := net.SplitHostPort(relaytest.FreeAddr(b))
	_, callers, _ := net.SplitHostPort(s.addr)
	_, local, _ := net.SplitHostPort(b.local)
	s.server = []int{b.start(frps, "-c", b.write("frps.toml", fmt.Sprintf(
		"bindAddr = \"127.0.0.1\"\nbindPort = %s\nvhostHTTPPort = %s\n", control, callers))).Cmd.Process.Pid}
	s.client = []int{b.start(frpc, "-c", b.write("frpc.toml", fmt.Sprintf(
		"serverAddr = \"127.0.0.1\"\nserverPort = %s\nloginFailExit = false\n[[proxies]]\nname = \"web\"\ntype = \"http\"\nlocalPort = %s\ncustomDomains = [\"bench.localhost\"]\n",
		control, local))).Cmd.Process.Pid}
	b.answers(s.addr, s.host)
	return s
}

// oneWay is the delay of the line in each direction: a round trip takes 50 ms.
const oneWay = 25 * time.Millisecond

// measureStart measures the time from the start of a client to the first answer. The figure for loopback is
// in milliseconds. Over a line with the delay oneWay, it also measures the next three requests; these figures
// are in round trips.
func (b *bench) measureStart(s *system) {
	first := func(ssh string) (time.Duration, net.Conn, []byte) {
		began := time.Now()
		client, addr, host := s.connect(ssh)
		b.Cleanup(client.Kill)
		b.answers(addr, host)
		took := time.Since(began)
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		return took, conn, (&load{}).request(host)
	}
	took, conn, _ := first(s.ssh)
	_ = conn.Close()
	b.figure(s, "start to first 200, loopback (ms)", float64(took.Microseconds())/1000)
	line := relaytest.NewLine(b, "tcp", s.ssh)
	line.Delay(oneWay)
	trips := func(name string, d time.Duration) {
		b.figure(s, name+", 50 ms line (round trips)", d.Seconds()/(2*oneWay).Seconds())
	}
	took, conn, req := first(line.Addr)
	defer conn.Close()
	trips("start to first 200", took)
	in := bufio.NewReader(conn)
	for _, name := range []string{"first request of a connection", "second request", "third request"} {
		took, err := exchange(conn, in, req)
		if err != nil {
			b.Fatalf("%s: %v", name, err)
		}
		trips(name, took)
	}
}

// measureIdle opens tunnels on a relayd, and measures the growth of its live heap and stacks, and of its
// resident memory. The resident memory includes memory that the logins have used and that is returned to the
// system later.
func (b *bench) measureIdle(s *system, n int) {
	live, resident := b.memory(s)
	stop := b.openTunnels(s, n)
	defer stop()
	time.Sleep(5 * time.Second) // the runtime frees the stacks of the logins in this time
	liveThen, residentThen := b.memory(s)
	b.figure(s, fmt.Sprintf("heap and stacks of an idle tunnel, %d of them (KiB)", n), (liveThen-live)/1024/float64(n))
	b.figure(s, fmt.Sprintf("resident memory of an idle tunnel, %d of them (KiB)", n), (residentThen-resident)/1024/float64(n))
}

// memory returns, in bytes, the heap and stacks of a relayd in use after a garbage collection, and its
// resident memory before the garbage collection.
func (b *bench) memory(s *system) (live, resident float64) {
	read := func(path string) string {
		text, err := get("http://" + s.admin + path)
		if err != nil {
			b.Fatal(err)
		}
		return text
	}
	value := func(metrics, name string) float64 {
		_, rest, _ := strings.Cut(metrics, "\n"+name+" ")
		number, _, _ := strings.Cut(rest, "\n")
		v, err := strconv.ParseFloat(number, 64)
		if err != nil {
			b.Fatalf("%s: %v", name, err)
		}
		return v
	}
	resident = value(read("/metrics"), "process_resident_memory_bytes")
	for range 3 { // each garbage collection halves the stacks that are too large
		read("/debug/pprof/heap?gc=1")
	}
	metrics := read("/metrics")
	return value(metrics, "go_memstats_heap_alloc_bytes") + value(metrics, "go_memstats_stack_inuse_bytes"), resident
}

// get returns the body at a URL.
func get(url string) (string, error) {
	res, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", url, res.Status)
	}
	return string(body), err
}

// atOnce is the number of concurrent logins or requests. With sixteen, preparing the store is faster, because
// Postgres commits all sixteen in the time of one commit.
const atOnce = 16

// each calls do for 0 to n-1, atOnce at a time.
func (b *bench) each(n int, do func(i int) error) {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() error { return do(i) })
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
}

// dial logs in, and logs out at the end of the benchmark.
func (b *bench) dial(s *system) (*ssh.Client, error) {
	client, err := ssh.Dial("tcp", s.ssh, &ssh.ClientConfig{
		User: "bench", Auth: []ssh.AuthMethod{ssh.PublicKeys(b.signer)}, Timeout: 30 * time.Second,
		HostKeyCallback: ssh.InsecureIgnoreHostKey(), // the server is on loopback, and no secret is sent to it
	})
	if err == nil {
		b.Cleanup(func() { _ = client.Close() })
	}
	return client, err
}

// openTunnels logs in n times and forwards one alias each time.
func (b *bench) openTunnels(s *system, n int) (stop func()) {
	clients := make([]*ssh.Client, n)
	b.each(n, func(i int) (err error) {
		if clients[i], err = b.dial(s); err != nil {
			return err
		}
		ok, _, err := clients[i].SendRequest("tcpip-forward", true, ssh.Marshal(struct {
			Bind string
			Port uint32
		}{fmt.Sprintf("idle%d", i), 80}))
		if err == nil && !ok {
			err = errors.New("a forward was refused")
		}
		return err
	})
	return func() {
		for _, c := range clients {
			_ = c.Close()
		}
	}
}

// call returns a function that calls the API of a relayd with a token and checks the status.
func (b *bench) call(s *system) func(method, path, body string, status int) (*http.Response, error) {
	client, err := b.dial(s)
	if err != nil {
		b.Fatal(err)
	}
	session, err := client.NewSession()
	if err != nil {
		b.Fatal(err)
	}
	token, err := session.Output("token")
	if err != nil {
		b.Fatal(err)
	}
	return func(method, path, body string, status int) (*http.Response, error) {
		req, err := http.NewRequest(method, "http://"+s.addr+"/api/v1"+path, strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.Host = "localhost"
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err == nil && res.StatusCode != status {
			err = fmt.Errorf("%s %s answers %s", method, path, res.Status)
		}
		return res, err
	}
}

// makeAliases creates n aliases that are never online.
func (b *bench) makeAliases(s *system, n int) {
	call := b.call(s)
	b.each(n, func(i int) error {
		res, err := call(http.MethodPost, "/aliases", fmt.Sprintf(`{"name":"away%d"}`, i), http.StatusCreated)
		if err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			err = res.Body.Close()
		}
		return err
	})
}

// view opens n live views of the alias.
func (b *bench) view(s *system, n int) {
	call := b.call(s)
	b.each(n, func(int) error {
		res, err := call(http.MethodGet, "/stream?alias=bench", "", http.StatusOK)
		if err == nil {
			go func() { _, _ = io.Copy(io.Discard, res.Body) }()
			b.Cleanup(func() { _ = res.Body.Close() })
		}
		return err
	})
}
