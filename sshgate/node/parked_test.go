package node

import (
	"testing"

	"relay/link"
)

// TestParkedBesideTheNextRequest: bytes of the next request may arrive before the message that the earlier
// request has ended. The next request keeps its slot until its own end.
func TestParkedBesideTheNextRequest(t *testing.T) {
	t.Parallel()
	tunnel := &slots{}
	b := &bridge{tunnel: tunnel, remote: &link.Channel{}}
	parkedAt := func(sent uint64) {
		b.request(nil, &link.Request{Type: parkedRequest, Payload: link.Marshal(parked{sent})})
	}
	for _, step := range []struct {
		what   string
		come   int
		parked uint64
		used   int
	}{
		{"a request", 100, 0, 1},
		{"its end", 0, 100, 0},
		{"the next one", 50, 0, 1},
		{"the end of the first again", 0, 100, 1},
		{"more of the next one", 10, 0, 1},
		{"its end", 0, 160, 0},
	} {
		if step.come > 0 && !b.use(step.come) {
			t.Fatalf("%s is refused", step.what)
		}
		if step.parked > 0 {
			parkedAt(step.parked)
		}
		if tunnel.used != step.used {
			t.Errorf("%s: %d slots are used, want %d", step.what, tunnel.used, step.used)
		}
	}
}
