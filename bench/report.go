package main

import (
	"encoding/json"
	"fmt"
	"html"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
)

// results are all figures of a run.
type results struct {
	Rounds  int                                 `json:"rounds"`
	Each    string                              `json:"each"`
	Cores   int                                 `json:"cores"`
	Systems []string                            `json:"systems"`
	Loads   map[string]map[string][]measurement `json:"loads"`   // by load and system, one a round
	Figures map[string]map[string]float64       `json:"figures"` // by name and system
	Ratios  []ratio                             `json:"ratios"`
	order   []string                            // of the loads and figures
}

// ratio compares a figure of a system with that of the baseline in the same round.
type ratio struct {
	Load   string  `json:"load"`
	System string  `json:"system"`
	Figure string  `json:"figure"`
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
}

func (r *results) add(load, system string, m measurement) {
	if r.Loads == nil {
		r.Loads = map[string]map[string][]measurement{}
	}
	if r.Loads[load] == nil {
		r.Loads[load] = map[string][]measurement{}
		r.order = append(r.order, load)
	}
	r.Loads[load][system] = append(r.Loads[load][system], m)
}

func (r *results) figure(system, name string, value float64) {
	if r.Figures == nil {
		r.Figures = map[string]map[string]float64{}
	}
	if r.Figures[name] == nil {
		r.Figures[name] = map[string]float64{}
		r.order = append(r.order, name)
	}
	r.Figures[name][system] = value
}

var figures = []struct {
	name string
	of   func(measurement) float64
}{
	{"requests/s", func(m measurement) float64 { return m.PerSecond }},
	{"server CPU", func(m measurement) float64 { return m.ServerCPU }},
	{"server and database CPU", func(m measurement) float64 { return m.ServerCPU + m.DatabaseCPU }},
	{"client CPU", func(m measurement) float64 { return m.ClientCPU }},
	{"p50", func(m measurement) float64 { return m.P50 }},
}

// compare fills Ratios.
func (r *results) compare() {
	r.Cores = runtime.NumCPU()
	base := r.Systems[0]
	for _, load := range r.order {
		rounds := r.Loads[load]
		for _, system := range r.Systems[1:] {
			for _, f := range figures {
				var all []float64
				for i := range min(len(rounds[base]), len(rounds[system])) {
					if b := f.of(rounds[base][i]); b > 0 {
						all = append(all, f.of(rounds[system][i])/b)
					}
				}
				if len(all) > 0 {
					slices.Sort(all)
					r.Ratios = append(r.Ratios, ratio{load, system, f.name, all[len(all)/2], all[0], all[len(all)-1]})
				}
			}
		}
	}
}

// report prints tables and writes the files that were asked for.
func (r *results) report(jsonFile, svgFile string) error {
	r.compare()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "ratios to %s, median of %d rounds (least to most)\n\n", r.Systems[0], r.Rounds)
	header := "load\tsystem"
	for _, f := range figures {
		header += "\t" + f.name
	}
	fmt.Fprintln(w, header)
	for i, q := range r.Ratios {
		if i%len(figures) == 0 {
			fmt.Fprintf(w, "\n%s\t%s", q.Load, q.System)
		}
		fmt.Fprintf(w, "\t%.2f (%.2f to %.2f)", q.Median, q.Least, q.Most)
	}
	fmt.Fprint(w, "\n\n")
	for _, name := range r.order {
		if r.Figures[name] == nil {
			continue
		}
		fmt.Fprint(w, name)
		for _, s := range r.Systems {
			if v, ok := r.Figures[name][s]; ok {
				fmt.Fprintf(w, "\t%s %.2f", s, v)
			}
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if jsonFile != "" {
		text, err := json.MarshalIndent(r, "", " ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(jsonFile, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	if svgFile != "" {
		return os.WriteFile(svgFile, []byte(r.plot()), 0o644)
	}
	return nil
}

// plot draws requests a second as bars, relative to the baseline.
func (r *results) plot() string {
	const width, label, bar, gap = 760, 220, 14, 10
	var b strings.Builder
	var rows []ratio
	most := 1.0
	for _, q := range r.Ratios {
		if q.Figure == figures[0].name {
			rows, most = append(rows, q), max(most, q.Most)
		}
	}
	height := 40 + len(rows)*(bar+gap)
	scale := (width - label - 60) / most
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/><text x="%d" y="18">requests a second, %s = 1</text>`+"\n", label, html.EscapeString(r.Systems[0]))
	fmt.Fprintf(&b, `<line x1="%.1f" y1="26" x2="%.1f" y2="%d" stroke="#888" stroke-dasharray="3 3"/>`+"\n", label+scale, label+scale, height-6)
	for i, q := range rows {
		y := 32 + i*(bar+gap)
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s · %s</text>`, label-8, y+11, html.EscapeString(q.Load), html.EscapeString(q.System))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="#3b6fd4"/>`, label, y, q.Median*scale, bar)
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#111"/>`, label+q.Least*scale, y+bar/2, label+q.Most*scale, y+bar/2)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%.2f</text>`+"\n", label+q.Most*scale+6, y+11, q.Median)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
