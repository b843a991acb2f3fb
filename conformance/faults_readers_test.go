package conformance

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay/relaytest"
)

// testUnreadAnswers is the second part of TestFaultUnreadBytes.
func testUnreadAnswers(t *testing.T) {
	// allowed is the memory that relayd may use beyond the buffer limit. Its heap may grow by 112 MiB and by
	// 64 KiB for each connection, which is 16 MiB here (baseHeap and connectionHeap in cmd/relayd). Up to 46 MiB
	// are pages of the program. The rest is allocated while the garbage collector runs.
	const limit, allowed = 64 << 20, 200 << 20
	r := startRelay(t, "", fmt.Sprintf("RELAY_BUFFER_LIMIT=%dMiB", limit>>20))
	control := bytes.Repeat([]byte{1}, 1<<20)
	local := serveLocal(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body) // otherwise the answer could come, and its caller leave, before the request is complete
		_, _ = w.Write(control)
	})
	lasts := size(5*time.Second, 40*time.Second)
	a := &attack{r: r}
	type hostile struct {
		*person
		id, share string
	}
	var people []hostile
	for i := range 3 {
		p := r.person(fmt.Sprint("reader", i))
		p.tunnel(fmt.Sprint("read", i), local)
		id, share := p.largest(fmt.Sprint("read", i))
		people = append(people, hostile{p, id, share})
	}
	r.tunnel("probe", localServer(t))
	neighbour := r.person("neighbour")
	end, probed, read := make(chan struct{}), make(chan quiet, 1), make(chan quiet, 1)
	stop, most := r.watchMemory()
	begun := time.Now()
	a.until = time.Now().Add(lasts)
	go func() { probed <- r.probe("probe", end) }()
	go func() { read <- neighbour.reads(end) }()
	for _, p := range people {
		a.unreadAnswers(p.person, p.id, p.share)
	}
	var buffered float64
	for a.left() > 0 {
		buffered = max(buffered, r.metric("relay_buffer_bytes"))
		<-time.After(200 * time.Millisecond)
	}
	a.work.Wait()
	close(end)
	q, reads := <-probed, <-read
	stop()
	figure(t, "%d accounts for %v: %d answers that nobody took, %d refused as overloaded, %d commands of sessions: RSS at most %d MiB with --buffer-limit %d MiB, Go had at most %d MiB of the system, relay_buffer_bytes at most %d MiB; another account meanwhile: %d requests, errors %d, p50 %v, p99 %v, longest %v; %d reads of the API, errors %d, p50 %v, longest %v",
		len(people), lasts, a.answers.Load(), a.refused.Load(), a.commands.Load(), most.Load()>>20, limit>>20, int(r.metric("go_memstats_sys_bytes"))>>20, int(buffered)>>20,
		len(q.waits), q.errors, quantile(q.waits, 0.5).Round(100*time.Microsecond), quantile(q.waits, 0.99).Round(time.Millisecond), quantile(q.waits, 1).Round(time.Millisecond),
		len(reads.waits), reads.errors, quantile(reads.waits, 0.5).Round(100*time.Microsecond), quantile(reads.waits, 1).Round(time.Millisecond))
	// On a slow machine the garbage collector takes longer, and relayd allocates more in that time.
	slow, _ := relaytest.Slowdown(begun)
	if most.Load() > memory(t, limit+int64(allowed*max(1, min(2, slow/2)))) {
		t.Errorf("RSS %d MiB", most.Load()>>20)
	}
	// The attack is much shorter than the minute for which the function bound measures the load of the machine.
	promised := relaytest.Limit(size(time.Second, time.Second/2), begun)
	if q.errors > 0 || len(q.waits) == 0 || quantile(q.waits, 1) > promised || reads.errors > 0 || reads.late > 0 && promised < lateRead || len(reads.waits) == 0 {
		t.Errorf("the other account: %d requests, %d errors, longest wait %v; %d reads, %d errors", len(q.waits), q.errors, quantile(q.waits, 1), len(reads.waits), reads.errors)
	}
	if wrong := a.wrong.Load(); wrong != nil {
		t.Errorf("refused otherwise: %s", wrong)
	}
	if a.answers.Load() == 0 || a.refused.Load() == 0 || a.commands.Load() == 0 || buffered > limit || buffered == 0 {
		t.Errorf("not all of the attack took place: %d answers, %d refused, %d commands, %v bytes reserved", a.answers.Load(), a.refused.Load(), a.commands.Load(), buffered)
	}
	r.waitFor(30*time.Second, "what was reserved to be given back", func() bool { return r.metric("relay_buffer_bytes") == 0 })
}

// lateRead is the time from which on an error of a read is counted as late: the store may have given up the read, which
// takes 4.5 s, because the machine is slow.
const lateRead = 4 * time.Second

// reads lists the account's aliases ten times a second until end is closed.
func (p *person) reads(end chan struct{}) (q quiet) {
	for {
		begun := time.Now()
		res, err := http.DefaultClient.Do(p.r.bearer(p.r.t.Context(), p.token, http.MethodGet, "/aliases", ""))
		switch isBad := err != nil || drain(res) != nil || res.StatusCode != http.StatusOK; {
		case isBad && time.Since(begun) >= lateRead:
			q.late++
		case isBad:
			q.errors++
		}
		q.waits = append(q.waits, time.Since(begun))
		select {
		case <-end:
			return q
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// largest creates an event with the largest record that is possible: its bodies are control characters, each
// of which takes six characters in JSON. It returns the id of the event and the secret of a share that allows
// viewing.
func (p *person) largest(alias string) (id, share string) {
	control := bytes.Repeat([]byte{1}, 1<<20)
	p.r.through(alias, "/control", string(control))
	id = p.newest(alias)
	for range 8 {
		p.do(http.MethodPost, "/events/"+id+"/replay", "", http.StatusOK)
	}
	var made struct{ Token string }
	p.r.decode(p.do(http.MethodPost, "/events/"+id+"/shares", `{"view":true}`, http.StatusCreated), &made)
	return id, made.Token
}

func (p *person) newest(alias string) string {
	var list struct{ Data []struct{ ID string } }
	p.r.decode(p.do(http.MethodGet, "/events?limit=1&alias="+alias, "", http.StatusOK), &list)
	if len(list.Data) == 0 {
		p.r.t.Fatalf("%s has no event", alias)
	}
	return list.Data[0].ID
}

// unreadAnswers requests the largest answers of every kind, and does not read the answers: records, downloads
// and exports over HTTP, shares without a login, and the output of session commands.
func (a *attack) unreadAnswers(p *person, id, share string) {
	for range 12 {
		for _, path := range []string{
			"/api/v1/events/" + id, "/api/v1/events/" + id + "/attempts", "/api/v1/events/" + id + "/attempts/1/response.raw",
			"/api/v1/events/" + id + "/export?format=har", "/api/v1/shared/" + share, "/s/" + share,
		} {
			a.work.Go(func() { a.unreadAnswer(p, path) })
		}
	}
	for range 3 {
		a.work.Go(func() { a.unreadCommands(p, "show "+id+" --json", "export "+id+" --format json --json", "show "+id) })
	}
}

// unreadAnswer requests path repeatedly. Of each answer it reads only the status, and counts those with 200
// and 503.
func (a *attack) unreadAnswer(p *person, path string) {
	for a.left() > 0 {
		c, err := net.Dial("tcp", a.r.http)
		if err != nil {
			continue
		}
		_ = c.(*net.TCPConn).SetReadBuffer(4096)
		_, _ = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", path, p.token)
		head := make([]byte, len("HTTP/1.1 200"))
		_ = c.SetReadDeadline(a.until)
		switch n, _ := c.Read(head); {
		case n == len(head) && bytes.HasSuffix(head, []byte(" 200")):
			a.answers.Add(1)
			<-time.After(a.left())
		case n == len(head) && bytes.HasSuffix(head, []byte(" 503")):
			a.refused.Add(1)
			rest := make([]byte, 4096)
			n, _ := c.Read(rest)
			if _, body, _ := bytes.Cut(rest[:n], []byte("\r\n\r\n")); bytes.HasPrefix(body, []byte("{")) && !bytes.Contains(body, []byte(`"overloaded"`)) {
				a.wrong.Store(string(body))
			}
			<-time.After(min(a.left(), size(500*time.Millisecond, 200*time.Millisecond)))
		}
		_ = c.Close()
	}
}

// unreadCommands runs commands in sessions of one connection and does not read their output.
func (a *attack) unreadCommands(p *person, commands ...string) {
	c, err := a.login(p)
	if err != nil {
		return
	}
	defer c.Close()
	for _, command := range commands {
		ch, reqs, err := c.OpenChannel("session", nil)
		if err != nil {
			break
		}
		go ssh.DiscardRequests(reqs)
		if ok, err := ch.SendRequest("exec", true, ssh.Marshal(&struct{ Line string }{command})); !ok || err != nil {
			break
		}
		a.commands.Add(1)
	}
	<-time.After(a.left())
}
