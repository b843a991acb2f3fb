package delivery_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"relay"
)

// TestChallengeWhoseTunnelComes: relayd queues a challenge if a tunnel is attached before the challenge has
// arrived completely, and the tunnel then gets it.
func TestChallengeWhoseTunnelComes(t *testing.T) {
	run(t, nil, func(b *fixture) {
		c, done := b.begin(slackChallenge[:len(slackChallenge)-10])
		time.Sleep(time.Second)
		tun, h := b.attach(always("verification\"}", ok))
		synctest.Wait()
		c.in.write([]byte(slackChallenge[len(slackChallenge)-10:]))
		out := <-done
		b.want("answer", code(out), "202")
		b.want("made as that of a challenge", out.Answer.Handshake, "")
		time.Sleep(time.Minute)
		b.want("delivered", b.event().State, relay.StateDelivered)
		h.Detach(true)
		synctest.Wait()
		tun.cutAll()
	}, func(b *fixture) { b.a.Settings.Handshakes, b.a.Settings.AutoDeliver = []string{"all"}, true })
}

// TestChallengeWithASealedSecret: if this node cannot decrypt the secret that the alias has for the sender of a
// challenge, the challenge is queued, and its event names the missed challenge.
func TestChallengeWithASealedSecret(t *testing.T) {
	for name, raw := range map[string]string{"slack": slackChallenge, "x": "GET /w?crc_token=abc HTTP/1.1\r\nHost: hook.localhost\r\n\r\n"} {
		run(t, nil, func(b *fixture) {
			out, _ := b.send(raw)
			b.want(name+": answer", code(out), "202")
			b.want(name+": made as that of a challenge", out.Answer.Handshake, "")
			b.want(name+": missed", b.event().MissedHandshake, name)
		}, withHandshakes("all"), func(b *fixture) {
			b.s.secrets = map[int64]relay.OpenSecrets{7: {{SenderSecret: relay.SenderSecret{ID: "sec_1", Provider: name}, Sealed: true}}}
		})
	}
}

// TestNoMoreIsReadWithAFullQueue: with a full queue, a challenge is answered if its body has a length of at
// most 16 KiB. A longer or chunked body gets queue-full.
func TestNoMoreIsReadWithAFullQueue(t *testing.T) {
	const chunked = "POST /slack HTTP/1.1\r\nHost: hook.localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n39\r\n" + slackBody + "\r\n0\r\n\r\n"
	for raw, want := range map[string]string{
		slackChallenge: "200",
		chunked:        relay.CodeQueueFull,
		strings.Replace(slackChallenge, "57\r\n\r\n", "16384\r\n\r\n"+strings.Repeat(" ", 16384-57), 1): "200",
		strings.Replace(slackChallenge, "57\r\n\r\n", "16385\r\n\r\n"+strings.Repeat(" ", 16385-57), 1): relay.CodeQueueFull,
	} {
		run(t, nil, func(b *fixture) {
			b.send(post)
			out, _ := b.send(raw)
			b.want(fmt.Sprintf("%.100q", raw[50:]), code(out), want)
		}, withHandshakes("slack"), func(b *fixture) { b.opt.QueueLimit = 1 })
	}
}

// TestReservationOfChunkedBodiesEnds: the queue space that a chunked request has reserved is free again after its
// event was canceled, after the store failed to store it, and after its caller left.
func TestReservationOfChunkedBodiesEnds(t *testing.T) {
	const head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, how := range []string{"canceled", "not stored", "caller gone"} {
		run(t, nil, func(b *fixture) {
			for i := range 4 {
				raw, want := head+"190\r\n"+strings.Repeat("x", 400)+"\r\n0\r\n\r\n", "202"
				switch how {
				case "not stored":
					b.s.fail("accept", relay.Errorf(relay.CodeStoreUnavailable, "down"))
					want = relay.CodeStoreUnavailable
				case "caller gone":
					c, done := b.begin(raw[:len(raw)-3])
					synctest.Wait()
					c.Abort()
					<-done
					continue
				}
				out, _ := b.send(raw)
				b.want(fmt.Sprint(how, " ", i), code(out), want)
				if how == "canceled" {
					must(t, b.d.Cancel(context.Background(), relay.System(), b.s.order[len(b.s.order)-1]))
					synctest.Wait()
				}
			}
			b.s.fail("accept", nil)
			out, _ := b.send(head + "190\r\n" + strings.Repeat("x", 400) + "\r\n0\r\n\r\n")
			b.want(how+": at the end", code(out), "202")
		}, func(b *fixture) { b.opt.QueueBytes = int64(len(head)) + 500 })
	}
}
