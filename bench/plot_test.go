package bench

import (
	"fmt"
	"html"
	"strings"
)

// plot draws requests a second as bars in SVG, relative to those of the baseline.
func (r *results) plot() string {
	const width, label, bar, gap = 760, 240, 14, 10
	var rows []ratio
	most := 1.0
	for _, q := range r.Ratios {
		if q.Figure == compared[0].name {
			rows, most = append(rows, q), max(most, q.Most)
		}
	}
	height := 40 + len(rows)*(bar+gap)
	scale := (width - label - 60) / most
	var b strings.Builder
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
