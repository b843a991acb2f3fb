package conformance

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

func pipelined(t *testing.T, r *relayServer, tg *target) {
	const n = 50
	tg.mu.Lock()
	tg.script, tg.reply = nil, func(raw []byte) ([]byte, bool) {
		target := strings.Fields(string(raw[:min(len(raw), 60)]))[1]
		return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(target), target), false
	}
	tg.mu.Unlock()
	var all, want bytes.Buffer
	for i := range n {
		target := fmt.Sprintf("/pipe/%02d", i)
		if i%2 == 0 {
			fmt.Fprintf(&all, "POST %s HTTP/1.1\r\n%sContent-Length: 3\r\n\r\nabc", target, host)
		} else {
			fmt.Fprintf(&all, "POST %s HTTP/1.1\r\n%sTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", target, host)
		}
		fmt.Fprintf(&want, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(target), target)
	}
	conn := r.dial()
	go func() { _, _ = conn.Write(all.Bytes()) }()
	got, err := readAnswer(conn, want.Len(), false)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "fifty answers", got, want.Bytes())
	for range n {
		tg.next()
	}
}

func ambiguous(t *testing.T, r *relayServer, tg *target) {
	tg.say(ok, false)
	for name, request := range map[string]string{
		"length and chunked":   "POST / HTTP/1.1\r\n" + host + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"two lengths":          "POST / HTTP/1.1\r\n" + host + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
		"bare line feed":       "POST / HTTP/1.1\n" + host + "Content-Length: 0\r\n\r\n",
		"folded line":          "GET / HTTP/1.1\r\n" + host + "X-A: b\r\n c\r\n\r\n",
		"two hosts":            "GET / HTTP/1.1\r\n" + host + host + "\r\n",
		"space before colon":   "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
		"length with plus":     "POST / HTTP/1.1\r\n" + host + "Content-Length: +3\r\n\r\nabc",
		"bare carriage return": "GET / HTTP/1.1\r\n" + host + "X-A: b\rc\r\n\r\n",
	} {
		conn := r.dial()
		_, _ = io.WriteString(conn, request)
		answer, err := io.ReadAll(conn)
		if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 400 ")) || !bytes.Contains(answer, []byte("\r\nRelay-Error: request-malformed\r\n")) {
			t.Errorf("%s: %.200q, %v", name, answer, err)
		}
	}
	select {
	case raw := <-tg.got:
		t.Errorf("delivered: %q", raw)
	default:
	}
}

func byteByByte(t *testing.T, r *relayServer, tg *target) {
	tg.say(ok, false)
	request := "POST /slowly HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nX-T: v\r\n\r\n"
	conn := r.dial()
	_ = conn.(*net.TCPConn).SetNoDelay(true)
	for i := range len(request) {
		if _, err := io.WriteString(conn, request[i:i+1]); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := readAnswer(conn, len(ok), false)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "answer", answer, []byte(ok))
	same(t, "original", tg.next(), []byte(request))
	r.replay(r.latest("wire").ID)
	same(t, "replay", tg.next(), []byte(request))
}

// mutated sends requests with random damage. If a request reaches the local server, it must be unchanged, and
// net/http must parse it in the same way.
func mutated(t *testing.T, r *relayServer, tg *target) {
	tg.say("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", true)
	seeds := []string{
		post("X-A: b\r\nContent-Type: text/plain\r\n", "hello"), get("/a?b=c"),
		"POST /c HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
	}
	rnd := rand.New(rand.NewPCG(60, 1))
	var mu sync.Mutex
	delivered := 0
	for range 150 {
		request := []byte(seeds[rnd.IntN(len(seeds))])
		for range 1 + rnd.IntN(2) {
			request[rnd.IntN(len(request))] = byte(rnd.IntN(256))
		}
		conn := r.dial()
		_, _ = conn.Write(request)
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.ReadAll(conn)
		conn.Close()
		select {
		case raw := <-tg.got:
			mu.Lock()
			delivered++
			mu.Unlock()
			if !bytes.HasPrefix(request, raw) && !bytes.HasPrefix(request, append([]byte("\r\n"), raw...)) {
				t.Errorf("delivered %q of %q", raw, request)
			}
			req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
			if err != nil {
				if !strings.Contains(err.Error(), "parse") { // "parse" is from url.Parse, which refuses some targets that relayd accepts
					t.Errorf("net/http refuses what was delivered: %q: %v", raw, err)
				}
				continue
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				t.Errorf("net/http cannot read the body of %q: %v", raw, err)
			}
		default:
		}
	}
	t.Logf("%d of 150 mutated requests were delivered", delivered)
	if delivered == 0 {
		t.Error("nothing was delivered: the case shows nothing")
	}
}

func queuedWhileOffline(t *testing.T, r, owner *relayServer) {
	r.relayd("alias", "add", "asleep", "--user", "admin")
	requests := []string{
		strings.Replace(post("X-Dup: 1\r\nx-dup: 2\r\n", allBytes()), "wire.", "asleep.", 1),
		"POST /q HTTP/1.1\r\nHost: asleep.localhost\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nX-T: 1\r\n\r\n",
		"POST /e HTTP/1.1\r\nHost: asleep.localhost\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
	}
	r.waitFor(5*time.Second, "the alias to be known", func() bool {
		conn := r.dial()
		defer conn.Close()
		_, _ = io.WriteString(conn, strings.Replace(get("/probe"), "wire.", "asleep.", 1))
		answer := make([]byte, 12)
		_, _ = io.ReadFull(conn, answer)
		return string(answer) == "HTTP/1.1 202"
	})
	probes := len(r.events("asleep", ""))
	for _, request := range requests {
		conn := r.dial()
		_, _ = io.WriteString(conn, request)
		br := bufio.NewReader(conn)
		res, err := http.ReadResponse(br, nil)
		if err == nil && res.StatusCode == 100 {
			res, err = http.ReadResponse(br, nil)
		}
		if err != nil || res.StatusCode != 202 || !strings.HasPrefix(res.Header.Get("Relay-Event"), "evt_") {
			t.Fatalf("offline answer: %v, %v", res, err)
		}
		conn.Close()
	}
	tg := newTarget(t)
	tg.say(ok, false)
	owner.tunnel("asleep", tg.addr)
	r.must(202, "POST", "/aliases/asleep/replay-queued", nil)
	for range probes {
		tg.next()
	}
	for i, request := range requests {
		same(t, fmt.Sprintf("queued request %d", i+1), tg.next(), []byte(request))
	}
	select {
	case extra := <-tg.got:
		t.Errorf("delivered once more: %q", extra)
	case <-time.After(300 * time.Millisecond):
	}
}
