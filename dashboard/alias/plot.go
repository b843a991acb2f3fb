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

// plotView is the plot of the events of an alias over time, with its text.
type plotView struct {
	*relay.Figures        // nil = the figures cannot be read
	Path           string // path of the alias' page
	Window         int    // index of the chosen element of plotWindows
	Summary        []string
	Failed         string // reason why there are no figures
	Most           int    // largest number of events in one bar
	Bars           []plotBar
	Types          []typeView
	Slowest        []typeView
	Failures       []Row // the newest failed events
}

// typeView is an event type in the overview.
type typeView struct {
	relay.FigureType
	Link string // address of the list of events of the type
}

// Bounds of the overview.
const (
	shownTypes    = 8
	shownSlowest  = 3
	slowestOf     = 3 // least number of measured latencies of a type that is listed among the slowest
	shownFailures = 5
)

// plotBar is one part of the time span that had events.
type plotBar struct {
	relay.Bucket
	At   int    // position among all parts
	Link string // address of the list of its events
}

// Size of the drawing; the page scales it.
const plotWidth, plotHeight = 600.0, 90.0

// linkTime is a time format with milliseconds, so that the list behind a bar has exactly the events
// that the bar counts.
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

const plotDefault = 1 // index in plotWindows

// plot counts the events of an alias in the time span that the address names, by default one day. It returns
// nil if the alias never had an event. If the store cannot count, the result has only the reason, which the
// page shows in place of the plot.
func (p Pages) plot(r *http.Request, who relay.Actor, a *Head) *plotView {
	v, now := &plotView{Path: page.AliasPath(a.Name)}, time.Now().UTC()
	chosen := slices.IndexFunc(plotWindows, func(w plotWindow) bool { return w.name == r.URL.Query().Get("window") })
	if v.Window = chosen; chosen < 0 {
		v.Window = plotDefault
	}
	w := plotWindows[v.Window]
	f, err := p.figures(r, who, a, w, now)
	if err == nil && chosen < 0 && f.Total.Events == 0 && a.LastEventAt == nil {
		return nil // the alias never had an event
	}
	if err != nil {
		p.Log.Warn("cannot read figures", "alias", a.Name, "err", err)
		v.Failed = "The figures cannot be read now: " + relay.AsError(err).Detail
		return v
	}
	v.Figures, v.Summary = &f, plotSentences(&f, w.text)
	v.addTypes()
	if f.Total.Errors > 0 {
		v.Failures = p.failures(r, who, a.Name, f.From)
	}
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

// addTypes picks the event types to show: types with errors first, then the most frequent ones, and
// separately the types that the local server answers most slowly.
func (v *plotView) addTypes() {
	for _, t := range v.Figures.Types {
		if t.Type == record.SafeText(t.Type) {
			v.Types = append(v.Types, typeView{t, page.WithQuery(v.Path, url.Values{"type": {t.Type}})})
		}
	}
	for _, t := range v.Types {
		if t.N >= slowestOf {
			v.Slowest = append(v.Slowest, t)
		}
	}
	slices.SortStableFunc(v.Slowest, func(a, b typeView) int { return int(b.P50 - a.P50) })
	slices.SortStableFunc(v.Types, func(a, b typeView) int { return b.Errors - a.Errors })
	v.Slowest = v.Slowest[:min(len(v.Slowest), shownSlowest)]
	v.Types = v.Types[:min(len(v.Types), shownTypes)]
}

// failures returns the newest events of an alias that ended with an error and arrived at the time since or
// later.
func (p Pages) failures(r *http.Request, who relay.Actor, alias string, since time.Time) (rows []Row) {
	found, err := p.Events.Events(r.Context(), who, relay.Filter{Alias: alias, Status: relay.StatusError, Since: since, Limit: shownFailures, Budget: 60 * time.Millisecond})
	if err != nil {
		p.Log.Warn("cannot read failures", "alias", alias, "err", err)
	}
	for i := range found.Events {
		rows = append(rows, p.Row(&found.Events[i]))
	}
	return rows
}

// figures counts the events by parts that begin at whole minutes, half hours or hours of the clock.
// Otherwise the same events would move from bar to bar with each count.
func (p Pages) figures(r *http.Request, who relay.Actor, a *Head, w plotWindow, now time.Time) (relay.Figures, error) {
	part := w.length / time.Duration(w.buckets)
	until := now.Truncate(part).Add(part)
	return p.Events.Figures(r.Context(), who, a.Name, until.Add(-w.length), until, w.buckets)
}

// x returns the horizontal position of a part of the time span in the drawing.
func (v *plotView) x(at float64) string { return page.Part(at, float64(len(v.Buckets)), plotWidth) }

// y returns the height of a number of events in the drawing.
func (v *plotView) y(events int) string {
	return page.Part(float64(events), float64(v.Most), plotHeight)
}

// uncounted returns the width of the part of the time span that was not counted.
func (v *plotView) uncounted() string {
	first := v.Buckets[0].From
	return page.Part(float64(v.From.Sub(first)), float64(v.To.Sub(first)), plotWidth)
}

// Least numbers of latencies for a quantile: with fewer latencies, the quantile is just the slowest
// one.
const (
	enoughForP95 = 20
	enoughForP99 = 100
)

// plotSentences returns sentences with the figures of the plot. It leaves out quantiles for which too few
// latencies were measured.
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
		out = append(out, "Too many events to count at once; counted since "+page.RelativeText(f.From)+".")
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

// latencyText returns a latency as text, never as 0 if it was measured.
func latencyText(d time.Duration) string {
	if d > 0 && d < 100*time.Microsecond {
		return "<0.1 ms"
	}
	return record.MillisText(float64(d.Microseconds()) / 1000)
}
