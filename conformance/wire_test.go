package conformance

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
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

// wireCase is one exchange compared byte by byte: what the local server saw, what
// the caller got, what is stored, and what a replay sent.
type wireCase struct {
	name     string
	request  string
	response string
	shut     bool // the local server closes behind its answer
}

const (
	host = "Host: wire.localhost\r\n"
	ok   = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
)

func post(head, body string) string {
	return "POST /hook HTTP/1.1\r\n" + host + head + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body
}

func get(target string) string {
	return "GET " + target + " HTTP/1.1\r\n" + host + "\r\n"
}

func random(n int, seed uint64) string {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = r.Read(b)
	return string(b)
}

func allBytes() string {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return string(b)
}

// plainCases are those that one write and one answer describe. Their numbers are
// those of the list of conformance cases.
func plainCases() []wireCase {
	json := `{"id":"evt_1","type":"invoice.paid","amount":1.10,"name":"caf\u00e9 ` + "\xc3\xa9" + `"}`
	var cases []wireCase
	add := func(name, request, response string) {
		cases = append(cases, wireCase{name: name, request: request, response: response})
	}
	closing := func(name, request, response string) {
		cases = append(cases, wireCase{name: name, request: request, response: response, shut: true})
	}
	add("1 stripe", post("User-Agent: Stripe/1.0 (+https://stripe.com/docs/webhooks)\r\nAccept: */*; q=0.5, application/xml\r\nContent-Type: application/json; charset=utf-8\r\nStripe-Signature: t=1492774577,v1=5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd,v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39\r\n", json), ok)
	add("2 github json", post("Accept: */*\r\nUser-Agent: GitHub-Hookshot/044aadd\r\nX-GitHub-Delivery: 72d3162e-cc78-11e3-81ab-4c9367dc0958\r\nX-GitHub-Event: push\r\nX-Hub-Signature-256: sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17\r\ncontent-type: application/json\r\n", json), ok)
	add("3 slack form", post("User-Agent: Slackbot 1.0 (+https://api.slack.com/robots)\r\nAccept-Encoding: gzip,deflate\r\nX-Slack-Signature: v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503\r\nX-Slack-Request-Timestamp: 1531420618\r\nContent-Type: application/x-www-form-urlencoded\r\n", "token=xyzz&text=hello+world%21&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2F1"), ok)
	add("4 shopify", post("X-Shopify-Topic: orders/create\r\nX-Shopify-Hmac-Sha256: XWmrwMey6OsLMeiZKwP4FppHH3cmAiiJJAweH5Jo4bM=\r\nX-Shopify-Shop-Domain: a.myshopify.com\r\nContent-Type: application/json\r\n", json), ok)
	add("5 twilio form", post("Content-Type: application/x-www-form-urlencoded; charset=UTF-8\r\nX-Twilio-Signature: 0/KCTR6DLpKmkAf8muzZqo1nDgQ=\r\nI-Twilio-Idempotency-Token: 1\r\n", "CallSid=CA1&From=%2B14158675309&To=%2B18005551212"), ok)
	add("6 sns", post("x-amz-sns-message-type: Notification\r\nx-amz-sns-message-id: 22b80b92\r\nContent-Type: text/plain; charset=UTF-8\r\nUser-Agent: Amazon Simple Notification Service Agent\r\n", "{\n  \"Type\" : \"Notification\"\n}"), ok)
	add("7 svix", post("svix-id: msg_p5jXN8AQM9LWM0D4loKWxJek\r\nsvix-timestamp: 1614265330\r\nsvix-signature: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=\r\ncontent-type: application/json\r\n", json), ok)
	add("8 standard webhooks", post("webhook-id: msg_1\r\nwebhook-timestamp: 1614265330\r\nwebhook-signature: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= v1,bm9ldHUjKzFob2VudXRob2VodWUzMjRvdWVvdW9ldQo=\r\n", json), ok)
	add("9 sendgrid multipart", post("Content-Type: multipart/form-data; boundary=xYzZY\r\nUser-Agent: Sendlib/1.0\r\n", "--xYzZY\r\nContent-Disposition: form-data; name=\"email\"\r\n\r\nFrom: a\r\n\r\nbody\r\n--xYzZY--\r\n"), ok)
	add("10 github form", post("X-GitHub-Event: issues\r\nContent-Type: application/x-www-form-urlencoded\r\n", "payload=%7B%22a%22%3A1%7D"), ok)
	add("11 length zero", post("", ""), ok)
	add("12 no length", "POST /hook HTTP/1.1\r\n"+host+"\r\n", ok)
	add("13 binary", post("Content-Type: application/octet-stream\r\n", allBytes()), "HTTP/1.1 200 OK\r\nContent-Length: 256\r\n\r\n"+allBytes())
	add("14 gzip", post("Content-Encoding: gzip\r\n", "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\xcaH\xcd\xc9\xc9\x07\x04\x00\x00\xff\xff\x86\xa6\x106\x05\x00\x00\x00"), "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 29\r\n\r\n\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\xcaH\xcd\xc9\xc9\x07\x04\x00\x00\xff\xff\x86\xa6\x106\x05\x00\x00\x00")
	add("15 ten megabytes", post("", random(10<<20, 15)), "HTTP/1.1 200 OK\r\nContent-Length: 10485760\r\n\r\n"+random(10<<20, 16))
	chunked := "POST /hook HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n"
	add("16 chunked", chunked+"\r\n5\r\nhello\r\n006;name=\"v;x\"\r\n world\r\nA\r\n0123456789\r\n0\r\n\r\n", ok)
	add("17 chunked empty", chunked+"\r\n0\r\n\r\n", ok)
	add("18 trailers", chunked+"Trailer: X-Checksum\r\n\r\n3\r\nabc\r\n000;last\r\nX-Checksum: 1\r\nx-undeclared:  two \r\n\r\n", ok)
	add("19 duplicates", post("X-Dup: 1\r\nx-dup: 2\r\nOther: o\r\nX-DUP: 3\r\n", "x"), ok)
	add("20 reverse order", post("Z: 1\r\nY: 2\r\nX: 3\r\nB: 4\r\nA: 5\r\n", "x"), ok)
	add("21 lower case", "POST /hook HTTP/1.1\r\nhost: wire.localhost\r\ncontent-type: text/plain\r\ncontent-length: 1\r\n\r\nx", ok)
	add("22 no user agent", get("/no-agent"), ok)
	add("23 no accept", "GET / HTTP/1.1\r\n"+host+"User-Agent: only\r\n\r\n", ok)
	add("24 own accept-encoding", "GET / HTTP/1.1\r\n"+host+"Accept-Encoding: br;q=0.1, identity\r\n\r\n", ok)
	for _, c := range [][2]string{
		{"25 encoded slashes", "/a%2Fb%2fc"},
		{"26 double slashes", "//double//slash///"},
		{"27 dots", "/a/./b/../c"},
		{"28 needless escapes", "/%41%7e~"},
		{"29 bare question mark", "/?"},
		{"30 query order", "/?b=2&a=1&b=1"},
		{"31 semicolon", "/?a=1;b=2"},
		{"32 bad escape", "/?x=%zz"},
	} {
		add(c[0], get(c[1]), ok)
	}
	add("33 host with port", "GET / HTTP/1.1\r\nHost: wire.localhost:8080\r\n\r\n", ok)
	add("34 host with capitals", "GET / HTTP/1.1\r\nHost: WIRE.LocalHost\r\n\r\n", ok)
	add("37 sender's own proxy headers", post("X-Forwarded-For: 1.2.3.4\r\nVia: 1.0 fred\r\nForwarded: for=192.0.2.60\r\nX-Forwarded-Proto: gopher\r\n", "x"), ok)
	closing("38 connection close", post("Connection: close\r\n", "x"), "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
	add("39 keep-alive", post("Connection: keep-alive, X-Mine\r\nKeep-Alive: timeout=5, max=1000\r\nX-Mine: kept\r\n", "x"), "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\nContent-Length: 2\r\n\r\nok")
	add("40 delete with body", strings.Replace(post("", "body"), "POST", "DELETE", 1), ok)
	add("40 custom method", strings.Replace(get("/m"), "GET", "rEPORT", 1), ok)
	add("41 reason", get("/"), "HTTP/1.1 299 Quite  All Right!\r\nContent-Length: 0\r\n\r\n")
	add("41 empty reason", get("/"), "HTTP/1.1 799 \r\nContent-Length: 0\r\n\r\n")
	add("42 no date", get("/"), "HTTP/1.1 404 Not Found\r\nContent-Type: text/x\r\nContent-Length: 1\r\n\r\nn")
	add("43 no content type", post("", "x"), "HTTP/1.1 500 Oops\r\ncontent-length: 15\r\n\r\n<html>boom</htm")
	add("44 set-cookie", get("/"), "HTTP/1.1 200 OK\r\nSet-Cookie: a=1; Path=/\r\nset-cookie: b=2\r\nX: y\r\nSET-COOKIE: a=3\r\nContent-Length:   2 \r\n\r\nok")
	add("45 no content", post("", "x"), "HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n")
	add("46 not modified with length", get("/"), "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nContent-Length: 1234\r\n\r\n")
	add("47 head with length", strings.Replace(get("/"), "GET", "HEAD", 1), "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n")
	add("48 response chunked with trailers", get("/"), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n04;x=y\r\nwiki\r\nC\r\n in\r\n\r\nchunk\r\n0\r\nX-T: 1\r\n\r\n")
	closing("49 until close", get("/"), "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nuntil the very end")
	closing("50 http 1.0", get("/"), "HTTP/1.0 200 OK\r\nServer: SimpleHTTP/0.6 Python/3.11.2\r\nContent-type: text/html\r\nContent-Length: 5\r\n\r\nhello")
	add("51 early hints", get("/"), "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	return cases
}

// score counts what was identical.
type score struct{ cases, original, replay, response, stored int }

func TestWireFidelity(t *testing.T) {
	stores(t, func(t *testing.T, databaseURL string) {
		r := newRig(t, databaseURL)
		tg := newTarget(t)
		r.tunnel("wire", tg.addr)
		var s score
		numbers := map[string]bool{}
		run := func(name string, f func(t *testing.T)) {
			t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
				f(t)
				if !t.Failed() {
					number, _, _ := strings.Cut(name, " ")
					numbers[number] = true
				}
			})
		}
		for _, c := range plainCases() {
			run(c.name, func(t *testing.T) { s.plain(t, r, tg, c) })
		}
		run("35 expect accepted", func(t *testing.T) { expectAccepted(t, r, tg) })
		run("36 expect refused", func(t *testing.T) { expectRefused(t, r, tg) })
		run("52 events stream unbuffered", func(t *testing.T) { eventStream(t, r, tg) })
		run("53 websocket", func(t *testing.T) { upgrade(t, r, tg) })
		run("54 answered before the body", func(t *testing.T) { earlyAnswer(t, r, tg) })
		run("55 local dies mid-body", func(t *testing.T) { brokenAnswer(t, r, tg) })
		run("56 fifty pipelined", func(t *testing.T) { pipelined(t, r, tg) })
		run("57 ambiguous requests", func(t *testing.T) { ambiguous(t, r, tg) })
		run("58 byte by byte", func(t *testing.T) { byteByByte(t, r, tg) })
		run("60 mutated requests", func(t *testing.T) { mutated(t, r, tg) })
		run("59 queued while offline", func(t *testing.T) { queuedWhileOffline(t, r) })
		t.Logf("plain cases: %d; identical: original %d, replay %d, response %d, stored %d", s.cases, s.original, s.replay, s.response, s.stored)
		t.Logf("identical in %d of 60 numbered cases", len(numbers))
	})
}

// same compares bytes and says where they part.
func same(t *testing.T, what string, got, want []byte) bool {
	t.Helper()
	if bytes.Equal(got, want) {
		return true
	}
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	show := func(b []byte) string {
		lo, hi := max(0, i-40), min(len(b), i+40)
		if lo > hi {
			return ""
		}
		return fmt.Sprintf("%q", b[lo:hi])
	}
	t.Errorf("%s: %d bytes, want %d; they part at %d: got %s want %s", what, len(got), len(want), i, show(got), show(want))
	return false
}

func (s *score) plain(t *testing.T, r *rig, tg *target, c wireCase) {
	s.cases++
	tg.say(c.response, c.shut)
	conn := r.dial()
	defer conn.Close()
	go func() { _, _ = io.WriteString(conn, c.request) }()
	answer, err := readAll(conn, len(c.response))
	if err != nil {
		t.Fatalf("read the answer: %v after %d bytes: %.300q", err, len(answer), answer)
	}
	count := func(n *int, what string, got, want []byte) {
		if same(t, what, got, want) {
			*n++
		}
	}
	count(&s.original, "request at the local server", tg.next(), []byte(c.request))
	count(&s.response, "response at the caller", answer, []byte(c.response))
	rec := r.latest("wire")
	s.checkStored(t, r, rec, c)

	again := r.replay(rec.ID)
	count(&s.replay, "request of the replay", tg.next(), []byte(c.request))
	if len(again.Attempts) != 2 || again.Attempts[1].State != "delivered" || again.Attempts[1].Identical == nil || !*again.Attempts[1].Identical {
		t.Errorf("replay: %+v", again.Attempts)
	}
	same(t, "attempts/2/request.raw", r.must(200, "GET", "/events/"+rec.ID+"/attempts/2/request.raw", nil), []byte(c.request))
	same(t, "attempts/2/response.raw", r.must(200, "GET", "/events/"+rec.ID+"/attempts/2/response.raw", nil), []byte(c.response))
}

// checkStored compares the raw endpoints.
func (s *score) checkStored(t *testing.T, r *rig, rec record, c wireCase) {
	t.Helper()
	okReq := same(t, "request.raw", r.must(200, "GET", "/events/"+rec.ID+"/request.raw", nil), []byte(c.request))
	okSent := same(t, "attempts/1/request.raw", r.must(200, "GET", "/events/"+rec.ID+"/attempts/1/request.raw", nil), []byte(c.request))
	okRes := same(t, "attempts/1/response.raw", r.must(200, "GET", "/events/"+rec.ID+"/attempts/1/response.raw", nil), []byte(c.response))
	if okReq && okSent && okRes {
		s.stored++
	}
	if len(rec.Attempts) != 1 || rec.Attempts[0].Identical == nil || !*rec.Attempts[0].Identical {
		t.Errorf("attempt 1 is not identical: %+v", rec.Attempts)
	}
	body := r.must(200, "GET", "/events/"+rec.ID+"/request.body", nil)
	sum := sha256.Sum256(body)
	if rec.Request.Body.Size != int64(len(body)) || rec.Request.Body.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("body: %d bytes with hash %s, recorded as %d with %s", len(body), hex.EncodeToString(sum[:]), rec.Request.Body.Size, rec.Request.Body.SHA256)
	}
}

func expectAccepted(t *testing.T, r *rig, tg *target) {
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
	answer, err := readAll(conn, len(ok))
	if err != nil {
		t.Fatal(err)
	}
	same(t, "answer", answer, []byte(ok))
	same(t, "original", tg.next(), []byte(head+"hello"))
	r.replay(r.latest("wire").ID)
	same(t, "replay", tg.next(), []byte(head+"hello"))
}

func expectRefused(t *testing.T, r *rig, tg *target) {
	const refusal = "HTTP/1.1 417 No Thanks\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
	tg.run(func(c net.Conn, br *bufio.Reader) {
		if _, err := readHead(br); err == nil {
			_, _ = io.WriteString(c, refusal)
		}
	})
	conn := r.dial()
	_, _ = io.WriteString(conn, "POST /expect HTTP/1.1\r\n"+host+"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
	answer, err := readAll(conn, len(refusal))
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

// eventStream sends each event only when the caller has had the one before: a
// buffer anywhere would stop it.
func eventStream(t *testing.T, r *rig, tg *target) {
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

func upgrade(t *testing.T, r *rig, tg *target) {
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

func earlyAnswer(t *testing.T, r *rig, tg *target) {
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
	if !rec.Replayable {
		t.Error("not replayable although it is whole")
	}
}

func brokenAnswer(t *testing.T, r *rig, tg *target) {
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

func pipelined(t *testing.T, r *rig, tg *target) {
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
	got, err := readAll(conn, want.Len())
	if err != nil {
		t.Fatal(err)
	}
	same(t, "fifty answers", got, want.Bytes())
	for range n {
		tg.next()
	}
}

func ambiguous(t *testing.T, r *rig, tg *target) {
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

func byteByByte(t *testing.T, r *rig, tg *target) {
	tg.say(ok, false)
	request := "POST /slowly HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nX-T: v\r\n\r\n"
	conn := r.dial()
	_ = conn.(*net.TCPConn).SetNoDelay(true)
	for i := range len(request) {
		if _, err := io.WriteString(conn, request[i:i+1]); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := readAll(conn, len(ok))
	if err != nil {
		t.Fatal(err)
	}
	same(t, "answer", answer, []byte(ok))
	same(t, "original", tg.next(), []byte(request))
	r.replay(r.latest("wire").ID)
	same(t, "replay", tg.next(), []byte(request))
}

// mutated sends requests with random damage. Whatever reaches the local server
// must be what was sent, and net/http must read it alike.
func mutated(t *testing.T, r *rig, tg *target) {
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
				if !strings.Contains(err.Error(), "parse") { // targets that only url.Parse refuses
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

func queuedWhileOffline(t *testing.T, r *rig) {
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
		answer, _ := readAll(conn, 12)
		return string(answer[:min(12, len(answer))]) == "HTTP/1.1 202"
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
	r.tunnel("asleep", tg.addr)
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
