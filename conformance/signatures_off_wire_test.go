package conformance

import (
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"testing"
)

// TestSecretsChangeNothingOnTheWire: an alias gets secrets, the definition of a custom sender, answers for
// callers while it is offline, and handshakes. Requests, their answers and their replays have the same bytes
// before and after that, at the caller and at the local server. The requests include valid and invalid
// signatures and challenges: while the tunnel is online, the local server gets each request unchanged.
func TestSecretsChangeNothingOnTheWire(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	tg := newTarget(t)
	tg.say("HTTP/1.1 201 Made\r\nX-Odd:\tkept \r\nx-odd: twice\r\nContent-Length: 4\r\n\r\ndone", false)
	r.tunnel("hook", tg.addr)

	post := func(lines, body string) string {
		return fmt.Sprintf("POST /hook?a=%%2f HTTP/1.1\r\nHost: hook.localhost\r\n%sContent-Length: %d\r\nx-OWN:  a \r\n\r\n%s", lines, len(body), body)
	}
	requests := map[string]string{
		"of no sender":    post("", "hello"),
		"Stripe, wrong":   post("Stripe-Signature: t=1700000000,v1="+strings.Repeat("0", 64)+"\r\n", `{"id":"evt_1", "n":1.0}`),
		"GitHub, right":   post("X-GitHub-Event: push\r\nx-hub-signature-256: sha256="+hex.EncodeToString(mac(plainSecret, "{}"))+"\r\n", "{}"),
		"its definition":  post("X-Shop: "+hex.EncodeToString(mac(plainSecret, "hello"))+"\r\n", "hello"),
		"chunked":         "POST /hook HTTP/1.1\r\nHost: hook.localhost\r\nX-Shop: 00\r\nTransfer-Encoding: chunked\r\n\r\n03;x=y\r\nabc\r\n0\r\nT: 1\r\n\r\n",
		"Slack challenge": post("Content-Type: application/json\r\n", `{"type":"url_verification","token":"t","challenge":"c"}`),
		"Meta challenge":  "GET /hook?hub.mode=subscribe&hub.challenge=1&hub.verify_token=tok HTTP/1.1\r\nHost: hook.localhost\r\n\r\n",
		"X challenge":     "GET /hook?crc_token=1 HTTP/1.1\r\nHost: hook.localhost\r\n\r\n",
	}
	type wire struct{ forwarded, answer, replayed string }
	run := func() map[string]wire {
		seen := map[string]wire{}
		for name, request := range requests {
			conn := r.dial()
			if _, err := io.WriteString(conn, request); err != nil {
				t.Fatal(err)
			}
			var w wire
			w.forwarded = string(tg.next())
			answer, err := io.ReadAll(io.LimitReader(conn, int64(len("HTTP/1.1 201 Made\r\nX-Odd:\tkept \r\nx-odd: twice\r\nContent-Length: 4\r\n\r\ndone"))))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			w.answer = string(answer)
			conn.Close()
			r.replay(r.latest("hook").ID)
			w.replayed = string(tg.next())
			seen[name] = w
		}
		return seen
	}
	before := run()
	for path, body := range map[string]string{
		"POST /aliases/hook/secrets":  `{"provider":"stripe","sign":true,"secret":"` + plainSecret + `"}`,
		"POST /aliases/hook/secrets ": `{"provider":"github","sign":true,"path":"/hook","secret":"` + plainSecret + `"}`,
		"POST /aliases/hook/secrets#": `{"provider":"custom","path":"/hook","secret":"` + plainSecret + `","custom":` + shopScheme + `}`,
		"POST /aliases/hook/secrets?": `{"provider":"slack","secret":"` + plainSecret + `"}`,
		"PATCH /aliases/hook":         `{"handshakes":["all"],"verifyToken":"tok","answers":[{"method":"POST","status":418}]}`,
	} {
		method, target, _ := strings.Cut(strings.TrimRight(path, " #?"), " ")
		if status, out := r.api(method, target, []byte(body)); status != 200 && status != 201 {
			t.Fatalf("%s: %d %s", path, status, out)
		}
	}
	after := run()
	for name, request := range requests {
		if before[name] != after[name] {
			t.Errorf("%s: before\n%q, afterwards\n%q", name, before[name], after[name])
		}
		if w := after[name]; w.forwarded != request || w.replayed != request {
			t.Errorf("%s: sent\n%q, forwarded\n%q, replayed\n%q", name, request, w.forwarded, w.replayed)
		}
	}
}
