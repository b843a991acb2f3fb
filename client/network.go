package client

import (
	"context"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// pollNetwork is how often the addresses of this machine are read where the system
// does not tell of changes.
const pollNetwork = time.Second

// settle is how long a change of the network may go on before it counts: a card that
// comes up changes several things in a row.
const settle = 50 * time.Millisecond

// sense tells of whatever may have cut or healed the way to the relay, until ctx
// ends: another set of addresses, or a sleep of this machine. tell must not block.
func sense(ctx context.Context, tell func(*Error)) {
	hints := make(chan struct{}, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		networkHints(ctx, hints)
	}()
	defer func() { <-done }()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	last, begun := addresses(), time.Now()
	var w watch
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if w.look(time.Duration(now.UnixNano()), now.Sub(begun), 0) != nil {
				tell(errAsleep)
			}
			continue
		case <-hints:
		}
		if !wait(ctx, settle) {
			return
		}
		if now := addresses(); now != last {
			last = now
			tell(Errorf(ExitUnreachable, "the network has changed"))
		}
	}
}

// addresses describes the cards that are up and carry something with their
// addresses, and on Linux the routes of IPv4: "" where they cannot be read.
func addresses() string {
	cards, err := net.Interfaces()
	if err != nil {
		return ""
	}
	routes, _ := os.ReadFile("/proc/net/route")
	all := []string{string(routes)}
	for _, card := range cards {
		if card.Flags&net.FlagLoopback != 0 || card.Flags&net.FlagUp == 0 || card.Flags&net.FlagRunning == 0 {
			continue
		}
		list, err := card.Addrs()
		if err != nil {
			continue
		}
		for _, a := range list {
			all = append(all, card.Name+" "+a.String())
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// pollHints hints all the time: whoever hears it compares.
func pollHints(ctx context.Context, hints chan<- struct{}) {
	for wait(ctx, pollNetwork) {
		hint(hints)
	}
}

func hint(hints chan<- struct{}) {
	select {
	case hints <- struct{}{}:
	default: // one waits already
	}
}
