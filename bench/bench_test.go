package bench

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"testing"
	"text/tabwriter"
	"time"

	"relay/relaytest"
)

var (
	rounds  = flag.Int("rounds", 5, "rounds; each runs every load on every system")
	each    = flag.Duration("each", 2*time.Second, "how long one load runs on one system")
	dir     = flag.String("dir", ".", "folder on the disk to be measured, where a folder for the data of the systems is made and removed")
	systems = flag.String("systems", "", "regular expression of the names; empty = all")
	loads   = flag.String("loads", "", "regular expression of the names; empty = all")
	idle    = flag.Int("idle", 1000, "idle tunnels whose memory is measured, and beside which requests are; 0 = none")
	aliases = flag.Int("aliases", 40_000, "aliases of the store beside which requests are measured")
	viewers = flag.Int("viewers", 100, "live views of the alias beside which requests are measured")
	engine  = flag.String("engine", "sqlite", "sqlite or postgres, for the growth")
	figures = flag.String("json", "", "file for all figures")
	svg     = flag.String("svg", "", "file for a plot of the requests a second")
)

func TestMain(m *testing.M) { os.Exit(relaytest.Main(m)) }

// starter starts a system. start returns nil if the programs of the system are not installed. The first
// starter of a list is the baseline.
type starter struct {
	name  string
	start func(b *bench, name string) *system
}

func relayd(postgres, up bool) func(*bench, string) *system {
	return func(b *bench, name string) *system { return b.startRelay(name, postgres, up) }
}

// BenchmarkCompare compares Relay with nginx and sshd.
func BenchmarkCompare(t *testing.B) {
	b := newBench(t)
	all := b.compare([]starter{
		{"nginx+sshd", (*bench).startBaseline},
		{"ssh-sqlite", relayd(false, false)},
		{"up-sqlite", relayd(false, true)},
		{"ssh-postgres", relayd(true, false)},
		{"up-postgres", relayd(true, true)},
		{"frp", (*bench).startFRP},
	}, *loads)
	for _, s := range all {
		if s.connect != nil {
			b.measureStart(s)
		}
	}
	for _, s := range all {
		if *idle > 0 && s.admin != "" {
			b.measureIdle(s, *idle)
		}
	}
	b.report()
}

// BenchmarkGrowth compares relayd with itself: with idle tunnels, with many aliases in the store, and with
// live views of the alias that gets the requests.
func BenchmarkGrowth(t *testing.B) {
	b := newBench(t)
	grown := func(grow func(*bench, *system)) func(*bench, string) *system {
		return func(b *bench, name string) *system {
			s := b.startRelay(name, *engine == "postgres", false)
			grow(b, s)
			return s
		}
	}
	b.compare([]starter{
		{"one-tunnel", relayd(*engine == "postgres", false)},
		{fmt.Sprintf("%d-tunnels", *idle), grown(func(b *bench, s *system) { b.openTunnels(s, *idle) })},
		{fmt.Sprintf("%d-aliases", *aliases), grown(func(b *bench, s *system) { b.makeAliases(s, *aliases) })},
		{fmt.Sprintf("%d-viewers", *viewers), grown(func(b *bench, s *system) { b.view(s, *viewers) })},
	}, cmp.Or(*loads, "^keep-alive-16$"))
	b.report()
}

// results holds all figures of a run.
type results struct {
	Rounds  int                                 `json:"rounds"`
	Each    string                              `json:"each"`
	Cores   int                                 `json:"cores"`
	Systems []string                            `json:"systems"`
	Loads   map[string]map[string][]measurement `json:"loads"`   // measurements by load and system, one for each round
	Figures map[string]map[string]float64       `json:"figures"` // figures by name and system
	Ratios  []ratio                             `json:"ratios"`
	order   []string                            // names of the loads and figures
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

// compare starts the systems of list whose names match the flag -systems. Round by round, it sends each load
// whose name matches wanted to all of these systems.
func (b *bench) compare(list []starter, wanted string) (all []*system) {
	for _, s := range list {
		if regexp.MustCompile(*systems).MatchString(s.name) {
			if system := s.start(b, s.name); system != nil {
				all = append(all, system)
				b.Systems = append(b.Systems, s.name)
			}
		}
	}
	for round := range *rounds {
		for _, l := range allLoads {
			if !regexp.MustCompile(wanted).MatchString(l.name) {
				continue
			}
			for i := range all {
				s := all[(i+round)%len(all)] // the system that is first changes with each round
				m := b.measure(s, l)
				if b.Loads[l.name] == nil {
					b.Loads[l.name] = map[string][]measurement{}
					b.order = append(b.order, l.name)
				}
				b.Loads[l.name][s.name] = append(b.Loads[l.name][s.name], m)
				fmt.Fprintf(os.Stderr, "round %d/%d  %-14s %-16s %9.0f/s  server %6.0f us  client %6.0f us  database %6.0f us  p50 %7.2f ms  errors %d\n",
					round+1, *rounds, l.name, s.name, m.PerSecond, m.ServerCPU, m.ClientCPU, m.DatabaseCPU, m.P50, m.Errors)
			}
		}
	}
	return all
}

// figure records a value that is measured once for a system, instead of once in each round.
func (b *bench) figure(s *system, name string, value float64) {
	if b.Figures[name] == nil {
		b.Figures[name] = map[string]float64{}
		b.order = append(b.order, name)
	}
	b.Figures[name][s.name] = value
}

// compared lists the figures whose ratios are shown.
var compared = []struct {
	name string
	of   func(measurement) float64
}{
	{"requests/s", func(m measurement) float64 { return m.PerSecond }},
	{"server CPU", func(m measurement) float64 { return m.ServerCPU }},
	{"server and database CPU", func(m measurement) float64 { return m.ServerCPU + m.DatabaseCPU }},
	{"client CPU", func(m measurement) float64 { return m.ClientCPU }},
	{"p50", func(m measurement) float64 { return m.P50 }},
}

// report prints the ratios and figures, and writes the output file, if the flag for it is set.
func (b *bench) report() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	base := b.Systems[0]
	fmt.Fprintf(w, "\nratios to %s, median of %d rounds (least to most)\n\nload\tsystem", base, b.Rounds)
	for _, f := range compared {
		fmt.Fprint(w, "\t"+f.name)
	}
	for _, name := range b.order {
		for _, system := range b.Systems[1:] {
			if b.Loads[name] == nil {
				continue
			}
			fmt.Fprintf(w, "\n%s\t%s", name, system)
			for _, f := range compared {
				var all []float64
				for i, m := range b.Loads[name][system] {
					if was := f.of(b.Loads[name][base][i]); was > 0 {
						all = append(all, f.of(m)/was)
					}
				}
				if len(all) == 0 { // the baseline has no such figure, for example no CPU time of a database
					fmt.Fprint(w, "\t")
					continue
				}
				slices.Sort(all)
				b.Ratios = append(b.Ratios, ratio{name, system, f.name, all[len(all)/2], all[0], all[len(all)-1]})
				fmt.Fprintf(w, "\t%.2f (%.2f to %.2f)", all[len(all)/2], all[0], all[len(all)-1])
			}
		}
	}
	fmt.Fprint(w, "\n\n")
	for _, name := range b.order {
		if b.Figures[name] != nil {
			fmt.Fprint(w, name)
			for _, s := range b.Systems {
				fmt.Fprintf(w, "\t%s %.2f", s, b.Figures[name][s])
			}
			fmt.Fprintln(w)
		}
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	b.Cores = runtime.NumCPU()
	text, err := json.MarshalIndent(b.results, "", " ")
	if err == nil && *figures != "" {
		err = os.WriteFile(*figures, append(text, '\n'), 0o644)
	}
	if err == nil && *svg != "" {
		err = os.WriteFile(*svg, []byte(b.plot()), 0o644)
	}
	if err != nil {
		b.Fatal(err)
	}
}
