package delivery

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"relay"
	"relay/delivery/exchange"
	"relay/handshake"
)

// maxChallenge is the largest Content-Length of a request that is read although the queue is full, because it
// may be a challenge.
const maxChallenge = 16 << 10

// offlineRetry is the Retry-After of an offline answer with status 500 or above. It is a guess: the
// tunnel may return at any time.
const offlineRetry = 60 * time.Second

// ownAnswer is a response that the relay makes while an alias is offline, in place of the usual
// offline answer.
type ownAnswer struct {
	status int
	lines  [][2]string
	body   []byte
}

// message returns the answer as it is sent to the caller of q.
func (a *ownAnswer) message(q *exchange.Request) relay.Message {
	m := relay.Message{Framing: relay.FramingNone, Body: relay.Body{State: relay.BodyComplete, SHA256: sha256.Sum256(nil)}}
	b := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\n", a.status, http.StatusText(a.status))
	for _, l := range a.lines {
		b = fmt.Appendf(b, "%s: %s\r\n", l[0], l[1])
	}
	if a.status != http.StatusNoContent && a.status != http.StatusNotModified {
		b = fmt.Appendf(b, "Content-Length: %d\r\n", len(a.body))
		if string(q.Head.Method) != http.MethodHead {
			m.Framing = relay.FramingLength
			m.Body.Data, m.Body.Size, m.Body.Stored, m.Body.SHA256 = a.body, int64(len(a.body)), int64(len(a.body)), sha256.Sum256(a.body)
		}
	}
	b = fmt.Appendf(b, "Relay-Event: %s\r\n", q.Event.ID)
	if a.status >= http.StatusInternalServerError && !slices.ContainsFunc(a.lines, func(l [2]string) bool { return strings.EqualFold(l[0], "Retry-After") }) {
		b = fmt.Appendf(b, "Retry-After: %d\r\n", int(offlineRetry.Seconds()))
	}
	if q.Head.Close {
		b = append(b, "Connection: close\r\n"...)
	}
	m.Head = append(b, "\r\n"...)
	return m
}

// bytes returns head and body of the answer.
func (a *ownAnswer) bytes(q *exchange.Request) []byte {
	m := a.message(q)
	return append(slices.Clip(m.Head), m.Body.Data...)
}

// challenge returns a completely received request in the form of package handshake; nil if it is too
// large.
func (j *job) challenge() *handshake.Request {
	e := j.q.Event
	body, ok := j.q.Body()
	if !ok {
		return nil
	}
	return &handshake.Request{Head: e.Request.Head, Body: body, URL: "https://" + e.Host + string(e.Target)}
}

// answerHandshake answers a completely received request, if it is a registration challenge that the
// alias answers while it is offline. The event and the answer are stored before the answer is sent.
func (j *job) answerHandshake() (out relay.Outcome, ok bool) {
	names := j.alias.Settings.Handshakes
	if len(names) == 0 {
		return out, false
	}
	if att, lost := j.st.Online(); att != nil && (att != j.att || lost != j.lost) {
		// The tunnel was attached, or became online again, while the request was read.
		return out, false
	}
	if _, online := j.st.RemoteOwner(); online {
		// The tunnel is online at another node. That node may be out of reach, or the client there slow.
		return out, false
	}
	unopened := false
	name, reply := handshake.Answer(j.challenge(), names, func(sender string) []string {
		values, sealed := j.secrets(sender)
		unopened = unopened || sealed
		return values
	}, time.Now())
	if reply == nil || unopened {
		return out, false
	}
	own := ownAnswer{reply.Status, append(reply.Lines, [2]string{"X-Content-Type-Options", "nosniff"}, [2]string{"Content-Security-Policy", "sandbox"}), reply.Body}
	return j.storeAnswer(name, &own), true
}

// secrets returns the secrets that the alias holds for a challenge. For Meta it returns the verify
// token, because Meta's secret is for signatures only. sealed means that there are secrets, but this
// node can open none of them.
func (j *job) secrets(sender string) (values []string, sealed bool) {
	if sender == handshake.Meta {
		switch token := j.alias.Settings.VerifyToken; {
		case token == nil:
			return nil, false
		case token.Reveal() == "":
			return nil, true
		default:
			return []string{token.Reveal()}, false
		}
	}
	for _, s := range j.st.Secrets().For(sender, string(j.q.Event.Target)) {
		if s.Sealed {
			sealed = true
		} else {
			values = append(values, s.Value.Reveal())
		}
	}
	return values, sealed && len(values) == 0
}

// storeAnswer stores the event of a challenge with its answer, and returns the outcome once both are durable.
func (j *job) storeAnswer(name string, own *ownAnswer) relay.Outcome {
	d, q := j.d, j.q
	var accept *relay.Ticket
	accepted := q.Accepted()
	if !accepted {
		q.Prepare(relay.StateDelivering)
	}
	a := q.Answered(name, own.status, own.message(q))
	a.CallerGone = q.Left() || j.caller.Presence() == relay.CallerReset
	if !accepted {
		accept = d.store.Accept(q.Event)
	}
	finish, gone := d.store.Finish(q.Event.ID, &a, ""), func() { d.store.CallerGone(q.Event.ID, a.N) }
	if err := d.exchanges.Await(accept, finish); err != nil {
		d.markStoreDegraded(j.st, err)
		if errors.Is(err, exchange.ErrStoreTimeout) {
			// The store may still store the end of the attempt. Then the record would say that the caller got
			// the answer to the challenge, although it gets the error below, so gone adds that it did not.
			d.background(func() {
				if d.exchanges.AwaitEnd(finish) == nil {
					gone()
				}
			})
		}
		return j.ifPresent(refusal(exchange.StoreError(err), relay.ID{}))
	}
	d.markStoreHealthy(j.st)
	d.counters.finished(&a, false)
	out := relay.Outcome{Answer: &relay.Answer{Event: q.Event.ID, Status: own.status, Own: own.bytes(q), Handshake: name}, KeepAlive: !q.Head.Close}
	if !a.CallerGone {
		out.Gone = gone
	}
	return j.ifPresent(out)
}

// answerWithFullQueue answers a challenge although the queue is full, because an answered challenge is not
// queued. It only reads requests that have no body, or a Content-Length of at most maxChallenge.
func (j *job) answerWithFullQueue() (out relay.Outcome, ok bool) {
	q := j.q
	if len(j.alias.Settings.Handshakes) == 0 || q.Head.Framing != relay.FramingNone && (q.Head.Framing != relay.FramingLength || q.Head.Length > maxChallenge) {
		return out, false
	}
	q.ReadToEnd(nil)
	if whole, why := q.Whole(); !whole {
		return j.outcome(j.spoilt(why)), true
	}
	return j.answerHandshake()
}
