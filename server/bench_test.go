package server

import (
	"context"
	"io"
	"testing"
	"time"

	"relay"
)

// quick is a Capturer that answers at once with fixed bytes.
type quick struct {
	alias  *relay.Alias
	answer []byte
	queued *relay.Answer // the relay-made answer; nil = answer is sent instead
}

func (q *quick) Alias(string) (*relay.Alias, bool) { return q.alias, true }

func (q *quick) FindAlias(label string) (*relay.Alias, bool) { return q.Alias(label) }

func (q *quick) Reject(*relay.Inbound, *relay.Error) {}

func (q *quick) Capture(_ context.Context, in *relay.Inbound) relay.Outcome {
	for in.Caller.Buffered() > 0 {
		c, ok := in.Caller.(*conn)
		if !ok {
			break
		}
		c.r = c.w
	}
	if q.queued != nil {
		return relay.Outcome{Answer: q.queued, KeepAlive: true}
	}
	_, _ = in.Caller.Write(q.answer)
	return relay.Outcome{KeepAlive: true}
}

// BenchmarkIngress measures one round trip on a kept connection, for both ends of the socket together.
// "captured" is the answer of a local server that takes no time, "queued" the offline answer.
func BenchmarkIngress(b *testing.B) {
	q := quick{alias: &relay.Alias{ID: 1, Name: "shop"}, answer: []byte("HTTP/1.1 204 No Content\r\n\r\n")}
	b.Run("captured", func(b *testing.B) { benchIngress(b, &q, len(q.answer)) })
	q2 := q
	q2.queued = &relay.Answer{Event: testID, Status: 202}
	b.Run("queued", func(b *testing.B) {
		benchIngress(b, &q2, len(encodeAnswer(q2.queued, requestID(), false, true)))
	})
}

func benchIngress(b *testing.B, q *quick, size int) {
	o := testOptions(b, &upstream{})
	o.Capture, o.Log = q, nil
	_, addr := start(b, o)
	c := dial(b, addr)
	_ = c.SetDeadline(time.Time{})
	request, answer := []byte(hello), make([]byte, size)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(request); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, answer); err != nil {
			b.Fatal(err)
		}
	}
}
