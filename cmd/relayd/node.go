package main

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"relay/record"
)

func (c *cli) nodeCommand() *cobra.Command {
	return group("node", "the relayd processes that serve this store: list", c.nodeList())
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
