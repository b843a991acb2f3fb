package client

import (
	"context"
	"net"
	"slices"
	"strings"
	"time"
)

// networkPoll is how often the addresses of this machine are read.
const networkPoll = 2 * time.Second

// watchNetwork calls changed whenever this machine has another set of addresses, until
// ctx ends. A reconnect that waits then tries at once, and a connection is checked.
func watchNetwork(ctx context.Context, changed func()) {
	last := addresses()
	for wait(ctx, networkPoll) {
		if now := addresses(); now != last {
			last = now
			changed()
		}
	}
}

// addresses describes the addresses of all interfaces that are up, loopback left out;
// "" where they cannot be read.
func addresses() string {
	interfaces, err := net.Interfaces()
	if err != nil {
		return ""
	}
	var all []string
	for _, i := range interfaces {
		if i.Flags&net.FlagLoopback != 0 || i.Flags&net.FlagRunning == 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			all = append(all, i.Name+" "+a.String())
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}
