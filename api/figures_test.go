package api_test

import (
	"testing"
	"time"

	"relay"
	"relay/record"
)

func TestFigures(t *testing.T) {
	t.Parallel()
	h, began := newFixture(t), time.Now()
	h.event("shop", nil)
	h.event("shop", func(e *relay.Event) { e.Attempts[0].Status = 503 })
	h.event("shop", queued)
	h.event("other", nil)
	for span, parts := range map[string]int{"": 120, "1m": 60, "90s": 90, "24h": 96, "7d": 56, "400d": 58} {
		query := "?span=" + span
		if span == "" {
			query = ""
		}
		f := decoded[record.Figures](h.get(h.asAlice, "/api/v1/aliases/shop/figures"+query).want(200))
		if len(f.Parts) != parts || f.To.Sub(f.From.Time).Milliseconds()-f.PartMs*int64(parts) > 1000 {
			t.Errorf("%s: %d parts, want %d: %+v", span, len(f.Parts), parts, f)
		}
		total := f.Total
		if total.Events != 3 || total.Errors != 1 || total.Statuses["2xx"] != 1 || total.Statuses["5xx"] != 1 || len(total.Statuses) != 2 ||
			total.States["delivered"] != 2 || total.States["queued"] != 1 || total.LatencyMs == nil || total.LatencyMs.P50 != 1 || total.LatencyMs.Max != 1 {
			t.Errorf("%s: %+v", span, total)
		}
		recent := 0 // events of the last part, and of the parts before it that end after the first event
		for _, p := range f.Parts {
			if end := p.From.Add(time.Duration(f.PartMs) * time.Millisecond); end.After(began.Add(-10 * time.Millisecond)) {
				recent += p.Events
			}
		}
		if first := f.Parts[0]; recent != 3 || first.Events != 0 || first.LatencyMs != nil || len(first.States) != 0 {
			t.Errorf("%s: first part %+v, %d events in the parts since %v: %+v", span, first, recent, began, f.Parts)
		}
	}
	for _, span := range []string{"30s", "401d", "x", "-1h"} {
		h.get(h.asAlice, "/api/v1/aliases/shop/figures?span="+span).code(422, relay.CodeValidationFailed)
	}
	h.get(h.asAlice, "/api/v1/aliases/other/figures").want(404)
}
