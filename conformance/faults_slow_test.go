package conformance

import (
	"database/sql"
	"testing"
	"time"
)

// TestFaultSlowStore delays every packet from and to Postgres by 100 ms. Requests are still answered, none
// after more than 5 s and none with 503, and at most 16 connections to Postgres are open. Without the delay,
// relayd recovers.
func TestFaultSlowStore(t *testing.T) {
	t.Parallel()
	_, databaseURL := ownPostgres(t)
	link, through := postgresLine(t, databaseURL)
	r := startRelay(t, through)
	r.autossh("slow", localServer(t))
	l := startLoad(r, "slow", 16, gently)
	phase := size(5*time.Second, 10*time.Second) // long enough for several answers in a row, which take two seconds each with the delay
	quick := l.during(phase)
	link.Delay(100 * time.Millisecond)
	slow := l.during(phase)
	most := sessions(t, databaseURL)
	link.Delay(0)
	back := l.recovery(time.Now())
	l.end()
	v := l.check(t)
	figure(t, "every packet of the store +100 ms: %d answers in %v, before %d; longest wait %v, sessions at Postgres %d, back after %v; %v, by status %v, without answer %d",
		slow, phase, quick, l.longest.Round(10*time.Millisecond), most, back.Round(100*time.Millisecond), v, l.codes, l.broken)
	if !v.ok() || slow == 0 || l.longest > bound(outageAnswer) || most > 16 || l.broken > 0 || l.codes[503] > 0 || back > bound(5*time.Second) {
		t.Errorf("a slow store: %v, answers while it was slow %d, longest %v, sessions %d, 503 %d, without answer %d, back after %v", v, slow, l.longest, most, l.codes[503], l.broken, back)
	}
}

// during counts the answers within d.
func (l *load) during(d time.Duration) int {
	before := l.count()
	<-time.After(d)
	return l.count() - before
}

// sessions counts the connections to Postgres, except the connection with which it counts.
func sessions(t *testing.T, databaseURL string) (n int) {
	t.Helper()
	db, err := sql.Open("postgres", databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
