package relay_test

import (
	"testing"
	"time"

	"relay"
)

func TestDurations(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for in, want := range map[string]time.Duration{
		"30d": 30 * day, "0d": 0, "7d12h": 7*day + 12*time.Hour, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "250ms": 250 * time.Millisecond,
	} {
		got, err := relay.ParseDuration(in)
		if err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", in, got, err, want)
		}
		back, err := relay.ParseDuration(relay.FormatDuration(got))
		if err != nil || back != want {
			t.Errorf("%q written as %q reads as %v, %v", in, relay.FormatDuration(got), back, err)
		}
	}
	for _, bad := range []string{"", "d", "-1d", "30", "-5s", "1d-2h", "1.5d", "99999999d", "5 m", "65535d2000000h", "1d9223372036s"} {
		if d, err := relay.ParseDuration(bad); err == nil {
			t.Errorf("ParseDuration(%q) = %v; want an error", bad, d)
		}
	}
	for d, want := range map[time.Duration]string{30 * day: "30d", time.Hour: "1h", 15 * time.Minute: "15m", 90 * time.Second: "1m30s", 5 * time.Second: "5s"} {
		if got := relay.FormatDuration(d); got != want {
			t.Errorf("FormatDuration(%v) = %q; want %q", d, got, want)
		}
	}
}
