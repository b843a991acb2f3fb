package conformance

import (
	"database/sql"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"relay/relaytest"
	"relay/store/pgtest"
)

// TestFaultTwoOnOneDataDir: a second server on a data dir reports the first one and exits with 1, and the
// first server continues.
func TestFaultTwoOnOneDataDir(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	second := newRelay(t, "", "RELAY_DATA_DIR="+filepath.Join(r.dir, "data"))
	begun := time.Now()
	code, said := second.spawn().Code(t, 15*time.Second), strings.TrimSpace(second.log.String())
	figure(t, "the second relayd on a data dir exits %d after %v: %s", code, time.Since(begun).Round(10*time.Millisecond), relaytest.Tail(said, 200))
	if code != 1 || !strings.Contains(said, "another") || r.ready() != 200 {
		t.Errorf("exit %d, the first is ready: %d, said %q", code, r.ready(), said)
	}
}

// TestFaultTwoOnOnePostgres starts two servers at once on an empty database. One of them migrates, both
// serve, and one continues when the other is killed.
func TestFaultTwoOnOnePostgres(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.URL(t)
	rigs := []*relayServer{newRelay(t, databaseURL), newRelay(t, databaseURL)}
	rigs[1].key = rigs[0].key
	for _, r := range rigs {
		r.spawn()
	}
	for _, r := range rigs {
		r.waitFor(20*time.Second, "both servers to be ready", func() bool { return r.ready() == 200 })
	}
	first, second := rigs[0], rigs[1]
	first.token, _ = first.newToken(first.key)
	second.token = first.token
	first.alias("shared")
	queued := func(r *relayServer, path string) {
		t.Helper()
		r.waitFor(5*time.Second, "the alias to be known", func() bool { status, _, _ := r.call("shared", path, "x"); return status == 202 })
	}
	queued(first, "/before")
	queued(second, "/beside")
	first.stop(syscall.SIGKILL)
	if status, body, _ := second.call("shared", "/after", "x"); status != 202 || second.ready() != 200 {
		t.Errorf("the second server answered %d %s", status, body)
	}
	events, migrated := len(second.events("shared", "")), migrations(t, databaseURL)
	figure(t, "two relayd started at once on an empty Postgres: each migration ran %d times; events %d of 3", migrated, events)
	if migrated != 1 || events != 3 {
		t.Errorf("migrated %d times, events %d", migrated, events)
	}
}

// migrations returns how often the migrations were applied; more than 1 = at least one was applied
// repeatedly.
func migrations(t *testing.T, databaseURL string) (n int) {
	t.Helper()
	db, err := sql.Open("postgres", databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow(`SELECT max(n) FROM (SELECT count(*) AS n FROM goose_db_version WHERE is_applied GROUP BY version_id) AS each`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestFaultQueueFull: if a queue has its largest number of events or of bytes, callers get a clear error, and
// earlier events stay queued.
func TestFaultQueueFull(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		setting, body string
		least, most   int // bounds of the number of requests that fit
	}{
		"count": {"RELAY_QUEUE_LIMIT=20", "x", 20, 20},
		"bytes": {"RELAY_QUEUE_BYTES=200KiB", strings.Repeat("x", 10<<10), 19, 20}, // the bytes of heads count, too
	} {
		t.Run(name, func(t *testing.T) {
			r := startRelay(t, "", c.setting)
			r.alias("narrow")
			codes := map[int]int{}
			var last http.Header
			for range 30 {
				status, _, header := r.call("narrow", "/q", c.body)
				codes[status]++
				if status == 503 {
					last = header
				}
			}
			queued := len(r.events("narrow", "&state=queued"))
			figure(t, "%s: answers %v, queued %d", c.setting, codes, queued)
			if codes[202] < c.least || codes[202] > c.most || codes[202]+codes[503] != 30 || queued != codes[202] ||
				last.Get("Relay-Error") != "queue-full" || last.Get("Retry-After") == "" {
				t.Errorf("answers %v, queued %d, header %v", codes, queued, last)
			}
		})
	}
}
