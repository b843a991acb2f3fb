package main

import (
	"context"

	"github.com/spf13/cobra"

	"relay/record"
)

func (c *cli) auditCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "who changed what, newest first", Args: exactly()}
	n := cmd.Flags().IntP("number", "n", 50, "how many entries")
	asJSON := jsonFlag(cmd)
	return c.operate(cmd, func(ctx context.Context, o *operator, _ []string) error {
		if *n < 1 {
			return usagef("-n: expected a number above 0")
		}
		entries, err := o.store.Audit(ctx, o.who, *n)
		if err != nil {
			return err
		}
		head := []string{"WHEN", "WHO", "ACTION", "TARGET", "DETAIL"}
		return printRows(o.stdout, *asJSON, head, each(entries, record.OfAudit), func(a record.AuditEntry) []string {
			return []string{when(a.At.Time), a.Actor, a.Action, a.Target, a.Detail}
		})
	})
}
