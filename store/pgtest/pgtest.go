// Package pgtest starts a real Postgres for tests from the installed binaries. There is one server
// for a test process, in a temporary directory and on a unix socket. If the tests run as root, it
// runs as an unprivileged user. The server ends with the test process, even if that is killed.
//
// Without Postgres a test fails and names the package to install. It does not skip itself, because
// skipped tests are easily overlooked.
package pgtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lib/pq"
)

// Dir returns the folder of the server and its data.
func (s *Server) Dir() string { return s.dir }

// URL returns the address of an empty schema for the test, on a server that does not wait for the
// disk. The schema is dropped when the test ends.
func URL(t testing.TB) string {
	t.Helper()
	return patient(schema(t, shared(t, false)))
}

// DurableURL is like URL, but on a server that makes each commit durable on a disk. It is for benchmarks.
func DurableURL(t testing.TB) string {
	t.Helper()
	return patient(schema(t, shared(t, true)))
}

// patient returns an address whose connections tolerate a machine that is busy with other tests. It is not
// used for servers that a test starts itself, because the test may stop or freeze the server and has to
// notice that within the usual time.
func patient(address string) string { return address + "&connect_timeout=30" }

type slot struct {
	once sync.Once
	s    *Server
	err  error
}

// servers are the shared servers of this process: [0] without fsync, [1] with fsync.
var servers [2]slot

func shared(t testing.TB, fsync bool) *Server {
	t.Helper()
	i := 0
	if fsync {
		i = 1
	}
	servers[i].once.Do(func() { servers[i].s, servers[i].err = Launch(Options{Fsync: fsync, Disk: fsync}) })
	if servers[i].err != nil {
		t.Fatal(servers[i].err)
	}
	return servers[i].s
}

// Options configure a server that a test starts.
type Options struct {
	Fsync bool // each commit is synced before it is answered, as in production
	Disk  bool // the data are on a disk, so that a sync takes its usual time; see temporary
}

// Server is one Postgres. Tests that stop, kill or freeze it start their own.
type Server struct {
	dir  string
	bin  string
	opt  Options
	who  *user.User // nil = the user of the test process
	cmd  *exec.Cmd
	hold io.Closer // the watcher ends the server when hold is closed
}

// Start starts a server for one test; it is stopped when the test ends.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := Launch(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// Close stops the server and removes its data.
func (s *Server) Close() {
	s.Stop()
	_ = os.RemoveAll(s.dir) // errors are ignored, because the files are in the temporary folder anyway
}

// URL returns the address of an empty schema on this server for the test.
func (s *Server) URL(t testing.TB) string {
	t.Helper()
	return schema(t, s)
}

var schemas atomic.Int64

func schema(t testing.TB, s *Server) string {
	t.Helper()
	name, err := s.newSchema()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		drop := `DROP SCHEMA IF EXISTS ` + name + ` CASCADE`
		err := s.exec(drop)
		for tries := 0; deadlocked(err) && tries < 5; tries++ { // a statement of a killed relayd may still run
			err = s.exec(drop)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return s.address("search_path", name)
}

// deadlocked reports whether Postgres ended a statement because it and another one waited for each other.
func deadlocked(err error) bool {
	e, ok := errors.AsType[*pq.Error](err)
	return ok && e.Code == "40P01"
}

// NewSchema returns the address of an empty schema, which exists as long as the server.
func (s *Server) NewSchema() (string, error) {
	name, err := s.newSchema()
	return s.address("search_path", name), err
}

func (s *Server) newSchema() (name string, err error) {
	name = fmt.Sprintf("t%d_%d", os.Getpid(), schemas.Add(1))
	return name, s.exec(`CREATE SCHEMA ` + name)
}

func (s *Server) address(more ...string) string {
	q := url.Values{"host": {s.dir}, "sslmode": {"disable"}}
	for i := 0; i+1 < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	u := url.URL{Scheme: "postgres", User: url.User("relay"), Path: "/postgres", RawQuery: q.Encode()}
	return u.String()
}

func (s *Server) exec(statement string) error {
	db, err := sql.Open("postgres", s.address())
	if err != nil {
		return err
	}
	_, err = db.ExecContext(context.Background(), statement)
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

// Launch makes a cluster in a temporary directory and starts a server on it; Close stops it.
func Launch(o Options) (*Server, error) {
	bin, err := find()
	if err != nil {
		return nil, err
	}
	// The path of a socket has to be short, but TMPDIR may be long.
	place := "/tmp"
	if !o.Disk {
		place = temporary()
	}
	dir, err := os.MkdirTemp(place, "relay-pg")
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	s := &Server{dir: dir, bin: bin, opt: o}
	if err = s.dropRoot(); err == nil {
		err = s.makeCluster()
	}
	if err == nil {
		err = s.Restart()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// find returns the folder of the Postgres binaries: the newest in Debian's places, then PATH.
func find() (string, error) {
	places, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres") // the pattern is well formed
	slices.SortFunc(places, func(a, b string) int { return version(b) - version(a) })
	if p, err := exec.LookPath("postgres"); err == nil {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			places = append(places, real)
		}
	}
	for _, p := range places {
		dir := filepath.Dir(p)
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("these tests need a real Postgres 14 or newer, and none is installed: apt-get install postgresql (Debian, Ubuntu), " +
		"brew install postgresql@16 (macOS), or put postgres and initdb on PATH")
}

func version(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))) // a name that is no number counts as the oldest version
	return n
}

// dropRoot chooses the user that runs the server, because Postgres refuses root.
func (s *Server) dropRoot() error {
	if os.Getuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		s.who = u
		return os.Chown(s.dir, uid, gid)
	}
	return errors.New("these tests run as root, Postgres does not, and there is no user postgres or nobody to run it as")
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// watch is the shell script that runs the server. When its standard input is closed, by Stop or by the end of
// the test process, it ends the server and removes its directory. If the server is frozen at that time, the
// kernel sends HUP to the group, and the script sends CONT to the processes of the server, so that they can end.
const watch = `trap '' INT HUP
dir=$1; shift
"$@" & server=$!
while read -r line; do :; done
kill -INT $server 2>/dev/null
kill -CONT $server 2>/dev/null
pkill -CONT -P $server 2>/dev/null
wait $server
[ -e "$dir/keep" ] || rm -rf "$dir"`

// Restart starts the server on its data, for Launch or after Stop or Kill, and waits until the server
// answers.
func (s *Server) Restart() error {
	fsync := "off"
	if s.opt.Fsync {
		fsync = "on"
	}
	// When a killed server starts, it first syncs its data to the disk by this method. syncfs is a single
	// call, but only Linux has it. fsync is a call for each of some thousand files, which takes seconds.
	recovery := "fsync"
	if runtime.GOOS == "linux" {
		recovery = "syncfs"
	}
	// As many tests run at once as there are cores, and each has one or two relays with their
	// connection pools.
	connections := min(max(200, 50*runtime.GOMAXPROCS(0)), 1000)
	// If a killed server has left these files, they would prevent the start of the next server.
	_ = os.Remove(filepath.Join(s.data(), "postmaster.pid"))
	_ = os.Remove(filepath.Join(s.dir, "keep"))
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer func() { _ = log.Close() }() // the server has its own handle of the log
	s.cmd = exec.Command("/bin/sh", "-c", watch, "sh", s.dir, filepath.Join(s.bin, "postgres"), "-D", s.data(), "-k", s.dir,
		"-c", "listen_addresses=", "-c", "fsync="+fsync, "-c", "full_page_writes="+fsync, "-c", "synchronous_commit="+fsync,
		"-c", "recovery_init_sync_method="+recovery, "-c", "max_connections="+strconv.Itoa(connections), "-c", "shared_buffers=128MB", "-c", "log_min_messages=warning")
	s.as(s.cmd)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if s.hold, err = s.cmd.StdinPipe(); err != nil {
		return fmt.Errorf("watch postgres: %w", err)
	}
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	return s.await()
}

// await waits until the server answers a query.
func (s *Server) await() error {
	db, err := sql.Open("postgres", s.address())
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		if err = db.PingContext(ctx); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			return fmt.Errorf("postgres does not answer: %w\n%s", err, log)
		case <-poll.C:
		}
	}
}

// Stop shuts the server down properly; its data stay for Restart.
func (s *Server) Stop() {
	if s.cmd == nil {
		return
	}
	_ = os.WriteFile(filepath.Join(s.dir, "keep"), nil, 0o644) // tells the watcher to leave the data
	_ = s.hold.Close()
	_ = s.cmd.Wait() // the error only says how the server ended
	s.cmd = nil
}

// PID returns the id of the server's process, which tests freeze or kill.
func (s *Server) PID() (int, error) {
	b, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return 0, fmt.Errorf("read pid: %w", err)
	}
	var pid int
	if _, err := fmt.Sscan(string(b), &pid); err != nil {
		return 0, fmt.Errorf("read pid: %w", err)
	}
	return pid, nil
}

// Program returns the path of a program that is installed with the server, such as pg_dump.
func Program(t testing.TB, name string) string {
	t.Helper()
	dir, err := find()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}
