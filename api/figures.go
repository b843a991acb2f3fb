package api

import (
	"context"
	"time"

	"relay"
	"relay/record"
)

// maxParts is the largest number of parts of a span.
const maxParts = 120

// longestSpan is the longest span of figures.
const longestSpan = 400 * 24 * time.Hour

type figuresInput struct {
	Span string `query:"span" default:"1h" doc:"how far back from now: from 1m to 400d"`
}

func (s *server) addFiguresRoute() {
	addJSON(s, route{tag: "aliases", scope: relay.ScopeEventsRead, resolve: s.resolveAlias}.on(
		"GET /aliases/{alias}/figures", "get-figures", "Counts of events by status and state, and latencies, over a span",
	), s.figures)
}

func (s *server) figures(ctx context.Context, c *requestInfo, in *figuresInput) (*record.Figures, error) {
	span, err := relay.ParseDuration(in.Span)
	if err != nil || span < time.Minute || span > longestSpan {
		return nil, invalid("query.span", "expected a duration from 1m to 400d, such as 1h or 7d", shortValue(in.Span))
	}
	part := partOf(span)
	parts := int((span + part - 1) / part)
	f, err := s.Events.Figures(ctx, c.who, c.alias.Name, time.Now().Add(-time.Duration(parts)*part), parts)
	if err != nil {
		return nil, err
	}
	return record.FiguresOf(c.alias.Name, &f, part), nil
}

// partOf returns the length of the parts of a span: a round one, of which there are at
// most maxParts.
func partOf(span time.Duration) time.Duration {
	const day = 24 * time.Hour
	for _, part := range []time.Duration{
		time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute,
		time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day,
	} {
		if span <= maxParts*part {
			return part
		}
	}
	return 7 * day
}
