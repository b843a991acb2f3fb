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

	"github.com/prometheus/client_golang/prometheus"

	"relay/record"
	"relay/sockets"
)

// logger returns a logger with the form and level of the settings.
func (c *program) logger(cfg Config) *slog.Logger {
	_ = c.level.UnmarshalText([]byte(cfg.LogLevel)) // cannot fail: the setting accepts only names of levels
	return slog.New(logHandler(cfg, io.MultiWriter(c.stderr, &c.recent), &c.level))
}

func logHandler(cfg Config, w io.Writer, level slog.Leveler) slog.Handler {
	opt := &slog.HandlerOptions{Level: level}
	if cfg.LogFormat == "json" {
		return slog.NewJSONHandler(w, opt)
	}
	return slog.NewTextHandler(w, opt)
}

// useOutputs puts a queue in front of stdout and stderr, because a pipe without a reader must not block or
// end the server. Only serve uses it. Other commands end if their output cannot be written.
func (c *program) useOutputs(cfg Config) {
	survivePipes()
	c.errs, c.out = newOutput(c.stderr), newOutput(c.stdout)
	c.errs.note = func(lines int64) []byte {
		var b bytes.Buffer
		slog.New(logHandler(cfg, &b, slog.LevelWarn)).Warn(notWritten(lines), "output", "stderr")
		return b.Bytes()
	}
	c.errs.start()
	c.stderr = c.errs
	log := c.logger(cfg)
	c.out.told = func(lines int64, err error) {
		log.Warn(notWritten(lines), "output", "stdout", "err", err)
	}
	c.stdout = c.out.start()
	slog.SetDefault(log) // this also redirects the standard library's log, for packages that use it
}

func notWritten(lines int64) string {
	return record.Count(int(lines), "line was", "lines were") + " not written"
}

// closeOutputs waits until the queued lines are written, for a bounded time.
func (c *program) closeOutputs() {
	var outputs sync.WaitGroup // the two outputs are closed at the same time, each with its own time limit
	outputs.Go(c.errs.close)
	outputs.Go(c.out.close)
	outputs.Wait()
}

// registerOutputs adds the metrics of stdout and stderr.
func (c *program) registerOutputs(registry prometheus.Registerer) {
	for name, o := range map[string]*output{"stderr": c.errs, "stdout": c.out} {
		label := prometheus.Labels{"output": name}
		registry.MustRegister(
			prometheus.NewCounterFunc(prometheus.CounterOpts{
				Name: "relay_log_dropped_total", Help: "Lines that were not written.", ConstLabels: label,
			}, func() float64 { return float64(o.lost()) }),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "relay_log_blocked", Help: "1 while lines cannot be written.", ConstLabels: label,
			}, func() float64 {
				if o.blocked() {
					return 1
				}
				return 0
			}),
		)
	}
}

// toggleDebug switches the log level to debug, or back to the level of the settings.
func (a *app) toggleDebug() {
	level, own := slog.LevelDebug, slog.LevelDebug
	_ = own.UnmarshalText([]byte(a.cfg.LogLevel))
	if a.program.level.Level() == level {
		level = own
	}
	a.program.level.Set(level)
	a.log.Log(context.Background(), max(level, own), "log level changed by a signal", "level", level.String())
}

// watchLevelSignal toggles the log level at each SIGUSR2 until ctx ends. Some systems do not have this
// signal.
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

// recentBytes is the number of bytes of the log that a process keeps in memory.
const recentBytes = 256 << 10

// recentLines remembers the last lines of the log.
type recentLines struct {
	mu    sync.Mutex
	lines [][]byte
	bytes int
}

// Write stores one line; slog handlers write one line per call.
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

// withLog serves the recent log lines at /debug/log of the admin handler, to clients on this machine only,
// because the lines name aliases and addresses.
func (a *app) withLog(admin http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", admin)
	mux.HandleFunc("GET /debug/log", func(w http.ResponseWriter, r *http.Request) {
		if !isLoopback(r.RemoteAddr) || !isLoopback(r.Host) && !sockets.IsLoopback(r.Host) {
			http.Error(w, "this log can be read on this machine only", http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write(a.program.recent.text())
	})
	return mux
}
