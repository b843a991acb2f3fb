package client

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Echoed is a request that the local server of relay up --echo has answered.
type Echoed struct {
	Method, Target string
	Body           []byte // the first EchoedBody bytes at most
	Size           int64  // size of the whole body
}

// EchoedBody is the number of bytes of a body that an Echoed holds.
const EchoedBody = 8 << 10

// StartEcho starts the built-in local server of relay up --echo on a free loopback port. It answers every request
// with status 200 and the body and content type of the request, and calls the function came with each request
// before the end of the answer. The result stop ends the server.
func StartEcho(came func(Echoed)) (target Target, stop func(), err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return Target{}, func() {}, err
	}
	echo := func(w http.ResponseWriter, r *http.Request) {
		// The server answers while it reads a request, because a large request may not fit into memory.
		_ = http.NewResponseController(w).EnableFullDuplex()
		if r.ProtoAtLeast(1, 1) && strings.EqualFold(r.Header.Get("Expect"), "100-continue") {
			// net/http sends it at the first read of the body, but not after the header of the answer.
			w.WriteHeader(http.StatusContinue)
		}
		w.Header()["Content-Type"] = r.Header["Content-Type"] // nil keeps net/http from guessing one
		if r.ContentLength >= 0 {
			w.Header().Set("Content-Length", strconv.FormatInt(r.ContentLength, 10))
		}
		w.WriteHeader(http.StatusOK)
		e := Echoed{Method: r.Method, Target: r.RequestURI}
		var start bytes.Buffer
		e.Size, _ = io.CopyN(w, io.TeeReader(r.Body, &start), EchoedBody)
		// net/http sends the end of the answer when this handler returns, so came is called before the sender of
		// the request gets it.
		more, _ := io.Copy(w, r.Body)
		e.Body, e.Size = start.Bytes(), e.Size+more
		came(e)
	}
	server := &http.Server{Handler: http.HandlerFunc(echo), ReadHeaderTimeout: 10 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(ln) })
	stop = func() {
		_ = server.Close()
		serving.Wait()
	}
	target, err = PortTarget(ln.Addr().(*net.TCPAddr).Port)
	return target, stop, err
}
