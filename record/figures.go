package record

import (
	"strconv"
	"time"

	"relay"
)

// Figures are counts of the events of an alias.
type Figures struct {
	Alias       string       `json:"alias"`
	From        Time         `json:"from" format:"date-time" doc:"start of the span"`
	To          Time         `json:"to" format:"date-time"`
	CountedFrom Time         `json:"countedFrom" format:"date-time" doc:"later than from where there are too many events to count at once; parts before it are empty"`
	PartMs      int64        `json:"partMs" doc:"length of each part"`
	Total       FigurePart   `json:"total"`
	Parts       []FigurePart `json:"parts" nullable:"false" doc:"equal parts of the span, oldest first, at most 120"`
}

// FigurePart counts the events that first arrived in a part of the span.
type FigurePart struct {
	From      Time           `json:"from" format:"date-time"`
	Events    int            `json:"events"`
	Errors    int            `json:"errors" doc:"ended without being delivered, or answered with 400 or above; the filter status=error lists them"`
	Statuses  map[string]int `json:"statuses" doc:"by class of the last response: 2xx, 4xx, …"`
	States    map[string]int `json:"states" doc:"by state"`
	LatencyMs *LatencyFigure `json:"latencyMs" doc:"of the last attempts that ended; null when none was measured"`
}

// LatencyFigure holds quantiles of measured latencies by nearest rank, in milliseconds.
type LatencyFigure struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	Max float64 `json:"max"`
}

// FiguresOf returns the JSON form of figures. The argument part is the duration that each bucket covers.
func FiguresOf(alias string, f *relay.Figures, part time.Duration) *Figures {
	out := &Figures{
		Alias: alias, From: Time{f.Buckets[0].From}, To: Time{f.To}, CountedFrom: Time{f.From}, PartMs: part.Milliseconds(),
		Total: figurePart(&f.Total), Parts: make([]FigurePart, len(f.Buckets)),
	}
	for i := range f.Buckets {
		out.Parts[i] = figurePart(&f.Buckets[i])
	}
	return out
}

func figurePart(b *relay.Bucket) FigurePart {
	out := FigurePart{From: Time{b.From}, Events: b.Events, Errors: b.Errors, Statuses: map[string]int{}, States: b.States}
	if out.States == nil {
		out.States = map[string]int{}
	}
	for class, n := range b.Classes {
		if class > 0 && n > 0 {
			out.Statuses[strconv.Itoa(class)+"xx"] = n
		}
	}
	if b.N > 0 {
		out.LatencyMs = &LatencyFigure{P50: millis(b.P50), P95: millis(b.P95), Max: millis(b.Max)}
	}
	return out
}
