package conformance

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"relay/relaytest"
	"relay/store/pgtest"
)

// dba is a superuser of a Postgres server. The database app on it belongs to an ordinary role, as the
// database of relayd does in production.
type dba struct {
	t      *testing.T
	pg     *pgtest.Server
	db     *sql.DB // connection as superuser to the database of relayd
	socket string  // folder of the Unix socket
}

// appRole is the role of relayd, and appPassword its password if one is required.
const appRole, appPassword = "app", "first"

func newDBA(t *testing.T) *dba {
	t.Helper()
	pg := pgtest.Start(t, pgtest.Options{Fsync: true})
	u, err := url.Parse(pg.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	d := &dba{t: t, pg: pg, socket: u.Query().Get("host")}
	d.open("postgres")
	d.do(`CREATE ROLE `+appRole+` LOGIN PASSWORD '`+appPassword+`'`, `CREATE DATABASE app OWNER `+appRole)
	d.open("app")
	return d
}

// open connects d.db to the given database, so that later calls of d use it.
func (d *dba) open(database string) {
	d.t.Helper()
	db, err := sql.Open("postgres", d.address("relay", "", database))
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = db.Close() })
	d.db = db
}

// address returns the URL of a database on the server itself, without a pooler.
func (d *dba) address(role, password, database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(role, password), Path: "/" + database}
	u.RawQuery = url.Values{"host": {d.socket}, "sslmode": {"disable"}}.Encode()
	return u.String()
}

// url returns the database URL for relayd.
func (d *dba) url() string { return d.address(appRole, appPassword, "app") }

// do runs statements as superuser.
func (d *dba) do(statements ...string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, statement := range statements {
		if _, err := d.db.ExecContext(ctx, statement); err != nil {
			d.t.Fatalf("%s: %v", statement, err)
		}
	}
}

// count returns the number that a query selects.
func (d *dba) count(query string) (n int) {
	d.t.Helper()
	if err := d.db.QueryRow(query).Scan(&n); err != nil {
		d.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// terminate ends every session of the role of relayd.
func (d *dba) terminate() {
	d.t.Helper()
	d.do(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '` + appRole + `'`)
}

// sessions counts the sessions of relayd's role.
func (d *dba) sessions() int {
	d.t.Helper()
	return d.count(`SELECT count(*) FROM pg_stat_activity WHERE usename = '` + appRole + `'`)
}

// bouncer is a pgbouncer in front of a server.
type bouncer struct {
	t    *testing.T
	dir  string
	addr string
	mode string // pool mode
	log  *relaytest.Buffer
	cmd  *exec.Cmd
	hold io.Closer // closing it makes bouncerScript kill pgbouncer
}

// newBouncer starts a pgbouncer with the given settings of pgbouncer.ini.
func (d *dba) newBouncer(settings map[string]string) *bouncer {
	d.t.Helper()
	dir, err := os.MkdirTemp("/tmp", "relay-bouncer")
	if err != nil {
		d.t.Fatal(err)
	}
	b := &bouncer{t: d.t, dir: dir, addr: relaytest.FreeAddr(d.t), mode: settings["pool_mode"], log: &relaytest.Buffer{}}
	d.t.Cleanup(func() {
		b.kill()
		_ = os.RemoveAll(dir)
		if d.t.Failed() {
			d.t.Logf("pgbouncer log:\n%s", relaytest.Tail(b.log.String(), 3000))
		}
	})
	b.configure(d.socket, settings)
	b.start()
	return b
}

// restartIfEnded starts pgbouncer again if it no longer accepts connections. Version 1.18 crashes if the
// sender of a cancel request has gone before the request is passed on ("bad client state").
func (b *bouncer) restartIfEnded() {
	b.t.Helper()
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		b.kill()
		b.start()
		return
	}
	_ = c.Close()
}

func (b *bouncer) configure(socket string, settings map[string]string) {
	b.t.Helper()
	_, port, _ := net.SplitHostPort(b.addr)
	all := map[string]string{
		"listen_addr": "127.0.0.1", "listen_port": port, "unix_socket_dir": "", "auth_type": "trust",
		"auth_file": filepath.Join(b.dir, "users"), "admin_users": "relay", "default_pool_size": "20", "server_login_retry": "1",
	}
	maps.Copy(all, settings)
	var ini strings.Builder
	fmt.Fprintf(&ini, "[databases]\n* = host=%s\n[pgbouncer]\n", socket)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&ini, "%s = %s\n", name, all[name])
	}
	for name, content := range map[string]string{"ini": ini.String(), "users": `"relay" ""` + "\n" + `"` + appRole + `" "` + appPassword + `"` + "\n"} {
		if err := os.WriteFile(filepath.Join(b.dir, name), []byte(content), 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := os.Chmod(b.dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
}

// bouncerScript is the shell script that runs pgbouncer and kills it when standard input ends.
const bouncerScript = `trap '' INT HUP
"$@" & p=$!
read -r line
kill -KILL $p 2>/dev/null
wait $p`

// start runs pgbouncer as a user other than root, and waits until it answers.
func (b *bouncer) start() {
	b.t.Helper()
	program := "pgbouncer"
	if _, err := exec.LookPath(program); err != nil {
		program = "/usr/sbin/pgbouncer" // not every user has this folder in PATH
	}
	b.cmd = exec.Command("/bin/sh", "-c", bouncerScript, "sh", program, filepath.Join(b.dir, "ini"))
	b.cmd.Stdout, b.cmd.Stderr = b.log, b.log
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() == 0 {
		b.cmd.SysProcAttr.Credential = unprivileged(b.t)
	}
	var err error
	if b.hold, err = b.cmd.StdinPipe(); err != nil {
		b.t.Fatal(err)
	}
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	relaytest.Until(b.t, 10*time.Second, "pgbouncer to answer (apt-get install pgbouncer)", func() bool {
		c, err := net.Dial("tcp", b.addr)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	})
}

// kill ends pgbouncer at once.
func (b *bouncer) kill() {
	_ = b.hold.Close()
	_ = b.cmd.Wait() // the script always exits with an error, because pgbouncer is killed
}

// say sends a command to pgbouncer's console.
func (b *bouncer) say(command string) {
	b.t.Helper()
	db, err := sql.Open("postgres", "postgres://relay@"+b.addr+"/pgbouncer?sslmode=disable")
	if err != nil {
		b.t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(command); err != nil {
		b.t.Errorf("pgbouncer: %s: %v", command, err)
	}
}

// url returns the database URL for relayd, through pgbouncer.
func (b *bouncer) url() string {
	return "postgres://" + appRole + ":" + appPassword + "@" + b.addr + "/app?sslmode=disable"
}

// unprivileged returns a user for programs that do not run as root.
func unprivileged(t *testing.T) *syscall.Credential {
	t.Helper()
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.ParseUint(u.Uid, 10, 32)
			gid, _ := strconv.ParseUint(u.Gid, 10, 32)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	t.Fatal("there is no user postgres or nobody")
	return nil
}

// postgresLine starts a relaytest.Line in front of a Postgres that listens on a Unix socket. It returns the
// database URL that leads through the Line.
func postgresLine(t testing.TB, databaseURL string) (l *relaytest.Line, through string) {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	l = relaytest.NewLine(t, "unix", postgresSocket(q.Get("host")))
	q.Del("host")
	u.Host, u.RawQuery = l.Addr, q.Encode()
	return l, u.String()
}

// postgresSocket returns the path of the Unix socket of a Postgres whose socket folder is dir.
func postgresSocket(dir string) string { return filepath.Join(dir, ".s.PGSQL.5432") }
