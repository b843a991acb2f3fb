package link

import (
	"reflect"
	"time"
	"unsafe"
)

// endReader ends the goroutine of x/crypto that reads a connection, the reader, after the end of that
// connection. The reader passes packets to the mux through a channel with 16 places. If the mux has
// ended because of an invalid packet or a refused login, it takes no more packets. The reader then waits
// forever and holds up to 4 MiB of packets, which a malicious peer can cause on each connection. endReader
// takes the remaining packets until the reader finds the socket closed.
//
// x/crypto does not export that channel, so endReader finds the field by its name. With a version that has
// no such field, endReader does nothing, and TestPacketsBehindTheEnd fails.
func endReader(conn any) {
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
			// The reader of the connection has ended or is about to end.
			return
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
