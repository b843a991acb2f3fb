package client

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// StartEcho starts the built-in local server of relay up --echo on a free loopback port: it
// answers every request with 200, its own body and its own content type. stop ends it.
func StartEcho() (target Target, stop func(), err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return Target{}, func() {}, err
	}
	echo := func(w http.ResponseWriter, r *http.Request) {
		// The answer begins before a large request has been read.
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.Header()["Content-Type"] = r.Header["Content-Type"] // nil keeps net/http from guessing one
		if r.ContentLength >= 0 {
			w.Header().Set("Content-Length", strconv.FormatInt(r.ContentLength, 10))
		}
		w.WriteHeader(http.StatusOK)
		_, _ = io.Copy(w, r.Body)
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
