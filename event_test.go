package relay_test

import (
	"testing"
	"time"

	"relay"
)

// TestLatencyIsTheSumOfWhatIsShown: the latency is the sum of all phases except Blocked, each truncated to
// the microsecond, both before and after Micros.
func TestLatencyIsTheSumOfWhatIsShown(t *testing.T) {
	t.Parallel()
	timing := relay.Timing{
		Blocked: 900 * time.Nanosecond, Connect: 1999 * time.Nanosecond, Send: 1999 * time.Nanosecond,
		Wait: 1999 * time.Nanosecond, Receive: 1999 * time.Nanosecond,
	}
	if got, want := timing.Latency(), 4*time.Microsecond; got != want {
		t.Errorf("latency %v, want %v", got, want)
	}
	if got, want := timing.Micros().Latency(), timing.Latency(); got != want {
		t.Errorf("latency %v of the cut phases, %v of the others", got, want)
	}
}
