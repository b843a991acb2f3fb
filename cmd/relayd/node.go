package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"relay"
	"relay/cli"
	"relay/record"
)

func (c *program) nodeCommand() *cobra.Command {
	list := listing(c, &cobra.Command{
		Use: "list", Short: "list the nodes, with state, version, tunnels and last heartbeat",
		Long: `Lists every relayd that serves the same Postgres (docs/cluster.md). The others forget a dead
node after a few seconds. With SQLite there is one node.`,
		Example: "  relayd node list --json",
	}, "NAME\tVERSION\tSCHEMA\tSTATE\tSINCE\tTUNNELS\tSPOOL\tCLOCK\tFEED\tLAST SEEN",
		func(ctx context.Context, o *operator) ([]relay.Node, error) { return o.store.Nodes(ctx) },
		record.OfNode, func(n record.Node) []string {
			offset := time.Duration(n.ClockOffsetMs * float64(time.Millisecond)).Round(time.Millisecond)
			return []string{
				n.Name, n.Version, strconv.FormatInt(n.Schema, 10), n.State, when(n.Since.Time), strconv.Itoa(n.Tunnels),
				strconv.FormatInt(n.SpoolSteps, 10), offset.String(), cmp.Or(n.Feed, "-"), when(n.LastSeenAt.Time),
			}
		})
	resume := c.operate(&cobra.Command{
		Use: "resume NAME", Short: "put a drained node back into service", Args: cli.Takes("NAME", 1, 1),
		Example: "  relayd node resume relay-1",
	}, func(ctx context.Context, o *operator, args []string) error {
		if err := o.drainNode(ctx, args[0], false); err != nil {
			return err
		}
		return o.awaitBeats(ctx, args[0], resumeWait)
	})
	return group("node", "the relayd processes that serve this store: list, drain, resume", list, c.nodeDrain(), resume)
}

func (c *program) tunnelCommand() *cobra.Command {
	list := listing(c, &cobra.Command{
		Use: "list", Short: "list the tunnels of every node, with account, client and source",
		Example: "  relayd tunnel list --json",
	}, "ID\tALIAS\tACCOUNT\tCLIENT\tSOURCE\tNODE\tSTATE\tSINCE\tREQUESTS",
		func(ctx context.Context, o *operator) ([]relay.TunnelRecord, error) {
			return o.store.Tunnels(ctx, o.who)
		},
		record.OfTunnel, func(t record.Tunnel) []string {
			return []string{t.ID, t.Alias, t.Account, t.Client, t.Source, t.Node, t.State, when(t.Since.Time), strconv.FormatInt(t.Requests, 10)}
		})
	end := c.changing(&cobra.Command{
		Use: "close ID", Short: "close a tunnel; its client gets a message", Args: cli.Takes("ID", 1, 1),
		Long:    "Closes a tunnel within two seconds, on whichever node it is. The client may connect again: to keep it out, remove its key.",
		Example: "  relayd tunnel close tun_7Q2M…",
	}, "there is no tunnel %s; `relayd tunnel list` shows them", "",
		func(ctx context.Context, o *operator, id string) error { return o.store.CloseTunnel(ctx, o.who, id) })
	return group("tunnel", "open tunnels: list, close", list, end)
}

func (c *program) nodeDrain() *cobra.Command {
	cmd := &cobra.Command{
		Use: "drain NAME", Short: "move the clients of a node to the others, before you stop it", Args: cli.Takes("NAME", 1, 1),
		Long: `Makes /readyz of the node answer 503. After its --drain-delay the node sends its SSH clients
to the other nodes, a few at a time: relay up connects there before its old connection ends;
plain ssh gets a message and is disconnected. Requests in progress end normally. The command
waits until no tunnel is left on the node. The node accepts no new clients until
` + "`relayd node resume NAME`" + ` or its next start. A node that is stopped (SIGTERM) drains in the
same way.`,
		Example: "  relayd node drain relay-1",
	}
	wait := cmd.Flags().Duration("wait", time.Minute, "how long to wait until no tunnel is left on the node; 0s = do not wait")
	return c.operate(cmd, func(ctx context.Context, o *operator, args []string) error {
		if err := o.drainNode(ctx, args[0], true); err != nil || *wait == 0 {
			return err
		}
		return o.awaitDrained(ctx, args[0], *wait)
	})
}

// resumeWait is the longest time that `relayd node resume` waits until the node has obeyed.
const resumeWait = 15 * time.Second

// obeyedAfter is the number of heartbeats after which a node has certainly obeyed a command. The first may
// have begun before the command, the second reads the command, and the third begins after the node has
// obeyed.
const obeyedAfter = 3

// awaitBeats waits until the named node has obeyed a command. After that, the /readyz of the node shows the
// effect.
func (o *operator) awaitBeats(ctx context.Context, name string, limit time.Duration) error {
	told := map[string]int64{} // heartbeats of each node at the time of the command
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		nodes, err := o.store.Nodes(ctx)
		if err != nil {
			return err
		}
		waits := false
		for _, n := range nodes {
			if n.Name != name || n.State == relay.NodeDead {
				continue
			}
			if _, known := told[n.ID]; !known {
				told[n.ID] = n.Beat
			}
			waits = waits || n.Beat < told[n.ID]+obeyedAfter
		}
		if !waits {
			return nil
		}
		if !cli.Wait(ctx, time.Second/2) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("%s has not obeyed within %s; it does so when it reaches its database", name, limit)
}

// awaitDrained waits until the /readyz of a draining node shows that it drains and has no tunnel left.
func (o *operator) awaitDrained(ctx context.Context, name string, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	if err := o.awaitBeats(ctx, name, limit); err != nil {
		return err
	}
	for {
		nodes, err := o.store.Nodes(ctx)
		if err != nil {
			return err
		}
		left := 0
		for _, n := range nodes {
			if n.Name == name {
				left += n.Tunnels
			}
		}
		switch {
		case left == 0:
			return nil
		case !time.Now().Before(deadline):
			return fmt.Errorf("%s still has %d tunnels after %s; it continues to send them to other nodes", name, left, limit)
		case !cli.Wait(ctx, time.Second/2):
			return ctx.Err()
		}
	}
}

func (o *operator) drainNode(ctx context.Context, name string, on bool) error {
	if o.cfg.DatabaseURL == "" {
		return fmt.Errorf("with SQLite there is one relayd; to stop it, end its process (%s is not changed)", name)
	}
	return explainNotFound(o.store.DrainNode(ctx, o.who, name, on), "no node named %s lives; `relayd node list` shows them", name)
}

// setDraining starts or ends the drain that an operator has requested for this node: see store.OnDrain.
func (a *app) setDraining(on bool) {
	a.drainMu.Lock()
	defer a.drainMu.Unlock()
	if a.endDrain != nil {
		a.endDrain()
		a.endDrain = nil
	}
	a.server.Drain(on)
	if !on {
		a.sshServer.Stay()
		a.log.Info("the node serves again")
		return
	}
	ctx, end := context.WithCancel(context.Background())
	a.endDrain = end
	go func() {
		a.log.Info("the node is drained; its clients are sent to the other nodes", "drain_delay", a.cfg.DrainDelay.String())
		if cli.Wait(ctx, a.cfg.DrainDelay) {
			a.sshServer.Move(ctx)
		}
	}()
}
