package dashboard_test

import (
	"database/sql"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/store"
)

// TestHomeShowsHealth: aliases whose newest event failed come first, then those with a queue. An alias shows
// its number of events and share of errors.
func TestHomeShowsHealth(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	for _, name := range []string{"fails", "idle", "queue"} {
		_, err := r.s.CreateAlias(t.Context(), relay.System(), name, "alice")
		must(t, err)
		r.await("known", func() bool { _, ok := r.d.Alias(name); return ok })
	}
	hook := r.alias
	r.online()
	r.send(post("/a", "{}"))
	r.sendTo("queue", post("/b", "{}"))
	r.alias, _ = r.d.Alias("fails")
	r.online()
	r.sendTo("fails", post("/c", "{}"))
	r.answers(func([]byte, []byte) string { return httpAnswer("500 Internal Server Error", "{}") })
	r.sendTo("fails", post("/c", "{}"))
	r.alias = hook
	page := r.get("/", 200)
	var order []string
	for _, m := range regexp.MustCompile(`<tr data-alias="(\w+)"`).FindAllStringSubmatch(page, -1) {
		order = append(order, m[1])
	}
	if got := strings.Join(order, " "); got != "fails queue hook idle" {
		t.Errorf("the aliases are in the order %s", got)
	}
	contains(t, "home", page, "2 events, 50 % errors", `class="pill s5">500`, `class="pill s2">200`, "1 queued", "none yet")
}

// TestHomeOfManyAliases: 5,001 aliases are shown on pages of 50 aliases and at most 100 KB each. A search for a
// part of a name finds an alias.
func TestHomeOfManyAliases(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := newFixtureOn(t, store.Options{DataDir: dir, MaxAliases: 50})
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "relay.db")+"?_pragma=busy_timeout(60000)")
	must(t, err)
	_, err = db.Exec(`WITH RECURSIVE k (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < 5000) INSERT INTO aliases (owner_id, name, created_at, last_online_at,
		offline_status, auto_deliver, host_header, forwarded, fresh_connections, paused) SELECT (SELECT owner_id FROM aliases), printf('many-%04d', i), 1, 0, 202, 0, 'preserve', 0, 0, 0 FROM k`)
	must(t, err)
	must(t, db.Close())
	best := time.Hour
	var page string
	for range 3 {
		began := time.Now()
		page = r.get("/", http.StatusOK)
		best = min(best, time.Since(began))
	}
	t.Logf("%d bytes in %v", len(page), best)
	if n := strings.Count(page, "<tr data-alias="); n != 50 || len(page) > 100_000 {
		t.Errorf("%d rows, %d bytes", n, len(page))
	}
	contains(t, "home", page, `href="/?page=2" rel="next"`, "5001 aliases", `name="name"`)
	contains(t, "the last page", r.get("/?page=101", 200), `href="/aliases/many-5000"`, `rel="prev"`)
	contains(t, "a page behind the last", r.get("/?page=9999", 200), `href="/aliases/many-5000"`)
	contains(t, "a part of a name", r.get("/?name=Y-0042", 200), `<tr data-alias="many-0042"`)
	contains(t, "no name", r.get("/?name=zzz", 200), "No alias has this in its name")
}

// TestOverviewTellsWhetherAllIsWell: the overview has the newest failures with their error texts, and the
// event types with their share of errors. An alias with a queue shows the age of its oldest event.
func TestOverviewTellsWhetherAllIsWell(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	send := func(kind string) {
		r.send(post("/webhooks/stripe", `{"id":"evt_1","type":"`+kind+`"}`, "Stripe-Signature: t=1,v1=x"))
	}
	contains(t, "an empty alias", r.get("/aliases/hook", 200), `id="plot" data-region="inner" hidden`)
	for range 3 {
		send("payout.paid")
	}
	page := r.get("/aliases/hook", 200)
	contains(t, "without a failure", page, "None in the last 24 hours.", `href="/aliases/hook?type=payout.paid" data-part>payout.paid</a></td><td>3</td>`)
	r.answers(func([]byte, []byte) string {
		return httpAnswer("500 Internal Server Error", `{"error":"no \u003cname\u003e"}`)
	})
	send("invoice.paid")
	send("payout.paid")
	page = r.get("/aliases/hook", 200)
	contains(t, "with failures", page, `<span class="cause">no &lt;name&gt;</span>`, "1 (100 %)", "1 (25 %)", `href="/aliases/hook?status=error" data-part>All errors`)
	r.offline()
	r.send(post("/late", "{}"))
	contains(t, "with a queue", r.get("/aliases/hook", 200), "1 event was queued while offline", ", the oldest ")
}
