package sshgate

import (
	"encoding/binary"
	"io"
	"reflect"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/crypto/ssh"
)

// packets has the methods of the layer of x/crypto that sends and receives packets, below the mux of channels.
type packets interface {
	Close() error
	readPacket() ([]byte, error)
	writePacket([]byte) error
}

// rawPackets returns the packet layer of a logged-in client. Tests send malformed messages through it,
// because ssh.Client sends none.
func rawPackets(c *ssh.Client) packets {
	field := reflect.ValueOf(c.Conn).Elem().FieldByName("mux").Elem().FieldByName("conn")
	return *(*packets)(unsafe.Pointer(field.UnsafeAddr()))
}

// Numbers of messages (RFC 4250, section 4.1.2).
const (
	msgGlobalRequest, msgRequestSuccess, msgRequestFailure                   = 80, 81, 82
	msgOpen, msgOpenConfirm, msgAdjust, msgData, msgExtended, msgEOF, msgEnd = 90, 91, 93, 94, 95, 96, 97
	msgChannelRequest, msgChannelSuccess                                     = 98, 99
)

// message returns a packet with a message number and fields: an int is sent as a uint32, strings and byte
// slices with their length, and a bool as one byte.
func message(number byte, fields ...any) []byte {
	p := []byte{number}
	for _, f := range fields {
		switch f := f.(type) {
		case int:
			p = binary.BigEndian.AppendUint32(p, uint32(f))
		case string:
			p = append(binary.BigEndian.AppendUint32(p, uint32(len(f))), f...)
		case []byte:
			p = append(binary.BigEndian.AppendUint32(p, uint32(len(f))), f...)
		case bool:
			p = append(p, 0)
			if f {
				p[len(p)-1] = 1
			}
		}
	}
	return p
}

// TestHostilePeers: hostile messages of a logged-in client either end its connection or take no memory, and
// the tunnel of another account works all the time. The channel of each peer is the first of its connection,
// so its number is 0.
func TestHostilePeers(t *testing.T) {
	b := newFixture(t, func(o *Options) { o.IdleClose = time.Hour })
	well := b.mustDial(b.newKey("bob", 2))
	accept(t, well, func(_ forwardedOpen, n ssh.NewChannel) {
		ch, reqs, err := n.Accept()
		if err != nil {
			return
		}
		go ssh.DiscardRequests(reqs)
		_, _ = ch.Read(make([]byte, 8))
		_, _ = ch.Write([]byte("hello you"))
		_ = ch.CloseWrite()
	})
	forwards(t, well, "well", 80)
	piece := make([]byte, 32<<10)
	const ends, lives, either = "ends", "lives", "either"
	for _, x := range []struct {
		name  string
		times int // how often the packets are sent
		send  [][]byte
		then  []byte // sent after the server has read the end of the channel
		end   string // the expected state of the connection: ends, lives, or either if the test client may end it
	}{
		{"extended data", 1, [][]byte{message(msgExtended, 0, 1, "x")}, nil, ends},
		{"extended data of an unknown type", 512, [][]byte{message(msgExtended, 0, 7, piece)}, nil, lives},
		{"data after EOF", 1, [][]byte{message(msgEOF, 0)}, message(msgData, 0, "x"), ends},
		{"data after CLOSE", 1, [][]byte{message(msgEnd, 0), message(msgData, 0, "x")}, nil, ends},
		{"CLOSE twice", 1, [][]byte{message(msgEnd, 0), message(msgEnd, 0)}, nil, ends},
		{"EOF many times", 1000, [][]byte{message(msgEOF, 0)}, nil, lives},
		{"more data than the window", 65, [][]byte{message(msgData, 0, piece)}, nil, ends},
		{"data for a channel that is not there", 1, [][]byte{message(msgData, 77, "x")}, nil, ends},
		{"a window beyond 4 GiB", 2, [][]byte{message(msgAdjust, 0, 0x7fffffff), message(msgAdjust, 0, 0x7fffffff)}, nil, ends},
		{"a second confirmation", 1, [][]byte{message(msgOpenConfirm, 0, 0, 1<<20, 1<<15)}, nil, ends},
		{"replies to nothing", 10_000, [][]byte{message(msgRequestSuccess), message(msgRequestFailure), message(msgChannelSuccess, 0)}, nil, lives},
		{"requests on a channel", 10_000, [][]byte{message(msgChannelRequest, 0, "x@relay", false, piece[:1000])}, nil, lives},
		{"global requests of no meaning", 10_000, [][]byte{message(msgGlobalRequest, "x@relay", false, piece[:1000])}, nil, lives},
		{"opens with packets of no size", 8, [][]byte{message(msgOpen, "session", 1, 1<<20, 0)}, nil, either},
		{"opens of unknown types", 8, [][]byte{message(msgOpen, "x@relay", 1, 1<<20, 1<<15)}, nil, either},
		{"half a message", 1, [][]byte{{msgChannelRequest, 0, 0}}, nil, ends},
		{"an unknown message", 1, [][]byte{{200}}, nil, ends},
		{"packets behind the end", 100, [][]byte{{200}}, nil, ends},
	} {
		t.Run(x.name, func(t *testing.T) {
			before := heapMiB()
			client, c := b.met()
			for _, other := range b.srv.all() { // met may have returned a connection of another client as c
				if other.remote.String() == client.LocalAddr().String() {
					c = other
				}
			}
			accept(t, client, func(_ forwardedOpen, n ssh.NewChannel) {
				if _, reqs, err := n.Accept(); err == nil {
					go ssh.DiscardRequests(reqs)
				}
			})
			forwards(t, client, "a", 80)
			ch := open(t, b.online("a"))
			raw := rawPackets(client)
			for range x.times {
				for _, p := range x.send {
					_ = raw.writePacket(p)
				}
			}
			if x.then != nil {
				if n, err := ch.Read(make([]byte, 1)); n != 0 || err != io.EOF {
					t.Errorf("%d, %v", n, err)
				}
				_ = raw.writePacket(x.then)
			}
			ask(t, b.online("well"))
			switch _, _, err := client.SendRequest("x", true, nil); {
			case x.end == lives && err != nil:
				t.Errorf("the connection has ended: %v", err)
			case x.end == ends:
				closed(t, client)
			}
			if more := heapMiB() - before; more > 32 {
				t.Errorf("%.0f MiB more", more)
			}
			_ = client.Close()
			_ = ch.Close()
			select {
			case <-c.Done():
			case <-time.After(30 * time.Second):
				t.Error("the connection does not end")
			}
		})
	}
	eventually(t, 30*time.Second, "no call is left in the SSH library", func() bool { return b.srv.work.Left() == 0 })
}
