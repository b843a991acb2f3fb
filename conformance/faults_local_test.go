package conformance

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/relaytest"
)

// localFault is one kind of failure of a local server, with the expected results.
type localFault struct {
	name   string
	script func(c net.Conn, br *bufio.Reader) // the local server; nil = its port is closed
	status string                             // beginning of the caller's answer; "" = none
	code   string                             // value of Relay-Error, and the event's error
	state  string                             // state of the event
	broken bool                               // the caller's answer ends before its announced end
	says   string                             // a part of the answer's text
	within time.Duration
	came   chan struct{} // closed when the caller has received a byte, for which the local server waits; nil = it does not wait
	upOnly bool          // only relay up can report this failure
}

func localFaults() []localFault {
	after := func(say func(c net.Conn)) func(net.Conn, *bufio.Reader) {
		return func(c net.Conn, br *bufio.Reader) {
			if _, err := readRaw(br); err == nil {
				say(c)
			}
		}
	}
	text := func(s string) func(net.Conn, *bufio.Reader) {
		return after(func(c net.Conn) { _, _ = io.WriteString(c, s) })
	}
	const bad502 = "HTTP/1.1 502 "
	garbage := localFault{status: bad502, code: "local-malformed", state: "failed", within: 2 * time.Second}
	as := func(f localFault, name string, script func(net.Conn, *bufio.Reader)) localFault {
		f.name, f.script = name, script
		return f
	}
	begun := garbage // the local server fails after its response has begun, so the attempt is recorded as delivered, with the received part
	begun.state = "delivered"
	isTLS := garbage
	isTLS.says = "it speaks TLS; use --target https://… of relay up, or forward the port where it speaks plain HTTP"
	cut := localFault{status: "HTTP/1.1 200 ", state: "delivered", broken: true, within: 2 * time.Second}
	// The local server fails only after the caller has received the text begin, because a reset may discard bytes
	// that an SSH client has not read yet.
	later := func(name, begin string, end func(c net.Conn)) localFault {
		f := cut
		f.name, f.came = name, make(chan struct{})
		f.script = after(func(c net.Conn) {
			_, _ = io.WriteString(c, begin)
			<-f.came
			end(c)
		})
		return f
	}
	unframed := later("F11 resets inside a body that its end ends", "HTTP/1.1 200 OK\r\n\r\nhello", func(c net.Conn) {
		_ = c.(*net.TCPConn).SetLinger(0)
	})
	unframed.upOnly = true
	return []localFault{
		unframed,
		{name: "F9 refuses", status: bad502, code: "local-refused", state: "failed", within: time.Second},
		{
			name: "F10 hangs", script: after(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }),
			status: "HTTP/1.1 504 ", code: "local-timeout", state: "failed", within: 3 * time.Second,
		},
		{name: "F11 closes inside its head", script: text("HTTP/1.1 200 OK\r\nContent-"), status: bad502, code: "local-closed", state: "failed", within: 2 * time.Second},
		{
			name: "F11 closes behind an interim answer", script: text("HTTP/1.1 102 Processing\r\n\r\n"),
			status: bad502, code: "local-closed", state: "failed", within: 2 * time.Second,
		},
		as(cut, "F11 dies behind the last chunk", text("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n")),
		as(cut, "F11 dies inside a body with a length", text("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"+strings.Repeat("x", 500))),
		as(cut, "F11 dies inside a chunked body", text("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")),
		later("F11 resets inside its body", "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nxxxxx", func(c net.Conn) {
			_ = c.(*net.TCPConn).SetLinger(0)
		}),
		as(garbage, "F12 random bytes", text(random(4096, 12))),
		as(garbage, "F12 head of 10 MiB", text("HTTP/1.1 200 OK\r\nX-Big: "+strings.Repeat("x", 10<<20)+"\r\n\r\n")),
		as(garbage, "F12 endless interim answers", text(strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 100)+ok)),
		as(garbage, "F12 SSH instead of HTTP", text("SSH-2.0-OpenSSH_9.2\r\n")),
		as(isTLS, "F12 TLS alert", text("\x15\x03\x01\x00\x02\x02\x46")), // Node, Python and Java send this alert
		// The pieces arrive separately, as over a slow line.
		as(isTLS, "F12 TLS alert in pieces", after(func(c net.Conn) {
			_, _ = io.WriteString(c, "\x15")
			_, _ = io.WriteString(c, "\x03\x03\x00\x02\x02\x46")
		})),
		{
			name: "F12 TLS server of Go", script: text("HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"),
			status: "HTTP/1.0 400 ", state: "delivered", within: 2 * time.Second, says: "HTTP request to an HTTPS server",
		},
		{
			name: "F9 closes without a word, as a TLS server may", script: text(""), status: bad502, code: "local-closed", state: "failed", within: 2 * time.Second,
			says: "if it speaks TLS, use --target https://",
		},
		as(garbage, "F12 two lengths", text("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok")),
		as(garbage, "F12 length and chunks", text("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")),
		as(garbage, "F12 chunks in HTTP 1.0", text("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")),
		as(garbage, "F12 HTTP 0.9", text("<html>hello</html>")),
		as(garbage, "F12 NUL in its head", text("HTTP/1.1 200 OK\r\nX: a\x00b\r\nContent-Length: 2\r\n\r\nok")),
		as(garbage, "F12 switches protocols unasked", text("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")),
		as(garbage, "F12 one interim answer too many", text(strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 17)+ok)),
		as(begun, "F12 chunk size of 17 digits", text("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n00000000000000005\r\nhello\r\n0\r\n\r\n")),
		as(begun, "F12 bad first chunk", text("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n")),
		later("F12 chunk extension of 1 MiB", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", func(c net.Conn) {
			_, _ = io.WriteString(c, "5;"+strings.Repeat("e", 1<<20)+"\r\nhello\r\n0\r\n\r\n")
		}),
		later("F12 ten thousand trailers", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", func(c net.Conn) {
			_, _ = io.WriteString(c, "0\r\n"+strings.Repeat("X-Trailer: 1234567890\r\n", 10000)+"\r\n")
		}),
		later("F12 bad chunk behind good ones", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", func(c net.Conn) {
			_, _ = io.WriteString(c, "zz\r\nhello\r\n0\r\n\r\n")
		}),
	}
}

// TestFaultLocalServer makes the local server fail in every known way, behind both kinds of tunnel. It checks
// the answer to the caller, the record, and that the next request is answered.
func TestFaultLocalServer(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	tg := newTarget(t)
	closed := relaytest.FreeAddr(t)
	tunnels := map[string]func(alias, target string){
		"ssh": func(alias, target string) { r.tunnel(alias, target) },
		"up": func(alias, target string) {
			r.client(alias, relaytest.Program(t, "relay"), "up", "--server", r.ssh, "--identity", r.key, "--target", "http://"+target, "--alias", alias)
		},
	}
	passed, all := 0, 2
	for _, way := range []string{"ssh", "up"} {
		tunnels[way](way+"-faulty", tg.addr)
		tunnels[way](way+"-refusing", closed)
		tunnels[way](way+"-hanging", tg.addr)
		// Only this alias has a short timeout, because the other local servers may take longer on a busy
		// machine.
		r.must(200, "PATCH", "/aliases/"+way+"-hanging", []byte(`{"responseTimeout":"1500ms"}`))
		cases := slices.DeleteFunc(localFaults(), func(f localFault) bool { return f.upOnly && way != "up" })
		all += len(cases)
		for _, f := range cases {
			t.Run(way+"_"+strings.ReplaceAll(f.name, " ", "_"), func(t *testing.T) {
				if f.happens(t, r, tg, way); !t.Failed() {
					passed++
				}
			})
		}
	}
	t.Run("F13_caller_leaves_inside_its_body", func(t *testing.T) { callerLeaves(t, r, tg, &passed) })
	t.Run("F14_caller_leaves_before_the_answer", func(t *testing.T) { callerGone(t, r, tg, &passed) })
	figure(t, "%d of %d faults of local servers and callers answered and recorded as promised", passed, all)
}

// happens runs one fault behind one kind of tunnel, followed by a good request.
func (f localFault) happens(t *testing.T, r *relayServer, tg *target, way string) {
	t.Helper()
	alias := way + "-faulty"
	switch {
	case f.script == nil:
		alias = way + "-refusing"
	case f.code == "local-timeout":
		alias = way + "-hanging"
		fallthrough
	default:
		tg.run(f.script)
	}
	f.check(t, r, alias)
	tg.say(ok, false)
	if status, body, _ := r.call(way+"-faulty", "/next", "x"); status != 200 || body != "ok" {
		t.Errorf("the next request was answered %d %s", status, body)
	}
	tg.next()
}

func (f localFault) check(t *testing.T, r *relayServer, alias string) {
	t.Helper()
	c := r.dial()
	begun := time.Now()
	fmt.Fprintf(c, "POST /fault HTTP/1.1\r\nHost: %s.localhost\r\nContent-Length: 5\r\n\r\nhello", alias)
	br := bufio.NewReader(c)
	_, _ = br.Peek(1)
	if f.came != nil {
		close(f.came)
	}
	answer, err := wholeAnswer(br)
	took := time.Since(begun)
	rec := r.latest(alias)
	code := ""
	if rec.Error != nil {
		code = rec.Error.Code
	}
	_, final, _ := strings.Cut("\r\n"+string(answer), "\r\n"+f.status)
	switch {
	case !strings.Contains(string(answer), f.says):
		t.Errorf("answer %.500q, want it to say %s", answer, f.says)
	case final == "":
		t.Errorf("answer %.200q, want %s", answer, f.status)
	case f.broken != (err != nil):
		t.Errorf("the transfer ended with %v after %.200q", err, answer)
	case f.code != "" && !strings.Contains(string(answer), "\r\nRelay-Error: "+f.code+"\r\n"):
		t.Errorf("no Relay-Error %s in %.300q", f.code, answer)
	case f.code != "" && !strings.Contains(string(answer), "\r\nRelay-Event: "+rec.ID+"\r\n"):
		t.Errorf("no Relay-Event %s in %.300q", rec.ID, answer)
	case f.code != "" && code != f.code, rec.State != f.state:
		t.Errorf("the event is %s with error %q, want %s with %q", rec.State, code, f.state, f.code)
	case f.broken && (rec.Response == nil || rec.Response.State != "truncated"):
		t.Errorf("the response is not recorded as truncated: %+v", rec.Response)
	case rec.Request.Body.Size != 5 || rec.Request.Body.State != "complete" || !rec.Replayable:
		t.Errorf("the request is not kept whole: %+v", rec)
	case took > bound(f.within):
		t.Errorf("answered after %v, want %v at most", took, bound(f.within))
	}
}

// wholeAnswer reads the final answer on a connection, as its length, chunks or close define it. An incomplete
// answer is an error.
func wholeAnswer(br *bufio.Reader) ([]byte, error) {
	var all []byte
	for {
		head, err := readHead(br)
		all = append(all, head...)
		if err != nil {
			return all, err
		}
		if strings.HasPrefix(string(head), "HTTP/1.1 1") && !strings.HasPrefix(string(head), "HTTP/1.1 101") {
			continue
		}
		length, chunked := framing(head)
		switch {
		case chunked:
			body, err := readChunks(br)
			return append(all, body...), err
		case !strings.Contains(strings.ToLower(string(head)), "\r\ncontent-length:"):
			body, err := io.ReadAll(br)
			return append(all, body...), err
		}
		body := make([]byte, length)
		n, err := io.ReadFull(br, body)
		return append(all, body[:n]...), err
	}
}

// callerLeaves: if a caller resets its connection in the middle of the request body, the local server gets no
// complete request, and the event is recorded as incomplete.
func callerLeaves(t *testing.T, r *relayServer, tg *target, passed *int) {
	began, ended := make(chan struct{}), make(chan error, 1)
	tg.run(func(_ net.Conn, br *bufio.Reader) {
		if _, err := readHead(br); err == nil {
			close(began)
		}
		_, err := io.CopyN(io.Discard, br, 100000)
		ended <- err
	})
	c := r.dial()
	_, _ = io.WriteString(c, "POST /half HTTP/1.1\r\nHost: ssh-faulty.localhost\r\nContent-Length: 100000\r\n\r\n"+strings.Repeat("x", 50000))
	select {
	case <-began: // relayd has read the head; an earlier reset could discard it
	case <-time.After(30 * time.Second):
		t.Fatal("the local server got nothing")
	}
	_ = c.(*net.TCPConn).SetLinger(0)
	c.Close()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the local server got a whole request")
		}
	case <-time.After(30 * time.Second):
		t.Error("the local server still waits for the rest")
	}
	r.waitFor(5*time.Second, "the event", func() bool { return r.latest("ssh-faulty").Path == "/half" })
	if rec := r.latest("ssh-faulty"); rec.State != "incomplete" || rec.Replayable || rec.Request.Body.State != "aborted" {
		t.Errorf("record: %+v", rec)
	}
	if !t.Failed() {
		*passed++
	}
}

// callerGone: the response to a caller that has left is still recorded.
func callerGone(t *testing.T, r *relayServer, tg *target, passed *int) {
	got, left := make(chan struct{}), make(chan struct{})
	tg.run(func(c net.Conn, br *bufio.Reader) {
		_, _ = readRaw(br)
		close(got)
		<-left
		_, _ = io.WriteString(c, ok)
	})
	c := r.dial()
	_, _ = io.WriteString(c, "POST /left HTTP/1.1\r\nHost: ssh-faulty.localhost\r\nContent-Length: 2\r\n\r\nhi")
	<-got
	c.Close()
	<-time.After(100 * time.Millisecond) // relayd may have noticed the close or not; the record must be the same
	close(left)
	var rec record
	r.waitFor(10*time.Second, "the event", func() bool {
		rec = r.latest("ssh-faulty")
		return rec.Path == "/left"
	})
	if rec.State != "delivered" || rec.Status == nil || *rec.Status != 200 || rec.Response == nil || rec.Response.State != "complete" {
		t.Errorf("record: %+v, response %+v", rec, rec.Response)
	}
	if !t.Failed() {
		*passed++
	}
}
