package conformance

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"relay/store/pgtest"
)

// TestFaultRestore makes a backup under load, deletes the data, and restores the backup into an empty folder,
// as docs/backup.md says. All events that were answered before the backup exist, queued events are still
// queued, and clients accept the host key.
func TestFaultRestore(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, databaseURL string) {
		r := startRelay(t, databaseURL)
		r.alias("asleep")
		queued := size(20, 200)
		for i := range queued {
			if status, body, _ := r.call("asleep", fmt.Sprintf("/%d", i), "x"); status != 202 {
				t.Fatalf("queued: %d %s", status, body)
			}
		}
		tunnel := r.tunnel("busy", localServer(t))
		before := startLoad(r, "busy", 8, gently)
		before.more(size(200, 2000), 60*time.Second)
		before.end()
		during := startLoad(r, "busy", 4, func(l *load) { l.pause = 5 * time.Millisecond })
		during.more(20, 30*time.Second)
		begun := time.Now()
		restored := r.backup(t)
		took := time.Since(begun)
		during.more(20, 30*time.Second)
		during.end()
		tunnel.Kill()
		r.stop(syscall.SIGKILL)

		begun = time.Now()
		restored()
		r.start()
		back := time.Since(begun)
		// The client still has the old known_hosts, so it accepts only the same host key.
		r.tunnel("busy", localServer(t))
		v := before.check(t)
		waiting := len(r.events("asleep", "&state=queued"))
		doctor := r.relayd("doctor")
		status, _, _ := r.call("busy", "/after", "x")
		figure(t, "backup under load in %v, restored in %v: %v; queued %d of %d", took.Round(time.Millisecond), back.Round(time.Millisecond), v, waiting, queued)
		if !v.ok() || waiting != queued || status != 200 {
			t.Errorf("%v; queued %d of %d; then answered %d\n%s", v, waiting, queued, status, doctor)
		}
	})
}

// TestFaultReadersOfPostgres measures the delays of callers while other programs read the same database:
// repeated runs of pg_dump, and an open transaction that has read events, like a report. Measurements
// with and without these readers alternate, so that other load of the machine affects both. No caller may be
// refused. The median delay may triple with readers; without RELAY_FAULTS=full, other tests may run at the
// same time, and the delay may be five times as long.
func TestFaultReadersOfPostgres(t *testing.T) {
	if size(true, false) {
		t.Parallel()
	}
	_, databaseURL := ownPostgres(t)
	r := startRelay(t, databaseURL)
	r.tunnel("quiet", localServer(t))
	// pg_dump needs data to read.
	filled := startLoad(r, "quiet", 8, nil)
	filled.more(size(800, 50000), 5*time.Minute)
	filled.end()
	plain, schema := plainURL(t, databaseURL)
	db, err := sql.Open("postgres", databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	turns, phase := size(3, 5), size(time.Second, 5*time.Second)
	r.measure(phase / 4)
	var alone, beside quiet
	dumps := 0
	for range turns {
		alone.add(r.measure(phase))
		reader, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := reader.ExecContext(t.Context(), `SELECT count(*) FROM events`); err != nil {
			t.Fatal(err)
		}
		stop, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			for {
				file := filepath.Join(t.TempDir(), "relay.dump")
				if out, err := exec.Command(pgtest.Program(t, "pg_dump"), "--format=custom", "--schema="+schema, "--file="+file, plain).CombinedOutput(); err != nil {
					ended <- fmt.Errorf("pg_dump: %w\n%s", err, out)
					return
				}
				dumps++
				select {
				case <-stop:
					ended <- nil
					return
				default:
				}
			}
		}()
		beside.add(r.measure(phase))
		close(stop)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if err := reader.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
	before, with := quantile(alone.waits, 0.5), quantile(beside.waits, 0.5)
	figure(t, "beside %d dumps and an open reader of events: p50 %v, p99 %v, longest %v; without them p50 %v, p99 %v, longest %v; requests %d and %d, errors %d",
		dumps, with.Round(10*time.Microsecond), quantile(beside.waits, 0.99).Round(10*time.Microsecond), quantile(beside.waits, 1).Round(time.Millisecond),
		before.Round(10*time.Microsecond), quantile(alone.waits, 0.99).Round(10*time.Microsecond), quantile(alone.waits, 1).Round(time.Millisecond),
		len(beside.waits), len(alone.waits), alone.errors+beside.errors)
	if alone.errors+beside.errors > 0 || with > size[time.Duration](5, 3)*before {
		t.Errorf("errors %d, median %v beside the readers, %v without", alone.errors+beside.errors, with, before)
	}
}

// backup copies the store and the host key. The returned function restore puts the copies into an empty folder or
// database.
func (r *relayServer) backup(t *testing.T) (restore func()) {
	t.Helper()
	dir, data := t.TempDir(), filepath.Join(r.dir, "data")
	key := filepath.Join(dir, "ssh_host_ed25519_key")
	store := r.backupPostgres // a backup of Postgres includes the host key, which is in the database
	if r.database == "" {
		copyFile(t, filepath.Join(data, "ssh_host_ed25519_key"), key)
		store = r.backupSQLite
	}
	stored := store(t, dir)
	return func() {
		r.dir = t.TempDir()
		copyFile(t, filepath.Join(filepath.Dir(data), "known_hosts"), filepath.Join(r.dir, "known_hosts"))
		data := filepath.Join(r.dir, "data")
		if err := os.Mkdir(data, 0o700); err != nil {
			t.Fatal(err)
		}
		if r.database == "" {
			copyFile(t, key, filepath.Join(data, "ssh_host_ed25519_key"))
		}
		stored()
	}
}

func (r *relayServer) backupSQLite(t *testing.T, dir string) func() {
	file := filepath.Join(dir, "relay.db")
	r.relayd("backup", file)
	return func() { copyFile(t, file, filepath.Join(r.dir, "data", "relay.db")) }
}

// backupPostgres dumps the schema. The returned function restores the dump on another server, which r then
// uses.
func (r *relayServer) backupPostgres(t *testing.T, dir string) func() {
	file := filepath.Join(dir, "relay.dump")
	from, schema := plainURL(t, r.database)
	command(t, pgtest.Program(t, "pg_dump"), "--format=custom", "--schema="+schema, "--file="+file, from)
	return func() {
		other := pgtest.Start(t, pgtest.Options{Fsync: true})
		to := other.URL(t)
		plain, fresh := plainURL(t, to)
		command(t, pgtest.Program(t, "pg_restore"), "--no-owner", "--dbname="+plain, file)
		r.database = strings.ReplaceAll(to, fresh, schema)
	}
}

// plainURL returns a database URL without its schema, and the schema. Only the driver of relayd reads the
// schema from the URL.
func plainURL(t *testing.T, databaseURL string) (plain, schema string) {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	schema = q.Get("search_path")
	q.Del("search_path")
	u.RawQuery = q.Encode()
	return u.String(), schema
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
