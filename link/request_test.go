package link

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"golang.org/x/crypto/ssh"
)

// TestDroppedPayloadIsFreed: the payload of a request is freed when its receiver drops it, although the
// request still exists.
func TestDroppedPayloadIsFreed(t *testing.T) {
	t.Parallel()
	payload := make([]byte, 256<<10)
	first := weak.Make(&payload[0])
	r := newRequest(&ssh.Request{Type: "x", Payload: payload, WantReply: true})
	if len(r.Payload) != len(payload) || !r.WantReply {
		t.Fatalf("the request has %d bytes", len(r.Payload))
	}
	r.Payload, payload = nil, nil
	eventually(t, 30*time.Second, "the payload to be freed", func() bool {
		runtime.GC()
		return first.Value() == nil
	})
	runtime.KeepAlive(r)
}
