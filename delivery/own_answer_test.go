package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"relay"
)

const (
	slackBody      = `{"token":"t","challenge":"abc","type":"url_verification"}`
	slackChallenge = "POST /slack HTTP/1.1\r\nHost: hook.localhost\r\nContent-Type: application/json\r\nContent-Length: 57\r\n\r\n" + slackBody
)

func withHandshakes(names ...string) func(*fixture) {
	return func(b *fixture) { b.a.Settings.Handshakes = names }
}

func slackAnswer(id relay.ID) string {
	return "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\nContent-Security-Policy: sandbox\r\n" +
		"Content-Length: 3\r\nRelay-Event: " + id.String() + "\r\n\r\nabc"
}

// TestChallengeWhileOffline: a challenge that the setting handshakes names is answered while the alias is
// offline, and the record has the request and the answer.
func TestChallengeWhileOffline(t *testing.T) {
	for name, raw := range map[string]string{
		"length":  slackChallenge,
		"chunked": strings.Replace(slackChallenge, "Content-Length: 57\r\n\r\n"+slackBody, "Transfer-Encoding: chunked\r\n\r\n39\r\n"+slackBody+"\r\n0\r\n\r\n", 1),
	} {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(b *fixture) {
				out, _ := b.send(raw)
				e := b.event()
				b.want("answer", string(out.Answer.Own), slackAnswer(e.ID))
				b.want("status and keep-alive", words(fmt.Sprint(out.Answer.Status), fmt.Sprint(out.KeepAlive), out.Answer.Handshake), "200 true slack")
				a := e.Attempts[0]
				b.want("event", words(e.State, a.State, a.Handshake, a.ResponseState, e.Blocker), words(relay.StateAnswered, relay.StateAnswered, "slack", relay.ResponseComplete))
				b.want("response", string(a.Response.Head)+string(a.Response.Body.Data), string(out.Answer.Own))
				b.want("request", string(e.Request.Body.Data), slackBody)
				b.want("queued", b.d.Stats().Queued, 0)
			}, withHandshakes("slack"))
		})
	}
}

// TestChallengeWithATunnel: an online tunnel gets a challenge, although the setting names all challenges.
func TestChallengeWithATunnel(t *testing.T) {
	run(t, always("verification\"}", ok), func(b *fixture) {
		_, c := b.send(slackChallenge)
		b.want("answer", c.answer(), ok)
		b.want("state", b.event().State, relay.StateDelivered)
		b.want("missed", b.event().MissedHandshake, "")
	}, withHandshakes("all"))
}

// TestChallengeWithoutAUsableTunnel: a challenge is answered if the tunnel is stale, the alias is paused, or
// the tunnel is lost before a byte was sent.
func TestChallengeWithoutAUsableTunnel(t *testing.T) {
	for name, prepare := range map[string]func(b *fixture){
		"lost before a byte":      func(b *fixture) { b.tun.openErr = relay.ErrNotSent },
		"paused":                  func(b *fixture) { b.s.change(7, func(s *relay.Settings) { s.Paused = true }) },
		"stale":                   func(b *fixture) { b.hold.Stale() },
		"stored first, then lost": func(b *fixture) { b.tun.openErr = relay.ErrNotSent; b.storeFirst = true },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, always("verification\"}", ok), func(b *fixture) {
				prepare(b)
				time.Sleep(time.Second)
				out, _ := b.send(slackChallenge)
				e := b.event()
				if out.Answer == nil {
					t.Fatal("no answer of the relay")
				}
				b.want("answer", string(out.Answer.Own), slackAnswer(e.ID))
				b.want("state", e.State, relay.StateAnswered)
				b.want("queued", b.d.Stats().Queued, 0)
			}, withHandshakes("slack"), func(b *fixture) { b.opt.StoreFirst = func() bool { return b.storeFirst } })
		})
	}
}

// TestChallengeThatIsQueued: a challenge that the setting handshakes does not name, or whose secret the alias
// does not have, is queued, and its event names the missed challenge. Other requests are queued without that name.
func TestChallengeThatIsQueued(t *testing.T) {
	for name, c := range map[string]struct {
		raw, missed string
		names       []string
	}{
		"without the setting":  {slackChallenge, "slack", nil},
		"with another one":     {slackChallenge, "slack", []string{"meta"}},
		"markup":               {strings.Replace(slackChallenge, `:"abc"`, `:"<b>"`, 1), "", []string{"all"}},
		"no challenge":         {post, "", []string{"all"}},
		"HEAD":                 {"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", "", nil},
		"a secret is not held": {"GET /?crc_token=abc HTTP/1.1\r\nHost: h\r\n\r\n", "x", []string{"all"}},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(b *fixture) {
				out, _ := b.send(c.raw)
				b.want("answer", code(out), "202")
				e := b.event()
				b.want("event", words(e.State, e.MissedHandshake), words(relay.StateQueued, c.missed))
			}, withHandshakes(c.names...))
		})
	}
}

func TestChallengeWithASecret(t *testing.T) {
	run(t, nil, func(b *fixture) {
		out, _ := b.send("GET /w?crc_token=abc HTTP/1.1\r\nHost: hook.localhost\r\n\r\n")
		b.want("answer", strings.HasSuffix(string(out.Answer.Own), `{"response_token":"sha256=R9kg7ZB4TcXq5jW/0IJPYS0F8J+aR/YDkN6HOtN+VGs="}`), true)
	}, withHandshakes("x"), func(b *fixture) {
		b.s.secrets = map[int64]relay.OpenSecrets{7: {
			{SenderSecret: relay.SenderSecret{ID: "sec_1", Provider: "x"}, Value: relay.NewSecretText("sealed"), Sealed: true},
			{SenderSecret: relay.SenderSecret{ID: "sec_2", Provider: "x", Path: "/w"}, Value: relay.NewSecretText("s")},
			{SenderSecret: relay.SenderSecret{ID: "sec_3", Provider: "zoom"}, Value: relay.NewSecretText("other")},
		}}
	})
}

// TestChallengeWithAFullQueue: with a full queue, a challenge is answered, and other requests get queue-full.
func TestChallengeWithAFullQueue(t *testing.T) {
	run(t, nil, func(b *fixture) {
		b.send(post)
		out, _ := b.send(post)
		b.want("other", code(out), relay.CodeQueueFull)
		out, _ = b.send(slackChallenge)
		b.want("challenge", string(out.Answer.Own) != "", true)
		out, _ = b.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		b.want("other", code(out), relay.CodeQueueFull)
	}, withHandshakes("slack"), func(b *fixture) { b.opt.QueueLimit = 1 })
}

// TestChallengeThatCannotBeStored: if accept or finish fails, the caller of a challenge gets
// store-unavailable.
func TestChallengeThatCannotBeStored(t *testing.T) {
	for _, step := range []string{"accept", "finish"} {
		run(t, nil, func(b *fixture) {
			b.s.fail(step, errors.New("down"))
			out, _ := b.send(slackChallenge)
			b.want(step, code(out), relay.CodeStoreUnavailable)
		}, withHandshakes("slack"))
	}
}

// TestReplayOfAChallenge: a replay of an answered challenge is queued while the alias is offline, and the
// event then has the state queued.
func TestReplayOfAChallenge(t *testing.T) {
	run(t, nil, func(b *fixture) {
		b.send(slackChallenge)
		e, n, err := b.d.Replay(context.Background(), relay.System(), b.event().ID, time.Minute)
		b.want("error", err, nil)
		b.want("replay", words(fmt.Sprint(n), e.Attempt(n).State, e.State), words("2", relay.StateQueued, relay.StateQueued))
	}, withHandshakes("slack"))
}

// TestOwnOfflineAnswer: the first entry of the setting answers that fits the request makes the answer. The
// event is queued as without the setting.
func TestOwnOfflineAnswer(t *testing.T) {
	text := func(s string) relay.AnswerBody { return relay.AnswerBody{Encoding: "utf8", Data: s} }
	for raw, want := range map[string]string{
		post: "HTTP/1.1 201 Created\r\nX-A: b\r\nContent-Length: 2\r\nRelay-Event: %s\r\n\r\nhi",
		"GET /hook HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n":           "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 1\r\nRelay-Event: %s\r\nRetry-After: 60\r\nConnection: close\r\n\r\n\x00",
		"HEAD /hook HTTP/1.1\r\nHost: h\r\n\r\n":                               "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 1\r\nRelay-Event: %s\r\nRetry-After: 60\r\n\r\n",
		"POST /none HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello":     "HTTP/1.1 204 No Content\r\nRelay-Event: %s\r\n\r\n",
		"DELETE /other/hook HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx": "",
	} {
		run(t, nil, func(b *fixture) {
			out, _ := b.send(raw)
			e := b.event()
			if want != "" {
				want = fmt.Sprintf(want, e.ID)
			}
			b.want("answer", fmt.Sprintf("%q", out.Answer.Own), fmt.Sprintf("%q", want))
			b.want("event", words(e.State, fmt.Sprint(b.d.Stats().Queued), out.Answer.Handshake), words(relay.StateQueued, "1", ""))
			if want == "" {
				b.want("status", out.Answer.Status, 202)
			}
		}, func(b *fixture) {
			b.a.Settings.Answers = []relay.OfflineAnswer{
				{Method: new("POST"), PathPrefix: "/none", Status: 204},
				{Method: new("POST"), PathPrefix: "/", Status: 201, Headers: [][2]string{{"X-A", "b"}}, Body: text("hi")},
				{PathPrefix: "/hook", Status: 503, Body: relay.AnswerBody{Encoding: "base64", Data: "AA=="}},
			}
		})
	}
}

// TestChallengeWithAVerifyToken: a challenge of Meta is answered only with the verify token of the alias, and
// not with a secret of Meta. If this node cannot decrypt the token, the challenge is queued.
func TestChallengeWithAVerifyToken(t *testing.T) {
	token := func(s string) *relay.SecretText { kept := relay.NewSecretText(s); return &kept }
	const right = "hub.mode=subscribe&hub.challenge=abc&hub.verify_token=meaty"
	for name, c := range map[string]struct {
		token *relay.SecretText
		query string
		state string
	}{
		"right":                 {token("meaty"), right, relay.StateAnswered},
		"WebSub":                {token("meaty"), right + "&hub.topic=https%3A%2F%2Fexample.com&hub.lease_seconds=60", relay.StateAnswered},
		"wrong":                 {token("meatY"), right, relay.StateQueued},
		"none":                  {nil, right, relay.StateQueued},
		"sealed":                {token(""), right, relay.StateQueued},
		"WebSub without one":    {token("meaty"), "hub.mode=subscribe&hub.challenge=abc&hub.topic=x", relay.StateQueued},
		"sealed, an empty one":  {token(""), "hub.mode=subscribe&hub.challenge=abc&hub.verify_token=", relay.StateQueued},
		"the secret of the app": {nil, "hub.mode=subscribe&hub.challenge=abc&hub.verify_token=s", relay.StateQueued},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(b *fixture) {
				b.send("GET /w?" + c.query + " HTTP/1.1\r\nHost: hook.localhost\r\n\r\n")
				e := b.event()
				b.want("state", e.State, c.state)
				b.want("missed", e.MissedHandshake, map[bool]string{true: "meta"}[c.state == relay.StateQueued])
			}, withHandshakes("all"), func(b *fixture) {
				b.a.Settings.VerifyToken = c.token
				b.s.secrets = map[int64]relay.OpenSecrets{7: {{SenderSecret: relay.SenderSecret{ID: "sec_1", Provider: "meta"}, Value: relay.NewSecretText("s")}}}
			})
		})
	}
}

// TestChallengeForASlowClient: a challenge is queued, and does not count as missed, if the client of a tunnel
// at another node does not take it in time.
func TestChallengeForASlowClient(t *testing.T) {
	for _, storedFirst := range []bool{false, true} {
		first := false
		atOtherNode(t, func(b *fixture, remote *memRemote) {
			b.s.change(7, func(s *relay.Settings) { s.Handshakes = []string{"slack"} })
			synctest.Wait()
			first = storedFirst
			remote.mu.Lock()
			remote.openErr = relay.ErrTunnelSlow
			remote.mu.Unlock()
			out, _ := b.send(slackChallenge)
			e := b.event()
			b.want("answer", code(out), "202")
			b.want("own answer", len(out.Answer.Own), 0)
			b.want("event", words(e.State, e.MissedHandshake), words(relay.StateQueued, ""))
		}, func(b *fixture) { b.opt.StoreFirst = func() bool { return first } })
	}
}

// TestChallengeAfterASlowClient: the client of a tunnel at another node is slow, and its tunnel ends while the rest of a
// challenge arrives. The alias is offline then, so the challenge is answered, or counts as missed.
func TestChallengeAfterASlowClient(t *testing.T) {
	for want, names := range map[string][]string{
		words("200", relay.StateAnswered, ""):    {"slack"},
		words("202", relay.StateQueued, "slack"): nil,
	} {
		atOtherNode(t, func(b *fixture, remote *memRemote) {
			b.s.change(7, func(s *relay.Settings) { s.Handshakes = names })
			synctest.Wait()
			remote.mu.Lock()
			remote.openErr = relay.ErrTunnelSlow
			remote.mu.Unlock()
			last := len(slackChallenge) - 1
			c, done := b.begin(slackChallenge[:last])
			synctest.Wait()
			b.elsewhere("", "")
			c.in.write([]byte(slackChallenge[last:]))
			out := <-done
			e := b.event()
			b.want("answer and event", words(out.Answer.Status, e.State, e.MissedHandshake), want)
		})
	}
}

// TestChallengeForASilentNode: a challenge for a tunnel whose node does not answer is queued and released,
// and does not count as missed.
func TestChallengeForASilentNode(t *testing.T) {
	atOtherNode(t, func(b *fixture, remote *memRemote) {
		b.s.change(7, func(s *relay.Settings) { s.Handshakes = []string{"slack"} })
		synctest.Wait()
		remote.mu.Lock()
		remote.hang, remote.heard = true, time.Minute
		remote.mu.Unlock()
		out, _ := b.send(slackChallenge)
		e := b.event()
		b.want("answer and event", words(code(out), e.State, e.MissedHandshake), words("202", relay.StateQueued, ""))
		b.want("released", b.released(), true)
	})
}

// TestCallerOfAChallengeLeft: the record of an answered challenge says whether its caller got the
// answer.
func TestCallerOfAChallengeLeft(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(*memCaller)
		told  bool // Outcome.Gone is called, as package server does for a caller that did not take the whole answer
		gone  bool
	}{
		"stays":               {func(*memCaller) {}, false, false},
		"resets":              {func(c *memCaller) { c.become(relay.CallerReset) }, false, true},
		"does not take it":    {func(*memCaller) {}, true, true},
		"only shuts its side": {func(c *memCaller) { c.become(relay.CallerHalfClosed) }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(b *fixture) {
				in, caller := b.inbound(slackChallenge)
				c.leave(caller)
				out := b.d.Capture(context.Background(), in)
				if c.told {
					out.Gone()
				}
				// The store resolves its steps in this fake time.
				time.Sleep(time.Second)
				b.want("caller gone", b.event().Attempts[0].CallerGone, c.gone)
				b.want("told twice", out.Gone != nil, !c.gone || c.told)
			}, withHandshakes("slack"))
		})
	}
}

// TestChallengeBeforeItIsStored: an answer waits until the store has confirmed the event. If the store
// confirms too late, the caller gets store-unavailable, and the attempt has CallerGone.
func TestChallengeBeforeItIsStored(t *testing.T) {
	run(t, nil, func(b *fixture) {
		began := time.Now()
		out, _ := b.send(slackChallenge)
		if took := time.Since(began); took < time.Second || out.Answer.Handshake != "slack" {
			t.Errorf("answered after %v: %+v", took, out.Answer)
		}
	}, withHandshakes("slack"), func(b *fixture) { b.s.delay = time.Second })
	run(t, nil, func(b *fixture) {
		out, _ := b.send(slackChallenge)
		b.want("answer", code(out), relay.CodeStoreUnavailable)
		time.Sleep(time.Minute)
		e := b.event()
		b.want("state and caller gone", words(e.State, fmt.Sprint(e.Attempts[0].CallerGone)), words(relay.StateAnswered, "true"))
	}, withHandshakes("slack"), func(b *fixture) { b.s.delay = 15 * time.Second })
}
