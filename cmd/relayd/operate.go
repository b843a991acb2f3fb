package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"relay"
	"relay/record"
	"relay/store"
)

// operator is what an operator command needs: the store, which may be in use by a running
// server, and the site.
type operator struct {
	*cli
	cfg   Config
	store *store.Store
	site  relay.Site
	who   relay.Actor
}

// operate makes cmd a command on an existing store. It never creates a store.
func (c *cli) operate(cmd *cobra.Command, do func(ctx context.Context, o *operator, args []string) error) *cobra.Command {
	return c.onStore(cmd, true, do)
}

// onStore makes cmd a command on a store, which has to have a schema if filled is set. A
// SQLite file has to be there in any case, so that a wrong --data-dir is noticed.
func (c *cli) onStore(cmd *cobra.Command, filled bool, do func(ctx context.Context, o *operator, args []string) error) *cobra.Command {
	load := c.settingFlags(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		cfg, _, err := load()
		if err != nil {
			return err
		}
		s, err := c.openStore(cmd.Context(), cfg, filled || cfg.DatabaseURL == "")
		if err != nil {
			return err
		}
		defer func() {
			if cerr := s.Close(); err == nil {
				err = cerr
			}
		}()
		return do(cmd.Context(), &operator{cli: c, cfg: cfg, store: s, site: knownSite(cfg), who: relay.System()}, args)
	}
	return cmd
}

// openStore opens the store that the settings name.
func (c *cli) openStore(ctx context.Context, cfg Config, existing bool) (*store.Store, error) {
	s, err := store.Open(ctx, store.Options{
		URL: string(cfg.DatabaseURL), DirectURL: string(cfg.DatabaseDirectURL), DataDir: string(cfg.DataDir),
		AliasClaim: bool(cfg.AliasClaim), MaxAliases: cfg.MaxAliases.Limit(), NoCreate: existing,
		SpoolLimit: cfg.SpoolLimit.Limit(), Retention: cfg.Retention.Limit(),
		NodeName: string(cfg.NodeName), Version: relay.ThisBuild().Version, MaxConns: int(cfg.DatabaseMaxConns),
		MaxAliasStorage: cfg.MaxAliasStorage.Limit(), MinFree: cfg.MinFree.Limit(),
		Log: c.logger(cfg),
	})
	if err != nil && cfg.DatabaseURL != "" {
		err = databaseError(err)
	}
	return s, err
}

// databaseError adds advice to an error about a Postgres that cannot be reached or
// refuses the login.
func databaseError(err error) error {
	var network *net.OpError
	var refusal interface{ SQLState() string }
	switch {
	case errors.As(err, &network):
		return fmt.Errorf(databaseAway, err)
	case errors.As(err, &refusal) && (strings.HasPrefix(refusal.SQLState(), "28") || refusal.SQLState() == "3D000"):
		return fmt.Errorf(databaseRefuses, err)
	}
	return err
}

// jsonFlag adds --json to a read command.
func jsonFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print JSON")
}

// userFlag adds --user to a command; requireFlag checks that it was given.
func userFlag(cmd *cobra.Command, help string) *string {
	return cmd.Flags().String("user", "", help)
}

func requireFlag(flag, value string) error {
	if value == "" {
		return usagef(missingFlag, flag)
	}
	return nil
}

// printRows prints a list as a table or as a JSON array. It escapes the cells of a table
// for terminals.
func printRows[T any](w io.Writer, asJSON bool, head []string, rows []T, cells func(T) []string) error {
	if asJSON {
		if rows == nil {
			rows = []T{}
		}
		return printJSON(w, rows)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, strings.Join(head, "\t"))
	for _, r := range rows {
		line := cells(r)
		for i := range line {
			line[i] = record.SafeText(line[i])
		}
		fmt.Fprintln(table, strings.Join(line, "\t"))
	}
	return table.Flush()
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// when formats a time for people, "-" for the zero time.
func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

func (c *cli) auditCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "list the changes that accounts and operators made, newest first", Args: exactly()}
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
		return printRows(o.stdout, *asJSON, head, mapSlice(entries, record.OfAudit), func(a record.AuditEntry) []string {
			return []string{when(a.At.Time), a.Actor, a.Action, a.Target, a.Detail}
		})
	})
}

func (c *cli) backupCommand() *cobra.Command {
	return c.operate(&cobra.Command{
		Use: "backup FILE", Short: "copy the SQLite store to a new file, beside a running server", Args: exactly("FILE"),
		Long: `Writes a consistent copy of the SQLite store to FILE (mode 0600); the server may keep
running. FILE appears complete or not at all, and an existing file is never overwritten.
The host key is not in it: copy ssh_host_ed25519_key from the data dir too.
docs/operations.md describes how to restore.`,
		Example: "  relayd backup /backup/relay-$(date +%F).db",
	}, func(ctx context.Context, o *operator, args []string) error {
		if err := o.store.Backup(ctx, args[0]); err != nil {
			return err
		}
		o.report("backup written to %s", args[0])
		return nil
	})
}
