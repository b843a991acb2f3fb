package record_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/record"
)

// TestTimesOfListsHaveTheirZone: the line of an event in a list shows its arrival with the zone of this
// machine. The filter "since" reads that text as the same time.
func TestTimesOfListsHaveTheirZone(t *testing.T) {
	here := time.Local
	defer func() { time.Local = here }()
	e := replayed(t)
	ms := time.Date(2026, 11, 28, 15, 3, 52, 400e6, time.UTC).UnixMilli()
	for i := range 6 {
		e.ID[i] = byte(ms >> (8 * (5 - i)))
	}
	e.LastReceivedAt = time.Date(2026, 11, 29, 1, 0, 0, 0, time.UTC)
	for zone, want := range map[*time.Location]string{
		time.UTC: "2026-11-28T15:03:52Z", time.FixedZone("", -5*3600): "2026-11-28T10:03:52-05:00", time.FixedZone("JST", 9*3600): "2026-11-29T00:03:52+09:00",
	} {
		time.Local = zone
		whole := record.Of(e, relay.Site{}, time.Now())
		line := record.EventLine(&whole.Summary).String()
		shown, _, _ := strings.Cut(line, " ")
		if shown != want || !strings.Contains(record.EventText(whole), "received "+want+" from ") {
			t.Errorf("%s, want %s\n%s", line, want, record.EventText(whole))
		}
		f, err := record.ParseFilter(url.Values{"since": {shown}})
		if err != nil || !f.Since.Equal(e.ID.Time().Truncate(time.Second)) {
			t.Errorf("since %s is %v: %v", shown, f.Since, err)
		}
	}
}
