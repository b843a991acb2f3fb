package server

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"relay/relaytest"
)

// Frame types and flags (RFC 9113, section 6) that the tests use.
const (
	frameData, frameHeaders, frameReset, frameSettings, frameWindow = 0, 1, 3, 4, 8

	endStream, endHeaders = 1, 4
)

// h2Viewer is an HTTP/2 client that sends exactly the frames of the test, and reads all frames of the
// server.
type h2Viewer struct {
	t      *testing.T
	c      net.Conn
	resets chan uint32 // ids of the streams that the server has reset
	ended  chan uint32 // ids of the streams that ended without a reset
}

// viewH2 connects an h2Viewer in memory; window is the initial flow control window of each stream.
func viewH2(t *testing.T, ln *handoff, cfg *tls.Config, window uint32) *h2Viewer {
	t.Helper()
	mine, theirs := net.Pipe()
	ln.deliver(theirs, nil)
	cfg = cfg.Clone()
	cfg.ServerName, cfg.NextProtos = "relay.test", []string{"h2"}
	v := &h2Viewer{t: t, c: tls.Client(mine, cfg), resets: make(chan uint32, 200), ended: make(chan uint32, 200)}
	send(t, v.c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	v.frame(frameSettings, 0, 0, binary.BigEndian.AppendUint32([]byte{0, 4}, window))
	go v.read()
	return v
}

func (v *h2Viewer) frame(kind, flags byte, stream uint32, payload []byte) {
	v.t.Helper()
	b := append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind)), flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	send(v.t, v.c, string(append(b, payload...)))
}

// get requests a path. It encodes the fields with the static table of HPACK (RFC 7541).
func (v *h2Viewer) get(stream uint32, path string) {
	v.t.Helper()
	const host = "relay.test"
	fields := "\x82\x87\x04" + string(rune(len(path))) + path + "\x01" + string(rune(len(host))) + host
	v.frame(frameHeaders, endStream|endHeaders, stream, []byte(fields))
}

func (v *h2Viewer) read() {
	for head := make([]byte, 9); ; {
		if _, err := io.ReadFull(v.c, head); err != nil {
			return
		}
		n := int64(binary.BigEndian.Uint32(head) >> 8)
		if _, err := io.CopyN(io.Discard, v.c, n); err != nil {
			return
		}
		stream := binary.BigEndian.Uint32(head[5:])
		switch {
		case head[3] == frameReset:
			v.resets <- stream
		case head[3] == frameData && head[4]&endStream != 0:
			v.ended <- stream
		}
	}
}

// serveH2 starts a server with the base handler. client is a TLS configuration that accepts the server's
// certificate, and end stops the server.
func serveH2(t *testing.T, base http.HandlerFunc) (ln *handoff, client *tls.Config, end func()) {
	t.Helper()
	o := testOptions(t, &upstream{})
	o.Base = base
	cert, key := relaytest.WriteCertificate(t, t.TempDir(), "relay.test")
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	s, ln := New(o), newHandoff()
	done := make(chan error, 1)
	go func() { done <- s.ServeTLS(ln, &tls.Config{Certificates: []tls.Certificate{pair}}) }()
	return ln, &tls.Config{InsecureSkipVerify: true}, func() { stop(t, s, done) }
}

// TestViewerWithoutWindow: if an HTTP/2 viewer opens no flow control window, all three streams of the viewer
// are reset. The write of a large answer fails after 30 to 45 s.
func TestViewerWithoutWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed := make(chan error, 1)
		ln, cfg, end := serveH2(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/large" {
				_, err := io.WriteString(w, strings.Repeat("x", 1<<20))
				failed <- err
				return
			}
			_, _ = io.WriteString(w, "small: written behind the handler")
		})
		v, begun := viewH2(t, ln, cfg, 0), time.Now()
		v.get(1, "/large")
		v.get(3, "/small")
		v.get(5, "/healthz")
		for range 3 {
			<-v.resets
		}
		if err, took := <-failed, time.Since(begun); err == nil || took > 45*time.Second || took < 30*time.Second {
			t.Errorf("the large answer ended with %v after %v", err, took)
		}
		_ = v.c.Close()
		end()
	})
}

// TestSlowViewerOverHTTP2: a viewer that reads 64 KiB every 20 s, and a stream with pauses of 10 minutes, are
// not cut.
func TestSlowViewerOverHTTP2(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed := make(chan error, 2)
		ln, cfg, end := serveH2(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/large" {
				_, err := io.WriteString(w, strings.Repeat("x", 1<<20))
				failed <- err
				return
			}
			var errs []error
			for range 3 {
				_, err := io.WriteString(w, ": still there\n\n")
				errs = append(errs, err, http.NewResponseController(w).Flush())
				time.Sleep(10 * time.Minute)
			}
			failed <- errors.Join(errs...)
		})
		v := viewH2(t, ln, cfg, 64<<10)
		v.get(1, "/stream")
		v.get(3, "/large")
		// The viewer lets the server send another 64 KiB every 20 s, which is less than the stall time of 30
		// s.
		for range 16 {
			time.Sleep(20 * time.Second)
			for _, stream := range []uint32{0, 3} {
				v.frame(frameWindow, 0, stream, binary.BigEndian.AppendUint32(nil, 64<<10))
			}
		}
		for range 2 {
			if err := <-failed; err != nil {
				t.Error(err)
			}
			<-v.ended
		}
		_ = v.c.Close()
		end()
	})
}
