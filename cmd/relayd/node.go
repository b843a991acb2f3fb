package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"relay/record"
)

func (c *cli) nodeCommand() *cobra.Command {
	return group("node", "the relayd processes that serve this store: list, drain, resume", c.nodeList(), c.nodeDrain(), c.nodeResume())
}

func (c *cli) nodeList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "list the nodes, with state, version, tunnels and last sign of life", Args: exactly(),
		Long: `Lists every relayd that serves the same Postgres (docs/cluster.md). A node that is dead is
forgotten by the others after a few seconds. With SQLite there is one node.`,
		Example: "  relayd node list --json",
	}
	asJSON := jsonFlag(cmd)
	return c.operate(cmd, func(ctx context.Context, o *operator, _ []string) error {
		nodes, err := o.store.Nodes(ctx)
		if err != nil {
			return err
		}
		head := []string{"NAME", "VERSION", "SCHEMA", "STATE", "SINCE", "TUNNELS", "SPOOL", "CLOCK", "FEED", "LAST SEEN"}
		return printRows(o.stdout, *asJSON, head, mapSlice(nodes, record.OfNode), func(n record.Node) []string {
			offset := time.Duration(n.ClockOffsetMs * float64(time.Millisecond)).Round(time.Millisecond)
			return []string{
				n.Name, n.Version, strconv.FormatInt(n.Schema, 10), n.State, when(n.Since.Time), strconv.Itoa(n.Tunnels),
				strconv.FormatInt(n.SpoolSteps, 10), offset.String(), cmp.Or(n.Feed, "-"), when(n.LastSeenAt.Time),
			}
		})
	})
}

func (c *cli) nodeDrain() *cobra.Command {
	cmd := &cobra.Command{
		Use: "drain NAME", Short: "send the clients of a node to the others, before it is stopped", Args: exactly("NAME"),
		Long: `Makes /readyz of the node answer 503, and after its --drain-delay sends its SSH clients to
the other nodes, in slices: relay up connects there before its old connection ends, plain ssh
is told and disconnected. Requests under way end. The command waits until no tunnel is left
there. The node takes no new clients until ` + "`relayd node resume NAME`" + ` or its next start. A
node that is stopped (SIGTERM) does the same by itself.`,
		Example: "  relayd node drain relay-1",
	}
	wait := cmd.Flags().Duration("wait", time.Minute, "how long to wait until no tunnel is left; 0s = not at all")
	return c.operate(cmd, func(ctx context.Context, o *operator, args []string) error {
		if err := o.drainNode(ctx, args[0], true); err != nil || *wait == 0 {
			return err
		}
		left := 0
		for deadline := time.Now().Add(*wait); time.Now().Before(deadline); {
			nodes, err := o.store.Nodes(ctx)
			if err != nil {
				return err
			}
			left = 0
			for _, n := range nodes {
				if n.Name == args[0] {
					left += n.Tunnels
				}
			}
			if left == 0 {
				return nil
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Second / 2):
			}
		}
		return fmt.Errorf(stillTunnels, args[0], left, wait.String())
	})
}

func (c *cli) nodeResume() *cobra.Command {
	cmd := &cobra.Command{
		Use: "resume NAME", Short: "let a drained node serve again", Args: exactly("NAME"),
		Example: "  relayd node resume relay-1",
	}
	return c.operate(cmd, func(ctx context.Context, o *operator, args []string) error { return o.drainNode(ctx, args[0], false) })
}

func (o *operator) drainNode(ctx context.Context, name string, on bool) error {
	if o.cfg.DatabaseURL == "" {
		return fmt.Errorf(onlyNode, name)
	}
	return explainNotFound(o.store.DrainNode(ctx, o.who, name, on), noNode, name)
}

// setDraining follows the state that an operator has given this node: see store.OnDrain.
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
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(a.cfg.DrainDelay)):
			a.sshServer.Move(ctx)
		}
	}()
}
