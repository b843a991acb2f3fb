package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Echo is the built-in local server of relay up --echo: it answers every request
// with 200, its own body and its own content type.
type Echo struct {
	server *http.Server
	port   int
	done   chan struct{}
}

// StartEcho listens on a free loopback port.
func StartEcho() (*Echo, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	e := &Echo{
		server: &http.Server{Handler: http.HandlerFunc(echo), ReadHeaderTimeout: 10 * time.Second},
		port:   ln.Addr().(*net.TCPAddr).Port,
		done:   make(chan struct{}),
	}
	go func() {
		defer close(e.done)
		if err := e.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			ln.Close()
		}
	}()
	return e, nil
}

// Target leads to the echo server.
func (e *Echo) Target() Target {
	t, _ := PortTarget(e.port)
	return t
}

// Close stops it and waits until it has stopped.
func (e *Echo) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if e.server.Shutdown(ctx) != nil {
		e.server.Close()
	}
	<-e.done
}

func echo(w http.ResponseWriter, r *http.Request) {
	// The answer begins before a large request has been read.
	_ = http.NewResponseController(w).EnableFullDuplex()
	w.Header()["Content-Type"] = r.Header["Content-Type"] // nil keeps net/http from guessing one
	if r.ContentLength >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(r.ContentLength, 10))
	}
	w.WriteHeader(http.StatusOK)
	_, _ = io.Copy(w, r.Body)
}
