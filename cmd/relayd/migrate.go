package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (c *cli) migrateCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "migrate", Short: "bring the schema of the store up to this build", Args: noSuchCommand}
	load := c.settingFlags(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, _, err := load()
		if err != nil {
			return err
		}
		// An empty Postgres database is there to be filled; a SQLite file is made
		// by serve only, so that a wrong --data-dir is noticed.
		s, err := c.openStore(cmd.Context(), cfg, cfg.DatabaseURL == "")
		if err != nil {
			return err
		}
		from, to, err := s.Migrate(cmd.Context())
		if cerr := s.Close(); err == nil {
			err = cerr
		}
		if err == nil {
			fmt.Fprintf(c.stdout, "schema %d -> %d\n", from, to)
		}
		return err
	}
	cmd.AddCommand(c.migrateStatus())
	return cmd
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
	load := c.settingFlags(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, _, err := load()
		if err != nil {
			return err
		}
		s, err := c.openStore(cmd.Context(), cfg, cfg.DatabaseURL == "")
		if err != nil {
			return err
		}
		have, want, err := s.Schema(cmd.Context())
		if cerr := s.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(c.stdout, schemaState{Have: have, Want: want, Current: have == want})
		}
		_, err = fmt.Fprintf(c.stdout, "schema %d, this build wants %d: %s\n", have, want, schemaAdvice(have, want))
		return err
	}
	return cmd
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
