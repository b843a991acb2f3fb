package main

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"relay"
	"relay/server"
	"relay/wire"
)

// Bounds of the access log: its memory is at most about accessLines × maxAccessPath.
const (
	accessLines   = 4096 // lines that wait to be written; more are dropped and counted
	maxAccessPath = 512  // bytes of a path that are logged

	accessLogCloseTimeout = 5 * time.Second // for writing the queued lines at a stop
)

// accessLog writes one JSON line for each request of a caller that has ended. It never makes a
// request wait: a line that finds the buffer full is dropped and counted.
type accessLog struct {
	path    string // "stdout" or a file
	stdout  io.Writer
	log     *slog.Logger
	lines   chan []byte   // closed when no more come
	ended   chan struct{} // closed when all are written
	dropped atomic.Int64
}

// accessLine is one line. It holds nothing that is usually secret: no query, no header, no
// body.
type accessLine struct {
	Time     time.Time `json:"time"` // of the first byte of the request
	Alias    string    `json:"alias"`
	From     string    `json:"from"`
	TLS      bool      `json:"tls"`
	Method   string    `json:"method"`
	Path     string    `json:"path"`   // without query
	Status   int       `json:"status"` // 0 = the caller got no response
	Code     string    `json:"code,omitempty"`
	Event    string    `json:"event,omitempty"`
	Duration float64   `json:"duration_ms"`
}

// newAccessLog opens the access log of a setting; nil = off.
func newAccessLog(path string, stdout io.Writer, registry prometheus.Registerer, log *slog.Logger) (*accessLog, error) {
	l := &accessLog{path: path, stdout: stdout, log: log}
	registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "relay_access_log_dropped_total", Help: "Lines of the access log that were not written.",
	}, func() float64 { return float64(l.dropped.Load()) }))
	if path == off || path == "" {
		return nil, nil
	}
	out, err := l.open()
	if err != nil {
		return nil, err
	}
	l.lines, l.ended = make(chan []byte, accessLines), make(chan struct{})
	reopen := make(chan os.Signal, 1)
	if path != "stdout" && len(reopenSignals) > 0 {
		signal.Notify(reopen, reopenSignals...)
	}
	go func() {
		defer signal.Stop(reopen)
		l.write(out, reopen)
	}()
	return l, nil
}

// open opens the place that the lines go to.
func (l *accessLog) open() (io.WriteCloser, error) {
	if l.path == "stdout" {
		return struct {
			io.Writer
			io.Closer
		}{l.stdout, io.NopCloser(nil)}, nil
	}
	return os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
}

// write writes lines to out until there are no more, and opens the file again at each
// signal: whatever rotates logs has moved it away.
func (l *accessLog) write(out io.WriteCloser, reopen <-chan os.Signal) {
	defer close(l.ended)
	defer func() { _ = out.Close() }()
	failing := false
	for {
		select {
		case line, more := <-l.lines:
			if !more {
				return
			}
			_, err := out.Write(line)
			if err != nil {
				l.dropped.Add(1)
				if !failing {
					l.log.Warn("the access log cannot be written", "err", err)
				}
			}
			failing = err != nil
		case <-reopen:
			next, err := l.open()
			if err != nil {
				l.log.Warn("the access log cannot be opened again", "err", err)
				continue
			}
			_ = out.Close()
			out = next
		}
	}
}

// close writes the queued lines. It gives up after accessLogCloseTimeout, because the reader of
// stdout or of a named pipe may have stopped reading. The caller has ended all requests before.
func (l *accessLog) close() {
	if l == nil {
		return
	}
	close(l.lines)
	select {
	case <-l.ended:
	case <-time.After(accessLogCloseTimeout):
		l.log.Warn("the access log takes no lines; the last ones are not written", "lines", len(l.lines))
	}
}

// add logs a request that ended with o.
func (l *accessLog) add(in *relay.Inbound, start time.Time, o relay.Outcome) {
	line := accessLine{
		Time: in.Arrived, Alias: in.Alias.Name, From: in.From.Addr().String(), TLS: in.TLS,
		Status: o.Status, Duration: float64(time.Since(start).Microseconds()) / 1000,
	}
	line.Method, line.Path = methodAndPath(in.Head)
	event := o.Event
	if a := o.Answer; a != nil {
		event, line.Status = a.Event, a.Status
		if a.Error != nil {
			line.Code, line.Status = a.Error.Code, relay.Status(a.Error.Code)
		}
	}
	if event != (relay.ID{}) {
		line.Event = event.String()
	}
	text, err := json.Marshal(line)
	if err != nil {
		l.dropped.Add(1)
		return
	}
	select {
	case l.lines <- append(text, '\n'):
	default:
		l.dropped.Add(1)
	}
}

// methodAndPath reads the first line of a head. The authority of a target in absolute form may
// hold a password, and is no part of the path.
func methodAndPath(head []byte) (method, path string) {
	m, target, _ := wire.StartLine(head)
	path = string(wire.ShownTarget(target))
	if end := strings.IndexAny(path, "?#"); end >= 0 {
		path = cmp.Or(path[:end], "/")
	}
	return string(m[:min(len(m), 32)]), path[:min(len(path), maxAccessPath)]
}

// loggedCapture is the capture of package delivery with an access log.
type loggedCapture struct {
	server.Capturer
	log *accessLog
}

// Capture runs one request and logs it.
func (c loggedCapture) Capture(ctx context.Context, in *relay.Inbound) relay.Outcome {
	start := time.Now()
	o := c.Capturer.Capture(ctx, in)
	c.log.add(in, start, o)
	return o
}
