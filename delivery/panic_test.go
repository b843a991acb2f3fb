package delivery_test

import (
	"context"
	"testing"

	"relay"
)

// panickingCaller fails on the first byte of a response, as a bug would.
type panickingCaller struct{ *memCaller }

func (panickingCaller) Write([]byte) (int, error) { panic("a bug") }

// A request whose exchange panics leaves no attempt that is being delivered for ever, and
// no channel or slot in use; the next request is served.
func TestPanicMarksTheAttempt(t *testing.T) {
	requests := 0
	run(t, func(l *local) {
		l.until("hello")
		if requests++; requests > 1 {
			l.Write(ok)
			return
		}
		l.Write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nthe first part")
		l.ended()
	}, func(b *fixture) {
		in, c := b.inbound(post)
		in.Caller = panickingCaller{c}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed, so that nobody logs it")
				}
			}()
			b.d.Capture(context.Background(), in)
		}()
		b.s.wg.Wait()
		b.want("running channels", b.d.Stats().Channels, 0)
		e := b.event()
		b.want("state", e.State, relay.StateInterrupted)
		if e.Error == nil || e.Error.Code != relay.CodeInternal {
			t.Errorf("error %+v", e.Error)
		}
		_, next := b.send(post)
		b.want("the next answer", next.answer(), ok)
	})
}
