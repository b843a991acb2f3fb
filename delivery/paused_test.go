package delivery_test

import (
	"testing"
	"testing/synctest"
	"time"

	"relay"
)

// TestAnswerInTimeToASlowCaller: if both the answer of the local server and the response timeout come while an
// exchange waits for its caller to take a 1xx response, the exchange handles the answer first.
func TestAnswerInTimeToASlowCaller(t *testing.T) {
	const hints = "HTTP/1.1 103 Early Hints\r\n\r\n"
	for name, test := range map[string]struct {
		request     string
		taken, came time.Duration // times from the 1xx response until the caller has taken it, and until the answer has come
		want        string
	}{
		"just after the limit":                    {post, time.Minute + 5*time.Millisecond, 2 * time.Second, hints + ok},
		"long after the limit":                    {post, 70 * time.Second, 2 * time.Second, hints + ok},
		"long after the limit, read a bit later":  {post, 70 * time.Second, 70*time.Second + 500*time.Millisecond, hints + ok},
		"long after the limit, answered too late": {post, 70 * time.Second, 72 * time.Second, hints},
		"without 100 Continue":                    {waiting, time.Minute + 5*time.Millisecond, 2 * time.Second, hints + "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 { // a select between answer and timeout would choose at random, so one run could pass by chance
				run(t, func(l *local) {
					l.until("\r\n\r\n")
					l.Write(hints)
					time.Sleep(test.came)
					if test.request == waiting {
						l.Write("HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n")
					} else {
						l.until("hello")
						l.Write(ok)
					}
					l.ended()
				}, func(b *fixture) {
					in, c := b.inbound(test.request)
					slow := true
					c.onWrite(func() {
						if slow {
							slow = false
							time.Sleep(test.taken)
						}
					})
					out := b.d.Capture(t.Context(), in)
					synctest.Wait()
					b.want("answer", c.answer(), test.want)
					if late := test.want == hints; late != (code(out) == relay.CodeLocalTimeout) {
						b.t.Errorf("code %q", code(out))
					}
				})
			}
		})
	}
}
