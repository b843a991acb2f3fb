package server

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// What became of a certificate that was not in memory, as metrics name it.
const (
	certIssued  = "issued"
	certLoaded  = "loaded" // from the folder
	certFailed  = "failed"
	certRefused = "refused" // no room in the week's budget
)

func acmeMetrics(reg prometheus.Registerer, log *slog.Logger) byLabel {
	vec := counters("relay_acme_certificates_total", "Certificates that were asked for and not in memory, by what became of that.", "result")
	if reg != nil {
		if err := reg.Register(vec); err != nil {
			log.Warn("register metrics of certificates", "err", err)
		}
	}
	met := byLabel{}
	for _, r := range []string{certIssued, certLoaded, certFailed, certRefused, codeOther} {
		met[r] = vec.WithLabelValues(r)
	}
	return met
}

// zapLogger is what certmagic writes its log to: ours. Its steps are debug lines.
func zapLogger(log *slog.Logger) *zap.Logger {
	return zap.New(zapCore{log: log.With("by", "certmagic")})
}

// zapCore is a zapcore.Core above slog.
type zapCore struct{ log *slog.Logger }

func slogLevel(l zapcore.Level) slog.Level {
	switch {
	case l >= zapcore.ErrorLevel:
		return slog.LevelError
	case l == zapcore.WarnLevel:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// Enabled is part of zapcore.Core.
func (c zapCore) Enabled(l zapcore.Level) bool {
	return c.log.Enabled(context.Background(), slogLevel(l))
}

// With is part of zapcore.Core.
func (c zapCore) With(fields []zapcore.Field) zapcore.Core {
	return zapCore{log: c.log.With(attrs(fields)...)}
}

// Check is part of zapcore.Core.
func (c zapCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write is part of zapcore.Core.
func (c zapCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	c.log.Log(context.Background(), slogLevel(e.Level), e.Message, attrs(fields)...)
	return nil
}

// Sync is part of zapcore.Core.
func (c zapCore) Sync() error { return nil }

func attrs(fields []zapcore.Field) []any {
	enc := zapcore.NewMapObjectEncoder()
	list := make([]any, 0, len(fields))
	for _, f := range fields {
		f.AddTo(enc)
		if v, ok := enc.Fields[f.Key]; ok {
			list = append(list, slog.Any(f.Key, v))
		}
	}
	return list
}
