package certs

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"go.uber.org/zap/zapcore"
)

// slogCore writes the log of certmagic to a handler of log/slog, in the form of all other lines: a
// message and its fields. Level info becomes debug, because certmagic logs each step of an order.
type slogCore struct{ to slog.Handler }

// Enabled implements zapcore.Core.
func (c slogCore) Enabled(l zapcore.Level) bool {
	return c.to.Enabled(context.Background(), slogLevel(l))
}

// With implements zapcore.Core.
func (c slogCore) With(fields []zapcore.Field) zapcore.Core {
	return slogCore{c.to.WithAttrs(slogAttrs(fields))}
}

// Check implements zapcore.Core.
func (c slogCore) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(e.Level) {
		return to
	}
	return to.AddCore(e, c)
}

// Write implements zapcore.Core.
func (c slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	r := slog.NewRecord(e.Time, slogLevel(e.Level), e.Message, 0)
	r.AddAttrs(slogAttrs(fields)...)
	return c.to.Handle(context.Background(), r)
}

// Sync implements zapcore.Core.
func (slogCore) Sync() error { return nil }

func slogLevel(l zapcore.Level) slog.Level {
	switch {
	case l <= zapcore.InfoLevel:
		return slog.LevelDebug
	case l == zapcore.WarnLevel:
		return slog.LevelWarn
	}
	return slog.LevelError
}

func slogAttrs(fields []zapcore.Field) (attrs []slog.Attr) {
	for _, f := range fields {
		// One field can add several values, such as an error and its causes.
		values := zapcore.NewMapObjectEncoder()
		f.AddTo(values)
		for _, name := range slices.Sorted(maps.Keys(values.Fields)) {
			attrs = append(attrs, slog.Any(name, values.Fields[name]))
		}
	}
	return attrs
}
