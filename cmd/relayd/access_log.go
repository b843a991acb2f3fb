package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"relay/server"
)

// accessLog writes one JSON line for each ended request of a caller. A request never waits for the log; see
// type output.
type accessLog struct {
	out    *output
	shared bool   // lines go to stdout, to which other parts of relayd also write
	stop   func() // ends the reopening of the file at signals
}

// accessLine is one line of the access log.
type accessLine struct {
	Time     time.Time `json:"time"`  // of the first byte of the request
	Alias    string    `json:"alias"` // label of the alias host; "" = unknown, or not the host of an alias
	From     string    `json:"from"`
	TLS      bool      `json:"tls"`
	Method   string    `json:"method"`
	Path     string    `json:"path"`   // without query
	Status   int       `json:"status"` // 0 = the caller got no response
	Code     string    `json:"code,omitempty"`
	Event    string    `json:"event,omitempty"`
	Duration float64   `json:"duration_ms"`
}

// newAccessLog opens the access log that the setting names; nil = off.
func newAccessLog(path string, stdout io.Writer, registry prometheus.Registerer, log *slog.Logger) (*accessLog, error) {
	l := &accessLog{stop: func() {}}
	registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "relay_access_log_dropped_total", Help: "Lines of the access log that were not written.",
	}, func() float64 { return float64(l.out.lost()) }))
	if path == off || path == "" {
		return nil, nil
	}
	to := stdout
	if path != "stdout" {
		file := &logFile{path: path}
		if err := file.openAtStart(); err != nil {
			return nil, err
		}
		to, l.stop = file, file.reopenAtSignals(log)
	} else if l.out, l.shared = stdout.(*output); l.shared {
		return l, nil
	}
	l.out = newOutput(to)
	l.out.told = func(lines int64, err error) {
		log.Warn(notWritten(lines), "output", "access log", "err", err)
	}
	l.out.start()
	return l, nil
}

// blocked reports whether lines cannot be written at the moment.
func (l *accessLog) blocked() bool { return l != nil && l.out.blocked() }

// close waits until the queued lines are written, for a bounded time.
func (l *accessLog) close() {
	if l == nil {
		return
	}
	l.stop()
	if !l.shared {
		l.out.close()
	}
}

// logFile is a file to which lines are appended. It is opened again after a log rotation has moved it.
type logFile struct {
	path string
	mu   sync.Mutex
	file *os.File // nil = not open yet
}

// openAtStart opens the file, so a wrong path is an error at the start. A named pipe is opened only for the
// first line, because opening it waits for a reader.
func (f *logFile) openAtStart() (err error) {
	if info, serr := os.Stat(f.path); serr == nil && info.Mode()&os.ModeNamedPipe != 0 {
		return nil
	}
	f.file, err = f.open()
	return err
}

func (f *logFile) open() (*os.File, error) {
	return os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
}

// Write appends lines to the file. It opens the file first if it is not open yet.
func (f *logFile) Write(text []byte) (n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		if f.file, err = f.open(); err != nil {
			f.file = nil
			return 0, err
		}
	}
	return f.file.Write(text)
}

// reopen opens the configured path again. If that fails, lines still go to the old file.
func (f *logFile) reopen() error {
	next, err := f.open()
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file != nil {
		_ = f.file.Close()
	}
	f.file = next
	return nil
}

// reopenAtSignals opens the file again at each of reopenSignals, until stop is called.
func (f *logFile) reopenAtSignals(log *slog.Logger) (stop func()) {
	if len(reopenSignals) == 0 {
		return func() {}
	}
	signals, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, reopenSignals...)
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-signals:
				if err := f.reopen(); err != nil {
					log.Warn("the access log cannot be opened again", "err", err)
				}
			}
		}
	}()
	return sync.OnceFunc(func() { signal.Stop(signals); close(ended) })
}

// add logs a request.
func (l *accessLog) add(a server.Access) {
	line := accessLine{
		Time: a.Arrived, Alias: a.Alias, From: a.From.String(), TLS: a.TLS, Method: a.Method, Path: a.Path,
		Status: a.Status, Code: a.Code, Duration: float64(time.Since(a.Arrived).Microseconds()) / 1000,
	}
	if !a.Event.IsZero() {
		line.Event = a.Event.String()
	}
	text, _ := json.Marshal(line) // encoding texts and numbers cannot fail
	_, _ = l.out.Write(append(text, '\n'))
}
