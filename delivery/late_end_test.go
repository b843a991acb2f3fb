package delivery_test

import (
	"testing"
	"time"

	"relay"
)

// TestEndStoredLate: if the end of an attempt is stored too late for the caller, the attempt has the whole
// response, and the error response-not-stored.
func TestEndStoredLate(t *testing.T) {
	t.Parallel()
	for name, begun := range map[string]bool{"before a byte of the answer": false, "before the last byte": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(l *local) {
				l.until("\r\n\r\n")
				l.Write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")
				time.Sleep(time.Second)
				l.Write("k")
				l.ended()
			}, func(b *fixture) {
				if !begun {
					b.s.setDelay(15 * time.Second)
				}
				c, done := b.begin(get)
				time.Sleep(time.Second / 2)
				b.s.setDelay(15 * time.Second)
				out := <-done
				b.want("aborted", c.wasAborted(), begun)
				if !begun {
					b.want("code", code(out), relay.CodeStoreUnavailable)
				}
				time.Sleep(time.Minute)
				b.want("attempt", outcome(b.last()), "delivered "+relay.CodeResponseNotStored)
				b.want("answer", string(b.last().Response.Body.Data), "ok")
			})
		})
	}
}
