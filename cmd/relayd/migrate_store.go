package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"relay/cli"
	"relay/store"
)

func (c *program) migrateStoreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "migrate-store --to URL", Short: "copy the SQLite store into an empty Postgres, while no server runs", Args: cli.Takes("", 0, 0),
		Long: `Copies everything in the SQLite store of the data dir into an empty Postgres: accounts, keys,
tokens, aliases, links, events with their attempts and bodies, queues. Then it compares the number
and the hash of all rows. Stop the server first. relay.db is not changed.
If the command was interrupted or killed, run it again: it continues where it stopped. No relayd
serves the database until the copy has ended.
If others can see your commands, leave the password out of the URL and set PGPASSWORD.`,
		Example: "  relayd migrate-store --to postgres://relay@db.example.com/relay",
	}
	to := cmd.Flags().String("to", "", "`URL` of the Postgres: postgres://…")
	return c.withSettings(cmd, false, func(ctx context.Context, cfg Config, _ []*setting, _ []string) error {
		if *to == "" {
			return cli.Usage("missing --to, such as --to postgres://relay@db.example.com/relay")
		}
		// The URL is checked as the setting is. Without the check, a password with an unescaped character would be
		// printed and looked up as a host name.
		if _, err := parseDatabaseURL(*to); err != nil {
			return cli.Usage("--to: %v", err)
		}
		if cfg.DatabaseURL != "" {
			return cli.Errorf(cli.ExitFailure, "the settings name a Postgres already, and the copy is made from the SQLite store of %s", cfg.DataDir).
				WithHint("leave out --database-url (RELAY_DATABASE_URL) for this command; give the server that setting after it")
		}
		if _, err := os.Stat(filepath.Join(cfg.DataDir, databaseFile)); errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("no relay data in %s; pass --data-dir", cfg.DataDir)
		}
		from := placeOf(cfg)
		if served, known := servedPlace(cfg.DataDir); known && !served.same(from) {
			c.report("the last server of %s kept its data in %s; what is there is not copied", cfg.DataDir, served)
		}
		cfg.DatabaseURL, cfg.DatabaseDirectURL = *to, *to
		c.report("copying %s to %s", from, placeOf(cfg))
		return c.copyStore(ctx, cfg)
	})
}

// copyStore copies the SQLite store of the data dir into the Postgres database that the settings name.
func (c *program) copyStore(ctx context.Context, cfg Config) (err error) {
	s, err := c.openStore(ctx, cfg, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	tables, err := s.CopySQLite(ctx, copyReport(c.stderr))
	switch {
	case err != nil && ctx.Err() != nil:
		return errors.New("interrupted; run the same command again: it continues where it stopped")
	case err != nil:
		return err
	}
	if err := printRows(c.stdout, false, "TABLE\tROWS\tSHA-256 OF ALL ROWS, ON BOTH SIDES", tables, func(t *store.CopiedTable) []string {
		return []string{t.Name, fmt.Sprint(t.Rows), t.SHA256}
	}); err != nil {
		return err
	}
	c.report("the store is copied; give the server --database-url (RELAY_DATABASE_URL) and start it. Keep %s until you have seen that all is there, then move it away", placeOf(Config{DataDir: cfg.DataDir}))
	return nil
}

// copyReport returns a function that prints the progress of each table, at most every two seconds.
func copyReport(w io.Writer) func(store.CopiedTable) {
	last := time.Now()
	return func(t store.CopiedTable) {
		if time.Since(last) < 2*time.Second {
			return
		}
		last = time.Now()
		if t.SHA256 != "" {
			fmt.Fprintf(w, "relayd: %s: compared\n", t.Name)
			return
		}
		fmt.Fprintf(w, "relayd: %s: %d of %d rows\n", t.Name, t.Rows, t.Total)
	}
}
