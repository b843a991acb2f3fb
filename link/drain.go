package link

import (
	"reflect"
	"time"
	"unsafe"
)

// drain frees the goroutines of x/crypto that read a connection which has ended. They pass packets on
// to its mux through a channel of 16. A mux that has ended because of a packet, or a login that was
// refused, takes none of those behind it, so that the reader waits forever and keeps them: up to 4 MiB
// for each connection of a peer that does it on purpose. What is left is taken here, until the reader
// finds the socket closed.
//
// x/crypto shows nothing of this, so the field is found by its name. A version without it is not
// drained, and TestPacketsBehindTheEnd fails.
func drain(conn any) {
	incoming := packetsOf(conn)
	if incoming == nil {
		return
	}
	for {
		select {
		case _, ok := <-incoming:
			if !ok {
				return
			}
		case <-time.After(EndTime):
			return // its reader has ended, or is about to
		}
	}
}

// packetsOf returns the channel of packets below a connection of x/crypto; nil = there is none.
func packetsOf(conn any) <-chan []byte {
	v := reflect.ValueOf(conn)
	for _, name := range []string{"transport", "incoming"} {
		if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
			return nil
		}
		if v = v.Elem().FieldByName(name); !v.IsValid() {
			return nil
		}
		if v.Kind() == reflect.Interface {
			v = v.Elem()
		}
	}
	if v.Type() != reflect.TypeFor[chan []byte]() {
		return nil
	}
	return *(*chan []byte)(unsafe.Pointer(v.UnsafeAddr()))
}
