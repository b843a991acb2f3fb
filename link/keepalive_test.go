package link

import (
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// answers is a connection whose peer answers a global request when the test sends to the Go channel answer.
type answers struct {
	ssh.Conn
	asked  chan struct{}
	answer chan struct{}
}

func (a answers) SendRequest(string, bool, []byte) (bool, []byte, error) {
	a.asked <- struct{}{}
	<-a.answer
	return false, nil, nil
}

// TestPingIsNeverSwallowed: if Ping is called while an earlier ping waits for its answer, another ping is sent
// after that answer. When all are answered, Conn.pings is 0 again.
func TestPingIsNeverSwallowed(t *testing.T) {
	t.Parallel()
	own, _ := pair(t, Options{})
	a := answers{asked: make(chan struct{}), answer: make(chan struct{})}
	own.ssh = a
	// Ping would send nothing in a later round if Conn.pings were not 0 again.
	for range 3 {
		own.Ping()
		<-a.asked
		own.Ping()
		a.answer <- struct{}{}
		within(t, "the wait for the second ping", func() { <-a.asked })
		a.answer <- struct{}{}
		eventually(t, 30*time.Second, "answered", func() bool { return own.pings.Load() == 0 })
	}
}

// TestWatch: Watch goes on while the peer answers. If the peer is silent, it closes the connection.
func TestWatch(t *testing.T) {
	t.Parallel()
	own, _ := pair(t, Options{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		own.Watch(t.Context(), time.Millisecond, 20*time.Millisecond, 50)
	}()
	begun := own.Sock.Heard()
	eventually(t, 30*time.Second, "ten answers", func() bool {
		return own.Sock.Heard() > begun+int64(50*time.Millisecond)
	})
	select {
	case <-ended:
		t.Fatal("the watch has ended")
	default:
	}
	silent, _ := pair(t, Options{})
	silent.ssh = answers{asked: make(chan struct{}, 100), answer: make(chan struct{})}
	silent.Watch(t.Context(), time.Millisecond, time.Millisecond, 3)
	if cause := silent.Cause(); cause != Silent || silent.Context().Err() == nil {
		t.Errorf("a silent peer: %q, %v", cause, silent.Context().Err())
	}
}

// TestRoundTripSeesWhatCameBefore: RoundTrip does not return while a handler is busy. When it returns, the
// handlers have got all earlier channels and requests.
func TestRoundTripSeesWhatCameBefore(t *testing.T) {
	t.Parallel()
	late, entered := make(chan struct{}), make(chan struct{})
	var offered, asked atomic.Int32
	own, peer := pairWith(t, Options{}, Handlers{
		Channel: func(*Offer) { offered.Add(1) },
		Request: func(*Request) {
			if asked.Add(1) == 1 {
				close(entered)
				<-late
			}
		},
	})
	raw := packetsTo(peer)
	const each = 5
	for range each {
		_ = raw.writePacket(ssh.Marshal(struct {
			Type      string `sshtype:"80"`
			WantReply bool
		}{"x", false}))
	}
	<-entered
	for n := range uint32(each) {
		_ = raw.writePacket(ssh.Marshal(struct {
			Type                string `sshtype:"90"`
			Sender, Window, Max uint32
		}{"x", n, 1 << 20, 1 << 15}))
	}
	trip := make(chan error, 1)
	go func() { trip <- own.RoundTrip(t.Context()) }()
	select {
	case err := <-trip:
		t.Errorf("returned while a handler was late: %v", err)
		close(late)
	case <-time.After(50 * time.Millisecond):
		// A wrong RoundTrip would return within this time.
		close(late)
		if err := <-trip; err != nil || offered.Load() != each || asked.Load() != each {
			t.Errorf("%v, %d channels, %d requests", err, offered.Load(), asked.Load())
		}
	}
}
