package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"relay"
	"relay/record"
	"relay/store"
)

// operator is what a command works with that changes or reads a store beside the
// running server.
type operator struct {
	*cli
	cfg   Config
	store *store.Store
	site  relay.Site
	who   relay.Actor
}

// operate makes cmd a command on an existing store. Nothing is ever created.
func (c *cli) operate(cmd *cobra.Command, do func(ctx context.Context, o *operator, args []string) error) *cobra.Command {
	load := c.settingFlags(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		cfg, _, err := load()
		if err != nil {
			return err
		}
		s, err := c.openStore(cmd.Context(), cfg, true)
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
		MaxAliasStorage: cfg.MaxAliasStorage.Limit(), MinFree: cfg.MinFree.Limit(),
		Log: newLog(c.stderr, cfg),
	})
	if err != nil && cfg.DatabaseURL != "" {
		err = databaseFault(err)
	}
	return s, err
}

// databaseFault adds what to do to an error about a Postgres that does not let us in.
func databaseFault(err error) error {
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

func newLog(w io.Writer, cfg Config) *slog.Logger {
	opt := &slog.HandlerOptions{Level: slog.Level(cfg.LogLevel)}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opt))
	}
	return slog.New(slog.NewTextHandler(w, opt))
}

// jsonFlag adds --json to a read command.
func jsonFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print JSON")
}

// userFlag adds --user to a command; need checks that it was given.
func userFlag(cmd *cobra.Command, help string) *string {
	return cmd.Flags().String("user", "", help)
}

func need(flag, value string) error {
	if value == "" {
		return usagef(missingFlag, flag)
	}
	return nil
}

// printRows prints a list: a table for people or a JSON array. Text that came from
// outside is made safe for a terminal.
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

// when shows a time to people; "-" for none.
func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

func or(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
