package dashboard

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"relay"
)

// plotView is what came to an alias over time, drawn and told.
type plotView struct {
	Windows  []plotWindow
	Summary  []string // sentences
	Failed   string   // why there are no figures
	From, To time.Time
	Top      string // what the upper edge of the drawing stands for; "" = there is nothing to draw
	Unknown  string // width of the part that was not counted, "" = none
	Bars     []plotBar
	Rows     []plotRow // parts of the time that had events, newest first
}

// plotWindow is a choice of how far back to look.
type plotWindow struct {
	Text, Href string
	Current    bool
}

// plotBar is one part of the time: all events, and the errors among them at its foot;
// the numbers are coordinates.
type plotBar struct {
	X, Width, Y, Height, ErrorY, ErrorHeight, Title, Link string
}

// plotRow is one part of the time in numbers.
type plotRow struct {
	From                     time.Time
	Events, Errors, P50, P95 string
	Link                     string // the events of that time
}

// Size of the drawing; the page scales it.
const plotWidth, plotHeight = 600.0, 90.0

var plotWindows = []struct {
	name, text string
	length     time.Duration
	buckets    int
}{
	{"1h", "hour", time.Hour, 60},
	{"24h", "24 hours", 24 * time.Hour, 48},
	{"7d", "7 days", 7 * 24 * time.Hour, 84},
	{"30d", "30 days", 30 * 24 * time.Hour, 60},
}

// plot counts what came to the alias of a list, whatever its filter, in the window that
// the address names, or else in an hour if that has the newest listed event, or in a day.
// A store that cannot count leaves the rest of the page alone.
func (p *pages) plot(r *http.Request, who relay.Actor, list *listView) plotView {
	alias, path, chosen := list.Alias, aliasPath(list.Alias), 1
	if len(list.Rows) > 0 {
		if newest, err := relay.ParseID(list.Rows[0].ID); err == nil && time.Since(newest.Time()) < time.Hour {
			chosen = 0
		}
	}
	for i, w := range plotWindows {
		if r.URL.Query().Get("window") == w.name {
			chosen = i
		}
	}
	var v plotView
	for i, w := range plotWindows {
		v.Windows = append(v.Windows, plotWindow{w.text, path + "?window=" + w.name + "#plot", i == chosen})
	}
	w, now := plotWindows[chosen], time.Now().UTC()
	f, err := p.Events.Figures(r.Context(), who, alias, now.Add(-w.length), w.buckets)
	if err != nil {
		p.Log.Warn("figures not read", "alias", alias, "error", err)
		v.Failed = "The figures cannot be read now: " + relay.AsError(err).Detail
		return v
	}
	v.fill(&f, w.name, w.text, path, now)
	return v
}

func (v *plotView) fill(f *relay.Figures, name, window, path string, now time.Time) {
	v.From, v.To = f.Buckets[0].From, f.To
	v.Summary = plotSentences(f, window, now)
	if f.Total.Events == 0 {
		return
	}
	links := make([]string, len(f.Buckets)) // the list of the events of each part
	for i := range f.Buckets {
		until := f.To
		if i+1 < len(f.Buckets) {
			until = f.Buckets[i+1].From
		}
		links[i] = withQuery(path, url.Values{"since": {f.Buckets[i].From.UTC().Format(time.RFC3339)}, "until": {until.UTC().Format(time.RFC3339)}, "window": {name}})
	}
	v.draw(f, links, now)
	for i := len(f.Buckets) - 1; i >= 0; i-- {
		b := &f.Buckets[i]
		if b.Events == 0 {
			continue
		}
		row := plotRow{From: b.From, Events: strconv.Itoa(b.Events), Errors: strconv.Itoa(b.Errors), Link: links[i]}
		if b.N > 0 {
			row.P50, row.P95 = latencyText(b.P50), latencyText(b.P95)
		}
		v.Rows = append(v.Rows, row)
	}
}

// Quantiles of fewer latencies than these would only name the slowest one.
const (
	enoughForP95 = 20
	enoughForP99 = 100
)

// plotSentences say what the drawings show, and no more than was measured.
func plotSentences(f *relay.Figures, window string, now time.Time) []string {
	t := &f.Total
	if t.Events == 0 {
		return []string{"No event in the last " + window + "."}
	}
	text := countText(t.Events, "event", "events") + " in the last " + window + ", "
	switch t.Errors {
	case 0:
		text += "no errors."
	default:
		text += strconv.Itoa(t.Errors) + " with an error."
	}
	out := []string{text}
	if f.Partial {
		out = append(out, "There are more events than can be counted at once: only those since "+relativeText(f.From)+" are.")
	}
	switch {
	case t.N == 0:
		out = append(out, "No latency was measured.")
	case t.N == 1:
		out = append(out, "One latency was measured: "+latencyText(t.Max)+".")
	default:
		text = "Latency: median " + latencyText(t.P50)
		if t.N >= enoughForP95 {
			text += ", 95 % within " + latencyText(t.P95)
		}
		if t.N >= enoughForP99 {
			text += ", 99 % within " + latencyText(t.P99)
		}
		out = append(out, text+", slowest "+latencyText(t.Max)+".")
	}
	return out
}

// latencyText never calls something that took time nothing.
func latencyText(d time.Duration) string {
	if d > 0 && d < 100*time.Microsecond {
		return "under 0.1 ms"
	}
	return millisText(float64(d.Microseconds()) / 1000)
}

func (v *plotView) draw(f *relay.Figures, links []string, now time.Time) {
	most := 0
	for i := range f.Buckets {
		most = max(most, f.Buckets[i].Events)
	}
	v.Top = "at most " + countText(most, "event", "events")
	if first := f.Buckets[0].From; f.Partial {
		v.Unknown = coordinate(plotWidth * float64(f.From.Sub(first)) / float64(f.To.Sub(first)))
	}
	width := plotWidth / float64(len(f.Buckets))
	for i := range f.Buckets {
		b := &f.Buckets[i]
		if b.Events == 0 {
			continue
		}
		all, bad := plotHeight*float64(b.Events)/float64(most), plotHeight*float64(b.Errors)/float64(most)
		v.Bars = append(v.Bars, plotBar{
			X: coordinate(float64(i)*width + width*.1), Width: coordinate(width * .8),
			Y: coordinate(plotHeight - all), Height: coordinate(all), ErrorY: coordinate(plotHeight - bad), ErrorHeight: coordinate(bad),
			Title: relativeText(b.From) + ": " + countText(b.Events, "event", "events") + ", " + countText(b.Errors, "error", "errors"),
			Link:  links[i],
		})
	}
}

func coordinate(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
