package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync"

	"relay"
)

// logger returns a logger with the form and level of the settings.
func (c *program) logger(cfg Config) *slog.Logger {
	_ = c.level.UnmarshalText([]byte(cfg.LogLevel)) // one of the words of the setting
	opt := &slog.HandlerOptions{Level: &c.level}
	w := io.MultiWriter(c.stderr, &c.recent)
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opt))
	}
	return slog.New(slog.NewTextHandler(w, opt))
}

// toggleDebug switches the level of the log to debug, or back to that of the settings.
func (a *app) toggleDebug() {
	level, own := slog.LevelDebug, slog.LevelDebug
	_ = own.UnmarshalText([]byte(a.cfg.LogLevel))
	if a.program.level.Level() == level {
		level = own
	}
	a.program.level.Set(level)
	a.log.Log(context.Background(), max(level, own), "log level changed by a signal", "level", level.String())
}

// watchLevelSignal toggles the level of the log at each SIGUSR2, where there are such signals,
// until ctx ends.
func (a *app) watchLevelSignal(ctx context.Context) {
	signals := make(chan os.Signal, 1)
	if len(levelSignals) > 0 {
		signal.Notify(signals, levelSignals...)
	}
	defer signal.Stop(signals)
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
			a.toggleDebug()
		}
	}
}

// recentBytes is how much of the log a process remembers.
const recentBytes = 256 << 10

// recentLines remembers the last lines of the log.
type recentLines struct {
	mu    sync.Mutex
	lines [][]byte
	bytes int
}

// Write remembers one line, as handlers of slog write it.
func (r *recentLines) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := line[:min(len(line), recentBytes)]
	r.lines = append(r.lines, append([]byte(nil), kept...))
	for r.bytes += len(kept); r.bytes > recentBytes; r.lines = r.lines[1:] {
		r.bytes -= len(r.lines[0])
	}
	return len(line), nil
}

// text returns the lines, oldest first.
func (r *recentLines) text() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Join(r.lines, nil)
}

// withLog adds the recent lines of the log to the admin handler, at /debug/log, for people of
// this machine: the lines name aliases and addresses.
func (a *app) withLog(admin http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", admin)
	mux.HandleFunc("GET /debug/log", func(w http.ResponseWriter, r *http.Request) {
		if !isLoopback(r.RemoteAddr) || !isLoopback(r.Host) && !relay.IsLoopback(r.Host) {
			http.Error(w, "the log is for this machine only", http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write(a.program.recent.text())
	})
	return mux
}
