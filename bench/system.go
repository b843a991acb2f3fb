package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
)

// system is one way from a sender to the local server. Its processes run until the
// environment is closed.
type system struct {
	name string
	addr string // senders connect here
	host string // value of the Host header
	ssh  string // address of its SSH server
	// Processes whose CPU is counted, with their descendants.
	server, client, database []int

	// connect starts another client towards an SSH address, and gives its process and the
	// Host under which the local server is reached through it. nil = cannot be measured.
	connect func(ssh string) (pid int, addr, host string, err error)
	data    string // folder of a relayd; "" for others
	admin   string // address of its admin listener
}

// starters start the systems, in the order of the report. The first one is the baseline.
var starters = []struct {
	name  string
	start func(env *environment, name string) (*system, error)
}{
	{"nginx+sshd", (*environment).startBaseline},
	{"ssh-sqlite", func(env *environment, name string) (*system, error) { return env.startRelay(name, false, false) }},
	{"up-sqlite", func(env *environment, name string) (*system, error) { return env.startRelay(name, false, true) }},
	{"ssh-postgres", func(env *environment, name string) (*system, error) { return env.startRelay(name, true, false) }},
	{"up-postgres", func(env *environment, name string) (*system, error) { return env.startRelay(name, true, true) }},
	{"frp", (*environment).startFRP},
}

var errAbsent = errors.New("not installed")

func startAll(env *environment, list string) ([]*system, error) {
	var out []*system
	for _, s := range starters {
		if list != "" && !strings.Contains(","+list+",", ","+s.name+",") {
			continue
		}
		sys, err := s.start(env, s.name)
		if errors.Is(err, errAbsent) && list == "" {
			fmt.Fprintf(os.Stderr, "%s is left out: %v\n", s.name, err)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		if err := env.answers(sys.addr, sys.host); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", s.name, err, env.logs())
		}
		out = append(out, sys)
	}
	return pick(out, list, func(s *system) string { return s.name })
}

// answers waits until the local server answers under a host.
func (env *environment) answers(addr, host string) error {
	req := (&load{fresh: true}).request(host)
	return await(env.ctx, "no answer of the local server", func() error {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		status, err := exchange(conn, bufio.NewReader(conn), req)
		if err == nil && status != 200 {
			err = fmt.Errorf("status %d", status)
		}
		return err
	})
}

// find looks for a program on PATH and where Debian puts servers.
func find(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	if path := "/usr/sbin/" + name; fileExists(path) {
		return path, nil
	}
	return "", fmt.Errorf("%s is %w", name, errAbsent)
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// openSSH is an ssh client that trusts any host key of loopback.
func (env *environment) openSSH(address, forward string, target string) ([]string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return []string{
		"ssh", "-N", "-F", "none", "-i", env.key, "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=no",
		"-o", "UserKnownHostsFile=/dev/null", "-o", "ExitOnForwardFailure=yes", "-p", port, "-R", forward, target + host,
	}, nil
}

// startBaseline starts sshd with a forwarded port and nginx with kept connections to it:
// what one would build by hand.
func (env *environment) startBaseline(name string) (*system, error) {
	nginx, err := find("nginx")
	if err != nil {
		return nil, err
	}
	sshd, err := find("sshd")
	if err != nil {
		return nil, err
	}
	me, err := user.Current()
	if err != nil {
		return nil, err
	}
	ports := make([]int, 3) // of nginx, sshd and the forward
	for i := range ports {
		if ports[i], err = freePort(); err != nil {
			return nil, err
		}
	}
	_ = os.MkdirAll("/run/sshd", 0o755) // sshd wants it when it runs as root
	conf := filepath.Join(env.dir, "sshd.conf")
	if err := os.WriteFile(conf, []byte(env.sshdConf(ports[1])), 0o600); err != nil {
		return nil, err
	}
	s := &system{name: name, host: "bench.localhost", addr: fmt.Sprintf("127.0.0.1:%d", ports[0]), ssh: fmt.Sprintf("127.0.0.1:%d", ports[1])}
	pid, err := env.start("sshd", nil, sshd, "-D", "-e", "-f", conf)
	if err != nil {
		return nil, err
	}
	s.server = append(s.server, pid)
	if err := await(env.ctx, "sshd", func() error { return dials(s.ssh) }); err != nil {
		return nil, err
	}
	s.connect = func(ssh string) (int, string, string, error) {
		port, err := freePort()
		if err != nil {
			return 0, "", "", err
		}
		pid, err := env.forward(ssh, port, me.Username)
		return pid, fmt.Sprintf("127.0.0.1:%d", port), s.host, err
	}
	if pid, err = env.forward(s.ssh, ports[2], me.Username); err != nil {
		return nil, err
	}
	s.client = []int{pid}
	conf = filepath.Join(env.dir, "nginx.conf")
	if err := os.WriteFile(conf, []byte(env.nginxConf(ports[0], ports[2])), 0o644); err != nil {
		return nil, err
	}
	if pid, err = env.start("nginx", nil, nginx, "-e", "stderr", "-p", env.dir, "-c", conf); err != nil {
		return nil, err
	}
	s.server = append(s.server, pid)
	return s, nil
}

// sshdConf returns the settings of an sshd that listens on a port.
func (env *environment) sshdConf(port int) string {
	return fmt.Sprintf("Port %d\nListenAddress 127.0.0.1\nHostKey %s\nAuthorizedKeysFile %s.pub\nStrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\n",
		port, env.key, env.key)
}

// nginxConf returns the settings of an nginx that sends what comes to a port on to another.
func (env *environment) nginxConf(port, to int) string {
	return fmt.Sprintf(`worker_processes 1; daemon off; pid %[1]s/nginx.pid; error_log stderr;
events { worker_connections 4096; }
http {
  access_log off; client_max_body_size 0; keepalive_requests 1000000000; client_body_temp_path %[1]s/nginx-body; proxy_temp_path %[1]s/nginx-proxy;
  upstream tunnel { server 127.0.0.1:%[2]d; keepalive 512; keepalive_requests 1000000000; }
  server {
    listen 127.0.0.1:%[3]d backlog=4096;
    location / { proxy_pass http://tunnel; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host; }
  }
}
`, env.dir, to, port)
}

// forward starts an ssh client that forwards a port of an sshd to the local server.
func (env *environment) forward(ssh string, port int, user string) (int, error) {
	args, err := env.openSSH(ssh, fmt.Sprintf("127.0.0.1:%d:%s", port, env.local), user+"@")
	if err != nil {
		return 0, err
	}
	return env.start("ssh", nil, args...)
}

func dials(addr string) error {
	conn, err := net.Dial("tcp", addr)
	if err == nil {
		err = conn.Close()
	}
	return err
}

// ready asks a relayd whether it takes events.
func ready(addr string) error {
	_, err := get("http://" + addr + "/readyz")
	return err
}

// startRelay starts relayd with a tunnel by ssh or by relay up.
func (env *environment) startRelay(name string, onPostgres, up bool) (*system, error) {
	httpPort, err := freePort()
	if err != nil {
		return nil, err
	}
	sshPort, err := freePort()
	if err != nil {
		return nil, err
	}
	adminPort, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &system{
		name: name, host: "bench.localhost", addr: fmt.Sprintf("127.0.0.1:%d", httpPort), ssh: fmt.Sprintf("127.0.0.1:%d", sshPort),
		data: filepath.Join(env.dir, name), admin: fmt.Sprintf("127.0.0.1:%d", adminPort),
	}
	args := []string{
		filepath.Join(env.programs, "relayd"), "serve", "--data-dir", s.data, "--http-addr", s.addr, "--ssh-addr", s.ssh, "--admin-addr", s.admin, "--pprof", "on",
		"--initial-admin-keys", env.key + ".pub", "--log-level", "warn", "--max-aliases", "off", "--max-connections-per-account", "off",
		"--max-connections-per-source", "off", "--max-alias-storage", "off", "--min-free", "off",
	}
	if onPostgres {
		url, pid, err := env.database()
		if err != nil {
			return nil, err
		}
		s.database, args = []int{pid}, append(args, "--database-url", url)
	}
	pid, err := env.start(name, nil, args...)
	if err != nil {
		return nil, err
	}
	s.server = []int{pid}
	if err := await(env.ctx, "relayd", func() error { return ready(s.addr) }); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, env.logs())
	}
	n := 0
	s.connect = func(ssh string) (int, string, string, error) {
		alias := "bench"
		if n++; n > 1 {
			alias += strconv.Itoa(n)
		}
		pid, err := env.tunnel(name, ssh, alias, up)
		return pid, s.addr, alias + ".localhost", err
	}
	if pid, _, _, err = s.connect(s.ssh); err != nil {
		return nil, err
	}
	s.client = []int{pid}
	return s, nil
}

// tunnel starts a client of relayd for an alias.
func (env *environment) tunnel(name, ssh, alias string, up bool) (int, error) {
	if !up {
		args, err := env.openSSH(ssh, alias+":80:"+env.local, "")
		if err != nil {
			return 0, err
		}
		return env.start(name+"-client", nil, args...)
	}
	_, port, err := net.SplitHostPort(env.local)
	if err != nil {
		return 0, err
	}
	return env.start(name+"-client", nil, filepath.Join(env.programs, "relay"), "up", "--server", ssh, "--identity", env.key, "--port", port,
		"--alias", alias)
}

// startFRP starts frp as its documentation shows, with a virtual host.
func (env *environment) startFRP(name string) (*system, error) {
	frps, err := find("frps")
	if err != nil {
		return nil, err
	}
	frpc, err := find("frpc")
	if err != nil {
		return nil, err
	}
	control, err := freePort()
	if err != nil {
		return nil, err
	}
	vhost, err := freePort()
	if err != nil {
		return nil, err
	}
	server, client := filepath.Join(env.dir, "frps.toml"), filepath.Join(env.dir, "frpc.toml")
	_, port, err := net.SplitHostPort(env.local)
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("bindAddr = \"127.0.0.1\"\nbindPort = %d\nvhostHTTPPort = %d\n", control, vhost)
	if err := os.WriteFile(server, []byte(text), 0o644); err != nil {
		return nil, err
	}
	text = fmt.Sprintf("serverAddr = \"127.0.0.1\"\nserverPort = %d\n[[proxies]]\nname = \"web\"\ntype = \"http\"\nlocalPort = %s\ncustomDomains = [\"bench.localhost\"]\n", control, port)
	if err := os.WriteFile(client, []byte(text), 0o644); err != nil {
		return nil, err
	}
	s := &system{name: name, host: "bench.localhost", addr: fmt.Sprintf("127.0.0.1:%d", vhost)}
	pid, err := env.start("frps", nil, frps, "-c", server)
	if err != nil {
		return nil, err
	}
	s.server = []int{pid}
	if err := await(env.ctx, "frps", func() error { return dials(s.addr) }); err != nil {
		return nil, err
	}
	if pid, err = env.start("frpc", nil, frpc, "-c", client); err != nil {
		return nil, err
	}
	s.client = []int{pid}
	return s, nil
}
