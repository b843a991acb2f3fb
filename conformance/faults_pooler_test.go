package conformance

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"relay/relaytest"
)

// TestFaultPooler runs relayd behind pgbouncer, in transaction and in session mode, with a direct URL. relayd
// serves after outages of pgbouncer and Postgres, after a kill of relayd, and when a second relayd takes the
// place of the first one.
func TestFaultPooler(t *testing.T) {
	t.Parallel()
	for mode, settings := range map[string]map[string]string{
		"transaction": {"pool_mode": "transaction"},
		"session":     {"pool_mode": "session", "default_pool_size": "40"},
		"transaction, two connections": {
			"pool_mode": "transaction", "default_pool_size": "2", "server_lifetime": "1", "idle_transaction_timeout": "2", "server_idle_timeout": "1",
		},
	} {
		if mode != "transaction" && size(true, false) {
			continue
		}
		t.Run(strings.ReplaceAll(mode, " ", "_"), func(t *testing.T) {
			d := newDBA(t)
			d.do(`ALTER ROLE ` + appRole + ` SET synchronous_commit = off`)
			b := d.newBouncer(settings)
			r := startRelay(t, b.url(), "RELAY_DATABASE_DIRECT_URL="+d.url())
			r.autossh("pooled", echoServer(t))
			usual(t, r)
			outages(t, d, b, r)
			usual(t, r)
			overKill(t, r)
			takeover(t, r)
		})
	}
}

// outages stops pgbouncer and Postgres under load.
func outages(t *testing.T, d *dba, b *bouncer, r *relayServer) {
	t.Helper()
	for _, c := range []struct {
		name       string
		away, back func()
	}{
		{"pgbouncer paused", func() { b.say("PAUSE") }, func() { b.say("RESUME") }},
		{"pgbouncer killed", b.kill, b.start},
		{"Postgres killed behind it", func() { must(t, d.pg.Kill()) }, func() { must(t, d.pg.Restart()) }},
		{"every session terminated", d.terminate, func() {}},
	} {
		if c.name == "pgbouncer paused" && b.mode == "session" {
			continue // in session mode, PAUSE would wait until relayd disconnects
		}
		if c.name == "every session terminated" && size(true, false) {
			continue // TestFaultMisbehavingAdministrator covers this case
		}
		l := startLoad(r, "pooled", 4, evenly)
		l.more(size(20, 50), 30*time.Second)
		c.away()
		<-time.After(size(1500*time.Millisecond, 5*time.Second))
		c.back()
		back := l.recovery(time.Now())
		l.end()
		r.waitFor(60*time.Second, "the spool to be empty", func() bool { return r.stats().SpoolBytes == 0 && r.ready() == 200 })
		v := l.check(t)
		figure(t, "%s: %v, by status %v, without answer %d, longest wait %v, back after %v",
			c.name, v, l.codes, l.broken, l.longest.Round(10*time.Millisecond), back.Round(100*time.Millisecond))
		if !v.ok() || l.codes[503] > 0 || l.broken > 0 || l.longest > bound(outageAnswer) || back > bound(5*time.Second) {
			t.Errorf("%s: %v, by status %v, without answer %d, longest wait %v, back after %v", c.name, v, l.codes, l.broken, l.longest, back)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func echoServer(t *testing.T) string {
	t.Helper()
	return serveLocal(t, func(w http.ResponseWriter, req *http.Request) { _, _ = io.Copy(w, req.Body) })
}

// usual makes typical requests: a body of several parts, a replay, the live view, and a token that another
// process creates and removes.
func usual(t *testing.T, r *relayServer) {
	t.Helper()
	live := r.live()
	defer live.close()
	body := random(900<<10, 7)
	status, answer, _ := r.through("pooled", "/usual", body)
	if status != 200 || answer != body {
		t.Errorf("a large body: %d, %d bytes of %d", status, len(answer), len(body))
	}
	e := r.latest("pooled")
	if raw := r.must(200, "GET", "/events/"+e.ID+"/request.body", nil); string(raw) != body {
		t.Errorf("stored %d bytes of %d", len(raw), len(body))
	}
	if again := r.replay(e.ID); len(again.Attempts) != 2 || again.Attempts[1].State != "delivered" || again.Attempts[1].Identical == nil || !*again.Attempts[1].Identical {
		t.Errorf("a replay: %+v", again.Attempts)
	}
	r.waitFor(10*time.Second, "the live view to show the event and its replay", func() bool {
		return strings.Contains(live.String(), e.ID) && strings.Contains(live.String(), `"number":2`)
	})
	token := strings.TrimSpace(r.relayd("token", "add", "--user", "admin", "--name", "beside"))
	mine, id := r.token, ""
	r.token = token
	if status, body := r.api("GET", "/me", nil); status != 200 {
		t.Errorf("a new token: %d %s", status, body)
	} else {
		_, rest, _ := strings.Cut(string(body), `"tokenId":"`)
		id, _, _ = strings.Cut(rest, `"`)
	}
	r.relayd("token", "rm", id)
	r.waitFor(5*time.Second, "a removed token to be refused", func() bool { status, _ := r.api("GET", "/me", nil); return status == 401 })
	r.token = mine
}

// overKill queues events and kills relayd. After the restart, the events are delivered in order.
func overKill(t *testing.T, r *relayServer) {
	t.Helper()
	r.alias("asleep")
	n := size(30, 200)
	if accepted := queueAll(r, n); accepted != n {
		t.Errorf("queued %d of %d", accepted, n)
	}
	r.stop(syscall.SIGKILL)
	begun := time.Now()
	r.start()
	back := time.Since(begun)
	got := &arrivals{}
	r.autossh("asleep", serveLocal(t, got.serve))
	r.must(202, "POST", "/aliases/asleep/replay-queued", nil)
	r.waitFor(60*time.Second, "the queue to be empty", func() bool { return len(r.events("asleep", "&state=delivered")) == n })
	figure(t, "relayd killed, serving again after %v", back.Round(10*time.Millisecond))
	checkQueue(t, r, got.seen(), n, 0)
}

// takeover starts a second relayd next to the first one, and kills the first one.
func takeover(t *testing.T, r *relayServer) {
	t.Helper()
	second := newRelay(t, r.database, r.extra...)
	second.key, second.token = r.key, r.token
	second.spawn()
	second.waitFor(20*time.Second, "the second node to serve", func() bool { return second.ready() == 200 })
	r.stop(syscall.SIGKILL)
	if status, body, _ := second.call("asleep", "/after", "x"); status != 202 {
		t.Errorf("the second server answered %d %s", status, body)
	}
}

// live is a stream of changes, with its items in order of arrival.
type live struct {
	relaytest.Buffer
	close func()
}

func (r *relayServer) live() *live {
	r.t.Helper()
	req, err := http.NewRequest("GET", "http://"+r.http+"/api/v1/stream", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	res, err := http.DefaultClient.Do(req)
	if err != nil || res.StatusCode != 200 {
		r.t.Fatalf("the live view: %v, %v", res, err)
	}
	l := &live{}
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(l, res.Body) })
	l.close = sync.OnceFunc(func() { res.Body.Close(); reading.Wait() })
	return l
}

// TestFaultPoolerWithoutDirectURL: behind a pooler, relayd starts and is ready in transaction mode with and
// without a direct URL, and in session mode without one.
func TestFaultPoolerWithoutDirectURL(t *testing.T) {
	t.Parallel()
	d := newDBA(t)
	b := d.newBouncer(map[string]string{"pool_mode": "transaction", "default_pool_size": "40"})
	r := newRelay(t, b.url())
	serves := func(how string) {
		t.Helper()
		b.restartIfEnded()
		r.start()
		if out := r.ready(); out != 200 {
			t.Errorf("%s: /readyz answers %d", how, out)
		}
		r.stop(syscall.SIGTERM)
	}
	serves("transaction mode alone")
	r.extra = append(r.extra, "RELAY_DATABASE_DIRECT_URL="+d.url())
	serves("transaction mode with a direct URL")
	r.extra = nil
	whole := d.newBouncer(map[string]string{"pool_mode": "session", "default_pool_size": "40"})
	r.database = whole.url()
	serves("session mode")
}
