// Command bench compares Relay with nginx and sshd on one machine: the same local server,
// the same senders, rounds of all systems in turn. It prints ratios with their spread,
// because absolute figures say more about the machine than about a program. It needs Linux
// (/proc), ssh, sshd, nginx and, for Postgres, its server; frps and frpc are compared where
// they are on PATH. Everything listens on loopback and ends with the program.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"
)

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "rounds; each runs every load on every system")
	flag.DurationVar(&o.each, "each", 2*time.Second, "how long one load runs on one system")
	flag.StringVar(&o.programs, "programs", "bin", "folder with relayd and relay")
	flag.StringVar(&o.dir, "dir", ".bench", "folder for the data of the systems, on the disk to be measured; removed at the end")
	flag.StringVar(&o.systems, "systems", "", "comma-separated names; empty = all that can run here")
	flag.StringVar(&o.loads, "loads", "", "comma-separated names; empty = all")
	flag.IntVar(&o.idle, "idle", 1000, "idle tunnels whose memory is measured; 0 = none")
	flag.StringVar(&o.json, "json", "", "file for all figures")
	flag.StringVar(&o.svg, "svg", "", "file for a plot of the ratios")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	rounds, idle                             int
	each                                     time.Duration
	programs, dir, systems, loads, json, svg string
}

func run(ctx context.Context, o options) (err error) {
	env, err := newEnvironment(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, env.close()) }()
	systems, err := startAll(env, o.systems)
	if err != nil {
		return err
	}
	results := &results{Rounds: o.rounds, Each: o.each.String()}
	for _, s := range systems {
		results.Systems = append(results.Systems, s.name)
	}
	chosen, err := chooseLoads(o.loads)
	if err != nil {
		return err
	}
	for round := range o.rounds {
		for _, l := range chosen {
			for i := range systems {
				s := systems[(i+round)%len(systems)] // no system is always the first one
				if ctx.Err() != nil {
					return ctx.Err()
				}
				m, err := measure(ctx, s, l, o.each)
				if err != nil {
					return fmt.Errorf("%s on %s: %w", l.name, s.name, err)
				}
				results.add(l.name, s.name, m)
				fmt.Fprintf(os.Stderr, "round %d/%d  %-14s %-16s %9.0f/s  server %6.0f us  client %6.0f us  database %6.0f us  p50 %7.2f ms  errors %d\n",
					round+1, o.rounds, l.name, s.name, m.PerSecond, m.ServerCPU, m.ClientCPU, m.DatabaseCPU, m.P50, m.Errors)
			}
		}
	}
	for _, s := range systems {
		if err := measureStart(ctx, env, s, results); err != nil {
			return fmt.Errorf("start of %s: %w", s.name, err)
		}
	}
	if o.idle > 0 {
		if err := measureIdle(env, systems, o.idle, results); err != nil {
			return fmt.Errorf("idle tunnels: %w", err)
		}
	}
	return results.report(o.json, o.svg)
}

// pick gives the items of all whose names are in a comma-separated list; all of them for an
// empty list.
func pick[T any](all []T, list string, name func(T) string) ([]T, error) {
	if list == "" {
		return all, nil
	}
	var out []T
	for want := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(t T) bool { return name(t) == want })
		if i < 0 {
			return nil, fmt.Errorf("there is no %q here", want)
		}
		out = append(out, all[i])
	}
	return out, nil
}
