package alias

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"relay"
	"relay/dashboard/page"
	"relay/record"
)

// plotView is what came to an alias over time, drawn and told.
type plotView struct {
	*relay.Figures        // nil = they cannot be read
	Path           string // of the alias
	Window         int    // chosen one of plotWindows
	Summary        []string
	Failed         string // why there are no figures
	Most           int    // events in one bar
	Bars           []plotBar
}

// plotBar is one part of the time that had events.
type plotBar struct {
	relay.Bucket
	At   int    // its place among all parts
	Link string // the list of its events
}

// Size of the drawing; the page scales it.
const plotWidth, plotHeight = 600.0, 90.0

// linkTime is exact enough that the list behind a bar has the events that the bar counts.
const linkTime = "2006-01-02T15:04:05.000Z"

type plotWindow struct {
	name, text string
	length     time.Duration
	buckets    int
}

var plotWindows = []plotWindow{
	{"1h", "hour", time.Hour, 60},
	{"24h", "24 hours", 24 * time.Hour, 48},
	{"7d", "7 days", 7 * 24 * time.Hour, 84},
	{"30d", "30 days", 30 * 24 * time.Hour, 60},
}

// plot counts what came to an alias in the window that the address names, or else in the last hour
// if anything came in it, or in a day.
// A store that cannot count leaves the rest of the page alone.
func (p Pages) plot(r *http.Request, who relay.Actor, a *Head) *plotView {
	v, now := &plotView{Path: page.AliasPath(a.Name)}, time.Now().UTC()
	chosen := slices.IndexFunc(plotWindows, func(w plotWindow) bool { return w.name == r.URL.Query().Get("window") })
	v.Window = max(chosen, 0)
	w := plotWindows[v.Window]
	f, err := p.figures(r, who, a, w, now)
	if err == nil && chosen < 0 && f.Total.Events == 0 {
		if a.LastEventAt == nil {
			return nil // nothing ever came
		}
		v.Window, w = 1, plotWindows[1]
		f, err = p.figures(r, who, a, w, now)
	}
	if err != nil {
		p.Log.Warn("figures not read", "alias", a.Name, "error", err)
		v.Failed = "The figures cannot be read now: " + relay.AsError(err).Detail
		return v
	}
	v.Figures, v.Summary = &f, plotSentences(&f, w.text)
	for i := range f.Buckets {
		b, until := &f.Buckets[i], f.To
		if i+1 < len(f.Buckets) {
			until = f.Buckets[i+1].From
		}
		if b.Events > 0 {
			v.Most = max(v.Most, b.Events)
			v.Bars = append(v.Bars, plotBar{*b, i, page.WithQuery(v.Path, url.Values{"since": {b.From.UTC().Format(linkTime)}, "until": {until.UTC().Format(linkTime)}, "window": {w.name}})})
		}
	}
	return v
}

// figures counts in parts that begin at whole minutes, half hours or hours of the clock: else the
// same events would move from bar to bar each time they are counted.
func (p Pages) figures(r *http.Request, who relay.Actor, a *Head, w plotWindow, now time.Time) (relay.Figures, error) {
	part := w.length / time.Duration(w.buckets)
	until := now.Truncate(part).Add(part)
	return p.Events.Figures(r.Context(), who, a.Name, until.Add(-w.length), until, w.buckets)
}

// x is where a place among the parts of the time begins in the drawing.
func (v *plotView) x(at float64) string { return page.Part(at, float64(len(v.Buckets)), plotWidth) }

// y is how high a number of events is in the drawing.
func (v *plotView) y(events int) string {
	return page.Part(float64(events), float64(v.Most), plotHeight)
}

// uncounted is the width of the part that was not counted.
func (v *plotView) uncounted() string {
	first := v.Buckets[0].From
	return page.Part(float64(v.From.Sub(first)), float64(v.To.Sub(first)), plotWidth)
}

// Quantiles of fewer latencies than these would only name the slowest one.
const (
	enoughForP95 = 20
	enoughForP99 = 100
)

// plotSentences say what the drawings show, and no more than was measured.
func plotSentences(f *relay.Figures, window string) []string {
	t := &f.Total
	if t.Events == 0 {
		return []string{"No event in the last " + window + "."}
	}
	errors := "no errors."
	if t.Errors > 0 {
		errors = strconv.Itoa(t.Errors) + " with an error."
	}
	out := []string{record.Count(t.Events, "event", "events") + " in the last " + window + ", " + errors}
	if f.Partial {
		out = append(out, "There are more events than can be counted at once: only those since "+page.RelativeText(f.From)+" are.")
	}
	switch {
	case t.N == 0:
		return append(out, "No latency was measured.")
	case t.N == 1:
		return append(out, "One latency was measured: "+latencyText(t.Max)+".")
	}
	text := "Latency: median " + latencyText(t.P50)
	if t.N >= enoughForP95 {
		text += ", 95 % within " + latencyText(t.P95)
	}
	if t.N >= enoughForP99 {
		text += ", 99 % within " + latencyText(t.P99)
	}
	return append(out, text+", slowest "+latencyText(t.Max)+".")
}

// latencyText never calls something that took time nothing.
func latencyText(d time.Duration) string {
	if d > 0 && d < 100*time.Microsecond {
		return "under 0.1 ms"
	}
	return record.MillisText(float64(d.Microseconds()) / 1000)
}
