package link

import (
	"reflect"
	"time"
	"unsafe"
)

// drain frees the goroutines of x/crypto that read a connection which has ended. They pass packets to
// its mux through a channel with 16 places. A mux that has ended because of a packet, or of a refused
// login, takes no more packets, so the reader waits forever and keeps them: up to 4 MiB for each
// connection of a peer that provokes this. drain takes the remaining packets until the reader finds
// the socket closed.
//
// x/crypto does not export that channel, so drain finds the field by its name. A version without the
// field is not drained, and TestPacketsBehindTheEnd fails.
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

// packetsOf returns the channel of packets below a connection of x/crypto; nil = it has none.
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
