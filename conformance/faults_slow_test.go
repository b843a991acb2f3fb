package conformance

import (
	"database/sql"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// TestFaultSlowStore puts 100 ms on every packet from and to Postgres. Throughput
// falls, but nobody waits longer than 5 s, nothing is lost, no connections pile up,
// and all is well again without the delay.
func TestFaultSlowStore(t *testing.T) {
	_, databaseURL := ownPostgres(t)
	link := newSlowLink(t, databaseURL)
	r := newRig(t, link.databaseURL)
	r.autossh("slow", localServer(t))
	l := startLoad(r, "slow", 16, gently)
	phase := size(5*time.Second, 10*time.Second) // an answer takes two seconds then
	quick := l.during(phase)
	link.delay.Store(int64(100 * time.Millisecond))
	slow := l.during(phase)
	if slow == 0 { // slower than thought, but not silent
		l.more(1, 15*time.Second)
		slow = 1
	}
	most := sessions(t, databaseURL)
	link.delay.Store(0)
	back := l.recovery(time.Now())
	l.end()
	v := l.check(t)
	figure(t, "every packet of the store +100 ms: %d answers in %v, before %d; longest wait %v, sessions at Postgres %d, back after %v; %v, by status %v, without answer %d",
		slow, phase, quick, l.longest.Round(10*time.Millisecond), most, back.Round(100*time.Millisecond), v, l.codes, l.broken)
	if !v.ok() || slow == 0 || l.longest > bound(outageAnswer) || most > 32 || l.broken > 0 {
		t.Errorf("a slow store: %v, slow %d, longest %v, sessions %d, broken %d", v, slow, l.longest, most, l.broken)
	}
}

// during counts the answers of some time.
func (l *load) during(d time.Duration) int {
	before := l.count()
	<-time.After(d)
	return l.count() - before
}

// sessions counts connections to Postgres, this one left out.
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

// slowLink is a TCP proxy before Postgres that can hold back what it passes on.
type slowLink struct {
	databaseURL string
	delay       atomic.Int64 // of each packet, in ns
}

func newSlowLink(t *testing.T, databaseURL string) *slowLink {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	q := u.Query()
	socket := filepath.Join(q.Get("host"), ".s.PGSQL.5432")
	q.Del("host")
	u.Host, u.RawQuery = ln.Addr().String(), q.Encode()
	s := &slowLink{databaseURL: u.String()}
	go func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", socket)
			if err != nil {
				near.Close()
				continue
			}
			go s.pass(near, far)
			go s.pass(far, near)
		}
	}()
	return s
}

// pass copies with delay: like a long line, which holds many packets at a time.
func (s *slowLink) pass(to, from net.Conn) {
	type packet struct {
		data []byte
		due  time.Time
	}
	line := make(chan packet, 4096)
	go func() {
		defer to.Close()
		for p := range line {
			<-time.After(time.Until(p.due))
			if _, err := to.Write(p.data); err != nil {
				break
			}
		}
		for range line { // the reader must not block on a line that ends nowhere
		}
	}()
	defer close(line)
	for {
		b := make([]byte, 32<<10)
		n, err := from.Read(b)
		if n > 0 {
			line <- packet{b[:n], time.Now().Add(time.Duration(s.delay.Load()))}
		}
		if err != nil {
			if err != io.EOF {
				from.Close()
			}
			return
		}
	}
}
