package certs

import (
	"bytes"
	"errors"
	"log/slog"
	"regexp"
	"testing"
	"time"

	"go.uber.org/zap"
)

// TestLinesOfCertmagic: the fields of a line of certmagic become attributes of the log line, and a line of
// level info becomes debug.
func TestLinesOfCertmagic(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelInfo})).With("component", "certmagic")
	from := zap.New(slogCore{log.Handler()}).Named("obtain").With(zap.String("identifier", "a.test\nlevel=ERROR"))
	from.Info("obtaining certificate")
	from.Warn("will retry", zap.Error(errors.New("no\nanswer")), zap.Int("attempt", 2), zap.Duration("retrying_in", time.Minute), zap.Strings("names", []string{"a", "b"}))
	from.Error("gave up")
	want := `^time=\S+ level=WARN msg="will retry" component=certmagic identifier="a\.test\\nlevel=ERROR" error="no\\nanswer" attempt=2 retrying_in=1m0s names="\[a b\]"
time=\S+ level=ERROR msg="gave up" component=certmagic identifier="a\.test\\nlevel=ERROR"
$`
	if got := text.String(); !regexp.MustCompile(want).MatchString(got) {
		t.Errorf("got %s", got)
	}
}
