package main

import (
	"context"

	"github.com/spf13/cobra"
)

func (c *cli) backupCommand() *cobra.Command {
	return c.operate(&cobra.Command{
		Use: "backup FILE", Short: "copy the SQLite store to a new file, beside a running server", Args: exactly("FILE"),
		Long: `Writes a copy of the SQLite store as it is at one moment to FILE (mode 0600), while the
server may go on. FILE appears whole or not at all, and is never overwritten. The host
key is not in it: copy ssh_host_ed25519_key from the data dir too. docs/operations.md
says how to restore.`,
		Example: "  relayd backup /backup/relay-$(date +%F).db",
	}, func(ctx context.Context, o *operator, args []string) error {
		if err := o.store.Backup(ctx, args[0]); err != nil {
			return err
		}
		o.say("backup written to %s", args[0])
		return nil
	})
}
