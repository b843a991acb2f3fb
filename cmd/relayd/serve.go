package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

func (c *cli) serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "serve", Short: "run the server in the foreground", Args: exactly(),
		Long: `Runs the server until SIGTERM or SIGINT, then stops in order: exit 0, or 1 when the
drain time ran out with requests cut. A second signal ends it at once.`,
		Example: "  relayd serve --data-dir .relay",
	}
	load := c.settingFlags(cmd, true)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, list, err := load()
		if err != nil {
			return err
		}
		return c.serve(cmd.Context(), newApp(c, cfg), list)
	}
	return cmd
}

// serve runs an app until ctx ends or one of its listeners does.
func (c *cli) serve(ctx context.Context, a *app, list []*setting) error {
	if err := a.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop while waiting to serve
		}
		return err
	}
	greeting, err := a.firstStart(ctx, list)
	if err == nil {
		fmt.Fprint(c.stdout, greeting)
		select {
		case <-ctx.Done():
		case err = <-a.failed:
		}
	}
	if serr := a.Stop(); err == nil {
		err = serr
	}
	return err
}
