package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"relay"
	"relay/cli"
	"relay/record"
	"relay/store"
)

// operator holds the store and the site for an operator command. A running server may use the same store.
type operator struct {
	*program
	cfg   Config
	store *store.Store
	site  relay.Site
	who   relay.Actor
}

// action is the work of a command on a store.
type action func(ctx context.Context, o *operator, args []string) error

// operate makes cmd a command on an existing store. It never creates a store.
func (c *program) operate(cmd *cobra.Command, do action) *cobra.Command {
	return c.onStore(cmd, true, do)
}

// onStore makes cmd a command on a store. filled requires that the store has a schema. A SQLite file must
// exist in any case, because a wrong --data-dir must be an error.
func (c *program) onStore(cmd *cobra.Command, filled bool, do action) *cobra.Command {
	return c.withSettings(cmd, false, func(ctx context.Context, cfg Config, list []*setting, args []string) error {
		if err := checkServedStore(cfg); err != nil {
			return err
		}
		return untilInterrupted(ctx, func() error {
			s, err := c.openStore(ctx, cfg, filled || cfg.DatabaseURL == "")
			if err != nil {
				return err
			}
			if note := cmp.Or(noteUnknownStore(cfg), noteDefaultStore(cfg, list, s.Served)); note != "" {
				c.report("%s", note)
			}
			err = do(ctx, &operator{program: c, cfg: cfg, store: s, site: knownSite(cfg), who: relay.System()}, args)
			if cerr := s.Close(); err == nil {
				err = cerr
			}
			return err
		})
	})
}

// untilInterrupted runs a command on the store. When a signal has ended ctx, it waits at most stopGrace for
// the command: a statement ends only when the database answers, and a migration may take minutes.
func untilInterrupted(ctx context.Context, command func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- command() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(stopGrace):
		return errors.New("interrupted; the database has not answered in time, and may still complete the operation")
	}
}

// openStore opens the store that the settings name. If existing is true, it does not create one.
func (c *program) openStore(ctx context.Context, cfg Config, existing bool) (*store.Store, error) {
	address, _ := connectionURL(cfg.DatabaseURL)
	direct, _ := connectionURL(cfg.DatabaseDirectURL)
	s, err := store.Open(ctx, store.Options{
		URL: address, DirectURL: direct, DataDir: cfg.DataDir,
		AliasClaim: cfg.AliasClaim, MaxAliases: cfg.MaxAliases, MaxShareAge: cfg.MaxShareAge, NoCreate: existing, SecretKeys: cfg.SecretKeys, Site: knownSite(cfg),
		SpoolLimit: cfg.SpoolLimit, Retention: cfg.Retention,
		NodeName: cfg.NodeName, Version: relay.ThisBuild().Version, MaxConns: cfg.DatabaseMaxConns,
		MaxAliasStorage: cfg.MaxAliasStorage, MaxAccountStorage: cfg.MaxAccountStorage, AccountLimits: true, MaxAccountQueue: cfg.MaxAccountQueue, MinFree: max(cfg.MinFree, 0),
		Log: c.logger(cfg),
	})
	var network *net.OpError
	var refusal interface{ SQLState() string }
	switch {
	case err == nil:
		return s, nil
	case cfg.DatabaseURL == "":
	case errors.As(err, &network):
		err = fmt.Errorf("%w; start Postgres there, or correct --database-url (RELAY_DATABASE_URL)", err)
	case errors.As(err, &refusal) && (refusal.SQLState() == "42704" || refusal.SQLState() == "08P01"):
		err = fmt.Errorf("%w; leave that parameter out of --database-url (RELAY_DATABASE_URL)", err)
	case errors.As(err, &refusal) && (strings.HasPrefix(refusal.SQLState(), "28") || refusal.SQLState() == "3D000"):
		err = fmt.Errorf("%w; correct user, password or database name of --database-url (RELAY_DATABASE_URL)", err)
	}
	return nil, err
}

// listing makes cmd a command that lists rows, as a table or as JSON. Its function parameters return the rows,
// the JSON form of a row, and the cells of a row in the table.
func listing[A, B any](c *program, cmd *cobra.Command, head string, rows func(context.Context, *operator) ([]A, error), of func(A) B, cells func(B) []string) *cobra.Command {
	cmd.Args = cli.Takes("", 0, 0)
	asJSON := jsonFlag(cmd)
	return c.operate(cmd, func(ctx context.Context, o *operator, _ []string) error {
		list, err := rows(ctx, o)
		if err != nil {
			return err
		}
		return printRows(o.stdout, *asJSON, head, mapSlice(list, of), cells)
	})
}

// changing makes cmd a command that changes the object named by its argument. notFound is the error if there is
// no such object. Afterwards the command prints done on stderr, if that is not empty.
func (c *program) changing(cmd *cobra.Command, notFound, done string, change func(ctx context.Context, o *operator, name string) error) *cobra.Command {
	return c.operate(cmd, func(ctx context.Context, o *operator, args []string) error {
		if err := change(ctx, o, args[0]); err != nil {
			return explainNotFound(err, notFound, args[0])
		}
		if done != "" {
			o.report(done, args[0])
		}
		return nil
	})
}

// forUser makes cmd a command that requires the flag --user; help is the description of the flag.
func (c *program) forUser(cmd *cobra.Command, help string, do func(ctx context.Context, o *operator, user string, args []string) error) *cobra.Command {
	user := cmd.Flags().String("user", "", help)
	return c.operate(cmd, func(ctx context.Context, o *operator, args []string) error {
		if *user == "" {
			return cli.Usage("missing --user")
		}
		return do(ctx, o, *user, args)
	})
}

// jsonFlag adds --json to a read command.
func jsonFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print JSON")
}

// printRows prints a list as a table or as a JSON array. It escapes the cells of a table
// for terminals.
func printRows[T any](w io.Writer, asJSON bool, head string, rows []T, cells func(T) []string) error {
	if asJSON {
		return printJSON(w, rows)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, head)
	for _, r := range rows {
		fmt.Fprintln(table, strings.Join(mapSlice(cells(r), record.SafeText), "\t"))
	}
	return table.Flush()
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// when formats a time, "-" for the zero time.
func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return record.ZonedTime(t)
}

func whenOr(t *record.Time) string {
	if t == nil {
		return "-"
	}
	return when(t.Time)
}

// mapSlice returns the results of f for the items of a list.
func mapSlice[A, B any](list []A, f func(A) B) []B {
	out := make([]B, len(list))
	for i, a := range list {
		out[i] = f(a)
	}
	return out
}

// explainNotFound replaces a not-found error by a message that names the missing object.
func explainNotFound(err error, format string, args ...any) error {
	if errors.Is(err, relay.ErrNotFound) {
		return fmt.Errorf(format, args...)
	}
	return err
}

func (c *program) auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "audit", Short: "list the changes that accounts and operators made, newest first",
		Example: "  relayd audit --since 24h --json",
	}
	n := cmd.Flags().IntP("number", "n", 50, "how many entries; all with --since, unless -n is set")
	since := cmd.Flags().String("since", "", "only entries since `T`: a time, or a duration before now such as 24h")
	return listing(c, cmd, "WHEN\tWHO\tACTION\tTARGET\tDETAIL", func(ctx context.Context, o *operator) ([]relay.AuditEntry, error) {
		if *n < 1 {
			return nil, cli.Usage("-n: expected a number above 0")
		}
		if *since == "" {
			return o.store.Audit(ctx, o.who, *n)
		}
		from, ok := record.ParseTime(*since)
		if !ok {
			return nil, cli.Usage("--since: %s", record.ExpectedTime)
		}
		most := math.MaxInt
		if cmd.Flags().Changed("number") {
			most = *n
		}
		list, err := o.store.Audit(ctx, o.who, most)
		return slices.DeleteFunc(list, func(e relay.AuditEntry) bool { return e.At.Before(from) }), err
	}, record.OfAudit, func(a record.AuditEntry) []string {
		return []string{when(a.At.Time), a.Actor, a.Action, a.Target, a.Detail}
	})
}

func (c *program) backupCommand() *cobra.Command {
	return c.operate(&cobra.Command{
		Use: "backup FILE", Short: "copy the SQLite store to a new file; the server may be running", Args: cli.Takes("FILE", 1, 1),
		Long: `Writes a consistent copy of the SQLite store to FILE (mode 0600); the server may keep
running. FILE appears complete or not at all, and an existing file is never overwritten.
The copy does not contain the host key: copy ssh_host_ed25519_key from the data dir too.
docs/backup.md describes how to restore.`,
		Example: "  relayd backup /backup/relay-$(date +%F).db",
	}, func(ctx context.Context, o *operator, args []string) error {
		if err := o.store.Backup(ctx, args[0]); err != nil {
			return err
		}
		o.report("backup written to %s", args[0])
		return nil
	})
}

// migrateCommand returns the command that migrates the store. A SQLite file must exist.
func (c *program) migrateCommand() *cobra.Command {
	status := &cobra.Command{Use: "status", Short: "print the schema version of the store and of this program", Args: cli.Takes("", 0, 0)}
	asJSON := jsonFlag(status)
	c.onStore(status, false, func(ctx context.Context, o *operator, _ []string) error {
		have, want, err := o.store.Schema(ctx)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(o.stdout, struct {
				Have    int64 `json:"have"`
				Want    int64 `json:"want"`
				Current bool  `json:"current"`
			}{have, want, have == want})
		}
		advice := "run `relayd migrate`, or start the server, which does it too"
		if have == want {
			advice = "current"
		} else if have > want {
			advice = "newer than this build, which refuses to touch it; use a newer relayd"
		}
		_, err = fmt.Fprintf(o.stdout, "schema %d, this build wants %d: %s\n", have, want, advice)
		return err
	})
	cmd := &cobra.Command{Use: "migrate", Short: "migrate the store to the schema of this version", Args: noSuchCommand}
	cmd.AddCommand(status)
	return c.onStore(cmd, false, func(ctx context.Context, o *operator, _ []string) error {
		from, to, err := o.store.Migrate(ctx)
		if err == nil {
			fmt.Fprintf(o.stdout, "schema %d -> %d\n", from, to)
		}
		return err
	})
}
