package delivery_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"relay"
)

// TestAnswerOverBudgetIsCut: an answer whose channel was closed because its caller took it
// too slowly is recorded as cut, and its caller sees a broken transfer.
func TestAnswerOverBudgetIsCut(t *testing.T) {
	t.Parallel()
	run(t, func(l *local) {
		l.until("\r\n\r\n")
		l.Write("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nbegun")
		synctest.Wait()
		l.c.down.finish(relay.ErrOverBudget)
	}, func(b *fixture) {
		_, c := b.send(get)
		a := b.event().Attempts[0]
		b.want("state", a.State, relay.StateDelivered)
		b.want("response", a.ResponseState, relay.ResponseCut)
		b.want("aborted", c.wasAborted(), true)
	})
}

// TestHeldAnswersAreBounded: what is held back until the request is stored counts; where
// there is no space the caller is told, and the reservations come back.
func TestHeldAnswersAreBounded(t *testing.T) {
	t.Parallel()
	budget := relay.NewBudget(400 << 10) // 100 KiB for an account
	sizes := make(chan int, 3)
	run(t, func(l *local) {
		l.until("\r\n\r\n")
		l.Write("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + strings.Repeat("x", <-sizes))
		l.Close()
	}, func(b *fixture) {
		for _, x := range []struct {
			size int
			want string
		}{{8 << 10, ""}, {60 << 10, ""}, {200 << 10, relay.CodeOverloaded}} {
			sizes <- x.size
			_, done := b.begin(get)
			time.Sleep(time.Second / 2) // the store takes a second
			synctest.Wait()
			if used := budget.Stats().Used; (used > 0) != (x.size == 60<<10) {
				t.Errorf("%d bytes held: %d reserved", x.size, used)
			}
			b.want("answer", code(<-done), x.want)
			if used := budget.Stats().Used; used != 0 {
				t.Errorf("%d bytes are left reserved", used)
			}
		}
	}, func(b *fixture) { b.opt.Budget, b.s.delay = budget, time.Second })
}
