package conformance

import (
	"bytes"
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"relay/store/pgtest"
)

// TestOldStoreServes starts relayd on a store of each released schema. relayd shows the events of the store,
// delivers queued events and replays an event, byte for byte.
func TestOldStoreServes(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../store/testdata/store-v*.*.sql")
	if err != nil || len(files) < 4 {
		t.Fatalf("fixtures %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			serveOldStore(t, file)
		})
	}
}

func serveOldStore(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	database := ""
	if strings.HasSuffix(file, ".postgres.sql") {
		database = pgtest.URL(t)
	}
	r := newRelay(t, database)
	if database == "" {
		fillSQLite(t, filepath.Join(r.dir, "data"), file)
	} else {
		fillPostgres(t, database, string(text))
	}
	r.start()
	r.token = strings.TrimSpace(r.relayd("token", "add", "--user", "alice"))
	r.relayd("key", "add", "--user", "alice", r.key+".pub")

	want := map[string]string{
		"/queued": "queued", "/small": "delivered", "/large": "delivered", "/failed": "failed", "/running": "interrupted", "/shared": "delivered",
	}
	ids := map[string]string{}
	for _, e := range r.events("hooks", "") {
		if want[e.Path] != e.State {
			t.Errorf("%s is %s, want %s", e.Path, e.State, want[e.Path])
		}
		ids[e.Path] = e.ID
	}
	if len(ids) != len(want) {
		t.Fatalf("events %v", ids)
	}
	if body := r.must(200, "GET", "/events/"+ids["/large"]+"/request.body", nil); string(body) != "partpart" {
		t.Errorf("the body that is stored in parts reads %q", body)
	}

	local := newTarget(t)
	local.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false)
	r.must(202, "POST", "/aliases/hooks/replay-queued", nil)
	r.waitFor(10*time.Second, "the new key to open a tunnel", func() bool {
		p := r.forward(t, "openssh", forwarding{bind: "hooks", to: local.addr, flags: []string{"-o", "ExitOnForwardFailure=yes"}})
		for !p.HasEnded() && r.state("hooks") != "online" {
			time.Sleep(20 * time.Millisecond)
		}
		return !p.HasEnded()
	})
	sameBytes(t, local.next(), r.must(200, "GET", "/events/"+ids["/queued"]+"/request.raw", nil))
	if e := r.replay(ids["/small"]); e.State != "delivered" || len(e.Attempts) != 2 || e.Attempts[1].Identical == nil || !*e.Attempts[1].Identical {
		t.Errorf("replay: %+v", e)
	}
	sameBytes(t, local.next(), []byte("POST /small HTTP/1.1\r\nHost: hooks.example.com\r\nContent-Length: 4\r\n\r\nbody"))
}

func sameBytes(t *testing.T, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("the local server read %q, stored is %q", got, want)
	}
}

func fillPostgres(t *testing.T, database, text string) {
	t.Helper()
	db, err := sql.Open("postgres", database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(text); err != nil {
		t.Fatal(err)
	}
}

// fillSQLite creates a database with Python's library, because this module has no SQLite driver.
func fillSQLite(t *testing.T, dir, file string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	script := `import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(open(sys.argv[2]).read())`
	if out, err := exec.Command(python, "-c", script, filepath.Join(dir, "relay.db"), file).CombinedOutput(); err != nil {
		t.Fatalf("fill the database: %v: %s", err, out)
	}
}
