package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

func (c *cli) migrateCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "migrate", Short: "bring the schema of the store up to this build", Args: noSuchCommand}
	cmd.AddCommand(c.migrateStatus())
	return c.onStore(cmd, false, func(ctx context.Context, o *operator, _ []string) error {
		from, to, err := o.store.Migrate(ctx)
		if err == nil {
			fmt.Fprintf(o.stdout, "schema %d -> %d\n", from, to)
		}
		return err
	})
}

// schemaState is what `migrate status --json` prints.
type schemaState struct {
	Have    int64 `json:"have"`
	Want    int64 `json:"want"`
	Current bool  `json:"current"`
}

func (c *cli) migrateStatus() *cobra.Command {
	cmd := &cobra.Command{Use: "status", Short: "print the schema of the store and of this build", Args: exactly()}
	asJSON := jsonFlag(cmd)
	return c.onStore(cmd, false, func(ctx context.Context, o *operator, _ []string) error {
		have, want, err := o.store.Schema(ctx)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(o.stdout, schemaState{Have: have, Want: want, Current: have == want})
		}
		_, err = fmt.Fprintf(o.stdout, "schema %d, this build wants %d: %s\n", have, want, schemaAdvice(have, want))
		return err
	})
}

func schemaAdvice(have, want int64) string {
	switch {
	case have == want:
		return "current"
	case have > want:
		return "newer than this build, which refuses to touch it; use a newer relayd"
	default:
		return "run `relayd migrate`, or start the server, which does it too"
	}
}
