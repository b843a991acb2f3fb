package conformance

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func expectAccepted(t *testing.T, r *relayServer, tg *target) {
	const head = "POST /expect HTTP/1.1\r\n" + host + "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"
	tg.run(func(c net.Conn, br *bufio.Reader) {
		raw, err := readHead(br)
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\nX-Why: not\r\n\r\n")
		body := make([]byte, 5)
		if _, err := io.ReadFull(br, body); err != nil {
			return
		}
		tg.got <- append(raw, body...)
		_, _ = io.WriteString(c, ok)
	})
	conn := r.dial()
	_, _ = io.WriteString(conn, head)
	const interim = "HTTP/1.1 100 Continue\r\nX-Why: not\r\n\r\n"
	got := make([]byte, len(interim))
	if _, err := io.ReadFull(conn, got); err != nil {
		t.Fatalf("interim answer: %v", err)
	}
	same(t, "interim answer", got, []byte(interim))
	_, _ = io.WriteString(conn, "hello")
	answer, err := readAnswer(conn, len(ok), false)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "answer", answer, []byte(ok))
	same(t, "original", tg.next(), []byte(head+"hello"))
	r.replay(r.latest("wire").ID)
	same(t, "replay", tg.next(), []byte(head+"hello"))
}

func expectRefused(t *testing.T, r *relayServer, tg *target) {
	const refusal = "HTTP/1.1 417 No Thanks\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
	tg.run(func(c net.Conn, br *bufio.Reader) {
		if _, err := readHead(br); err == nil {
			_, _ = io.WriteString(c, refusal)
		}
	})
	conn := r.dial()
	_, _ = io.WriteString(conn, "POST /expect HTTP/1.1\r\n"+host+"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
	answer, err := readAnswer(conn, len(refusal), true)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "refusal", answer, []byte(refusal))
	rec := r.latest("wire")
	r.waitFor(15*time.Second, "the request to be closed off", func() bool {
		rec = r.event(rec.ID)
		return rec.Request.Body.State != "receiving"
	})
	if rec.Replayable || rec.State != "delivered" || *rec.Status != 417 {
		t.Errorf("record: %+v", rec)
	}
	r.must(409, "POST", "/events/"+rec.ID+"/replay", nil)
}

// eventStream sends each event only after the caller has received the previous event. If relayd buffered
// events, the stream would stop.
func eventStream(t *testing.T, r *relayServer, tg *target) {
	const events = 20
	seen := make(chan struct{}, 1)
	tg.run(func(c net.Conn, br *bufio.Reader) {
		if _, err := readHead(br); err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
		for i := range events {
			fmt.Fprintf(c, "data: %02d\n\n", i)
			select {
			case <-seen:
			case <-time.After(60 * time.Second):
				return
			}
		}
	})
	conn := r.dial()
	_, _ = io.WriteString(conn, get("/events"))
	br := bufio.NewReader(conn)
	if _, err := readHead(br); err != nil {
		t.Fatal(err)
	}
	for i := range events {
		line := make([]byte, 10)
		if _, err := io.ReadFull(br, line); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
		same(t, "event", line, fmt.Appendf(nil, "data: %02d\n\n", i))
		seen <- struct{}{}
	}
	if rest, err := io.ReadAll(br); err != nil || len(rest) > 0 {
		t.Errorf("end of the stream: %q, %v", rest, err)
	}
}

func upgrade(t *testing.T, r *relayServer, tg *target) {
	const answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
	tg.run(func(c net.Conn, br *bufio.Reader) {
		if _, err := readHead(br); err != nil {
			return
		}
		_, _ = io.WriteString(c, answer)
		_, _ = io.Copy(c, br)
		_ = c.(*net.TCPConn).CloseWrite()
	})
	conn := r.dial()
	_, _ = io.WriteString(conn, "GET /ws HTTP/1.1\r\n"+host+"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n")
	got := make([]byte, len(answer))
	if _, err := io.ReadFull(conn, got); err != nil {
		t.Fatal(err)
	}
	same(t, "101", got, []byte(answer))
	sent := []byte(random(1<<20, 53))
	go func() {
		_, _ = conn.Write(sent)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	echoed, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "echo", echoed, sent)
	rec := r.latest("wire")
	if rec.State != "delivered" || rec.Replayable || rec.ReplayBlocker == nil || *rec.ReplayBlocker != "upgraded" {
		t.Errorf("record: %+v", rec)
	}
}

// upgradeEnds: one side of an upgraded connection closes its sending side first. The other side continues to
// send. All of its bytes arrive, and then the end of its stream.
func upgradeEnds(t *testing.T, r *relayServer, tg *target) {
	const answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"
	const request = "GET /ws HTTP/1.1\r\n" + host + "Connection: Upgrade\r\nUpgrade: x\r\n\r\n"
	pause := func() { time.Sleep(300 * time.Millisecond) } // long enough for the end of the other side to arrive before the text
	sends := func(c net.Conn, text string) {
		for range 4 {
			pause()
			_, _ = io.WriteString(c, text)
		}
		_ = c.(*net.TCPConn).CloseWrite()
	}
	big := random(500_000, 61)
	for name, x := range map[string]struct {
		localFirst    bool
		local, caller string // texts of both sides; the side that ends last sends its text four times
	}{
		"local ends first": {true, "bye", "more"}, "local ends at once": {true, "", "more"}, "local ends first, large": {true, big, big},
		"caller ends first": {false, "more", "bye"}, "caller ends at once": {false, "more", ""}, "caller ends first, large": {false, big, big},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			play := func(c net.Conn, first bool, text string) (done chan struct{}) {
				done = make(chan struct{})
				go func() {
					defer close(done)
					if first {
						_, _ = io.WriteString(c, text)
						_ = c.(*net.TCPConn).CloseWrite()
					} else {
						sends(c, text)
					}
				}()
				return done
			}
			got := make(chan []byte, 1)
			tg.run(func(c net.Conn, br *bufio.Reader) {
				if _, err := readHead(br); err != nil {
					return
				}
				_, _ = io.WriteString(c, answer)
				said := play(c, x.localFirst, x.local)
				all, _ := io.ReadAll(br)
				<-said
				got <- all
			})
			conn := r.dial()
			defer conn.Close()
			_, _ = io.WriteString(conn, request)
			head := make([]byte, len(answer))
			if _, err := io.ReadFull(conn, head); err != nil {
				t.Fatal(err)
			}
			play(conn, !x.localFirst, x.caller)
			fromLocal, err := io.ReadAll(conn)
			if err != nil {
				t.Errorf("the caller's end: %v", err)
			}
			wantLocal, wantCaller := x.local, strings.Repeat(x.caller, 4)
			if !x.localFirst {
				wantLocal, wantCaller = strings.Repeat(x.local, 4), x.caller
			}
			same(t, "at the caller", fromLocal, []byte(wantLocal))
			select {
			case all := <-got:
				same(t, "at the local server", all, []byte(wantCaller))
			case <-time.After(20 * time.Second):
				t.Error("the local server does not see the end of its caller")
			}
		})
	}
}

func earlyAnswer(t *testing.T, r *relayServer, tg *target) {
	const answer = "HTTP/1.1 413 Too Much\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"
	answered := make(chan struct{})
	tg.run(func(c net.Conn, br *bufio.Reader) {
		if _, err := readHead(br); err == nil {
			_, _ = io.WriteString(c, answer)
			<-answered
		}
	})
	body := random(5<<20, 54)
	request := post("", body)
	conn := r.dial()
	got := make([]byte, len(answer))
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(conn, request)
		sent <- err
	}()
	_, err := io.ReadFull(conn, got)
	close(answered)
	if err != nil {
		t.Fatalf("early answer: %v", err)
	}
	same(t, "early answer", got, []byte(answer))
	if err := <-sent; err != nil {
		t.Errorf("the rest of the body was refused: %v", err)
	}
	rec := r.latest("wire")
	r.waitFor(15*time.Second, "the rest of the body to be kept", func() bool {
		rec = r.event(rec.ID)
		return rec.Request.Body.State == "complete"
	})
	same(t, "request.raw", r.must(200, "GET", "/events/"+rec.ID+"/request.raw", nil), []byte(request))
	// The record is read again: relayd reads the event and its body from Postgres in two statements, so the
	// first record with the whole body may have an older state of the event.
	if rec = r.event(rec.ID); !rec.Replayable {
		t.Errorf("not replayable although it is whole: %v", rec.ReplayBlocker)
	}
}

func brokenAnswer(t *testing.T, r *relayServer, tg *target) {
	half := "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + strings.Repeat("x", 500)
	tg.say(half, true)
	conn := r.dial()
	_, _ = io.WriteString(conn, get("/dies"))
	answer, err := io.ReadAll(conn)
	if err == nil {
		t.Errorf("a clean end after %d bytes of a broken answer", len(answer))
	}
	tg.next()
	rec := r.latest("wire")
	if rec.State != "delivered" || rec.Response == nil || rec.Response.State != "truncated" {
		t.Errorf("record: %+v", rec)
	}
	same(t, "response.raw", r.must(200, "GET", "/events/"+rec.ID+"/attempts/1/response.raw", nil), []byte(half))
}

// brokenBodies: if the body of an answer is broken in any way after its head, the answer is recorded as
// truncated, and a replay gets the same result.
func brokenBodies(t *testing.T, r *relayServer, tg *target) {
	const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, answer := range []string{chunked + "zz\r\n", chunked + "2\r\nok\r\nzz\r\n", chunked + "2\r\nok\r\n", chunked + "0\r\nno colon\r\n\r\n"} {
		tg.say(answer, true)
		conn := r.dial()
		_, _ = io.WriteString(conn, get("/broken"))
		got, err := io.ReadAll(conn)
		if err == nil && !strings.HasPrefix(string(got), "HTTP/1.1 502 ") {
			t.Errorf("%q: a clean end after %q", answer, got)
		}
		tg.next()
		id := r.latest("wire").ID
		tg.say(answer, true)
		rec := r.replay(id)
		tg.next()
		for _, a := range rec.Attempts {
			if a.State != "delivered" || a.Response == nil || a.Response.State != "truncated" {
				t.Errorf("%q: attempt %+v", answer, a)
			}
		}
		raw := func(n string) []byte { return r.must(200, "GET", "/events/"+id+"/attempts/"+n+"/response.raw", nil) }
		same(t, "response.raw of the replay", raw("2"), raw("1"))
	}
}
