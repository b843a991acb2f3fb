package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"relay/record"
)

func (c *cli) tunnelCommand() *cobra.Command {
	return group("tunnel", "attached tunnels: list, close", c.tunnelList(), c.tunnelClose())
}

func (c *cli) tunnelList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "list the tunnels of every node, with account, client and source", Args: exactly(),
		Example: "  relayd tunnel list --json",
	}
	asJSON := jsonFlag(cmd)
	return c.operate(cmd, func(ctx context.Context, o *operator, _ []string) error {
		tunnels, err := o.store.Tunnels(ctx, o.who)
		if err != nil {
			return err
		}
		head := []string{"ID", "ALIAS", "ACCOUNT", "CLIENT", "SOURCE", "NODE", "STATE", "SINCE", "REQUESTS"}
		return printRows(o.stdout, *asJSON, head, mapSlice(tunnels, record.OfTunnel), func(t record.Tunnel) []string {
			return []string{t.ID, t.Alias, t.Account, t.Client, t.Source, t.Node, t.State, when(t.Since.Time), strconv.FormatInt(t.Requests, 10)}
		})
	})
}

func (c *cli) tunnelClose() *cobra.Command {
	cmd := &cobra.Command{
		Use: "close ID", Short: "close a tunnel; its client is told", Args: exactly("ID"),
		Long:    "Closes a tunnel within two seconds, on whichever node it is. The client may connect again: to keep it out, remove its key.",
		Example: "  relayd tunnel close tun_7Q2M…",
	}
	return c.operate(cmd, func(ctx context.Context, o *operator, args []string) error {
		return explainNotFound(o.store.CloseTunnel(ctx, o.who, args[0]), noTunnel, args[0])
	})
}
