package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"relay"
	"relay/cli"
	"relay/record"
)

const noAlias = "there is no alias %s; `relayd alias list` shows them"

func (c *program) aliasCommand() *cobra.Command {
	add := c.forUser(&cobra.Command{
		Use: "add ALIAS --user NAME", Short: "make an alias; prints its URL", Args: cli.Takes("ALIAS", 1, 1),
		Example: "  relayd alias add stripe-dev --user alice",
	}, "account that owns the alias", func(ctx context.Context, o *operator, user string, args []string) error {
		if o.site.Reserved(args[0]) {
			return relay.Errorf(relay.CodeValidationFailed, "%q is a reserved name; choose another", args[0])
		}
		a, err := o.store.CreateAlias(ctx, o.who, args[0], user)
		if err != nil {
			return o.explainConflict(ctx, explainNotFound(err, noAccount, user), args[0])
		}
		fmt.Fprintln(o.stdout, o.site.AliasURL(a.Name))
		return nil
	})
	list := &cobra.Command{Use: "list", Short: "list the aliases", Example: "  relayd alias list --usage"}
	usage := usageFlag(list)
	listing(c, list, "NAME\tOWNER\tQUEUED\tEVENTS\tSTORED\tLAST EVENT\tURL", func(ctx context.Context, o *operator) ([]aliasRow, error) {
		return aliasRows(ctx, o, *usage)
	}, func(r aliasRow) aliasRow { return r }, func(r aliasRow) []string {
		owner := cmp.Or(r.Owner, "-")
		if r.OwnerRemoved {
			owner += " (removed)"
		}
		return slices.Concat([]string{r.Name, owner, strconv.Itoa(r.Queued)}, r.cells(), []string{whenOr(r.LastEventAt), r.URL})
	})
	transfer := c.forUser(&cobra.Command{
		Use: "transfer ALIAS --user NAME", Short: "give an alias to another account", Args: cli.Takes("ALIAS", 1, 1),
	}, "account that gets the alias", func(ctx context.Context, o *operator, user string, args []string) error {
		if _, err := o.accountOf(ctx, user); err != nil {
			return err
		}
		if _, err := o.store.TransferAlias(ctx, o.who, args[0], user); err != nil {
			return explainNotFound(err, noAlias, args[0])
		}
		o.report("alias %s belongs to %s now", args[0], user)
		return nil
	})
	remove := c.changing(&cobra.Command{
		Use: "rm ALIAS", Short: "remove an alias with its events, shares, members and tunnel", Args: cli.Takes("ALIAS", 1, 1),
	}, noAlias, "alias %s removed",
		func(ctx context.Context, o *operator, name string) error {
			return o.store.RemoveAlias(ctx, o.who, name)
		})
	return group("alias", "aliases: add, list, set, transfer, rm", add, list, c.aliasSet(), transfer, remove)
}

// explainConflict adds to the error about a taken name who has the name, or for which account and until when
// the name is reserved. It returns err unchanged if it cannot find the account.
func (o *operator) explainConflict(ctx context.Context, err error, name string) error {
	if conflict, ok := errors.AsType[*relay.Error](err); !ok || conflict.Code != relay.CodeConflict {
		return err
	}
	if user, until, kerr := o.store.KeptName(ctx, o.who, name); kerr == nil {
		if user == "" {
			return fmt.Errorf("the name %s is reserved until %s, because an alias of that name was removed, and so was the account that had it; choose another name until then", name, when(until))
		}
		return fmt.Errorf("the name %s is reserved for %s until %s, because an alias of that name was removed; `relayd alias add %[1]s --user %[2]s` creates it again, empty, and `relayd alias transfer %[1]s --user NAME` then transfers it", name, user, when(until))
	}
	aliases, aerr := o.store.Aliases(ctx, o.who)
	for i := range aliases {
		if aerr == nil && aliases[i].Name == name {
			return fmt.Errorf("the alias %s is there already and belongs to %s; `relayd alias transfer %[1]s --user NAME` gives it to another account", name, cmp.Or(aliases[i].OwnerName, "nobody"))
		}
	}
	return err
}

// aliasRow is an alias as stored, with the length of its queue. Only the running server knows whether the
// alias is online.
type aliasRow struct {
	Name         string          `json:"name"`
	URL          string          `json:"url"`
	Owner        string          `json:"owner"`
	OwnerRemoved bool            `json:"ownerRemoved"` // the account of the owner was removed; a new account may have the same name
	Queued       int             `json:"queued"`
	QueuedEvents int             `json:"queuedEvents"`
	LastEventAt  *record.Time    `json:"lastEventAt"`
	LastOnlineAt *record.Time    `json:"lastOnlineAt"`
	CreatedAt    record.Time     `json:"createdAt"`
	Settings     record.Settings `json:"settings"`
	usageCells
}

// usageCells are the columns of --usage; null in JSON without the flag.
type usageCells struct {
	Events      *int   `json:"events"`
	StoredBytes *int64 `json:"storedBytes"`
}

func usageFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("usage", false, "count events and stored bytes, most bytes first; slow with many events")
}

func usageOf(u relay.Usage) usageCells { return usageCells{&u.Events, &u.Bytes} }

func (u usageCells) cells() []string {
	if u.Events == nil {
		return []string{"-", "-"}
	}
	return []string{strconv.Itoa(*u.Events), relay.FormatBytes(*u.StoredBytes)}
}

// byBytes orders rows of --usage by stored bytes, the largest first.
func (u usageCells) byBytes(other usageCells) int {
	return cmp.Compare(*other.StoredBytes, *u.StoredBytes)
}

func aliasRows(ctx context.Context, o *operator, usage bool) ([]aliasRow, error) {
	aliases, err := o.store.Aliases(ctx, o.who)
	if err != nil {
		return nil, err
	}
	stats, err := o.store.AllQueueStats(ctx)
	if err != nil {
		return nil, err
	}
	unowned, err := o.store.UnownedAliases(ctx, o.who)
	if err != nil {
		return nil, err
	}
	ownerRemoved := map[int64]bool{}
	for i := range unowned {
		ownerRemoved[unowned[i].ID] = true
	}
	last, err := o.store.LastEvents(ctx, mapSlice(aliases, func(a relay.Alias) int64 { return a.ID }))
	if err != nil {
		return nil, err
	}
	var stored map[int64]relay.Usage
	if usage {
		if stored, err = o.store.Usage(ctx, o.who); err != nil {
			return nil, err
		}
	}
	rows := mapSlice(aliases, func(a relay.Alias) aliasRow {
		q := stats[a.ID]
		row := aliasRow{
			Name: a.Name, URL: o.site.AliasURL(a.Name), Owner: a.OwnerName, Queued: q.Queued, QueuedEvents: q.QueuedEvents,
			OwnerRemoved: ownerRemoved[a.ID], CreatedAt: record.Time{Time: a.CreatedAt}, Settings: record.OfSettings(a.Settings),
		}
		if at, some := last[a.ID]; some {
			row.LastEventAt = &record.Time{Time: at}
		}
		if !a.LastOnlineAt.IsZero() {
			row.LastOnlineAt = &record.Time{Time: a.LastOnlineAt}
		}
		if usage {
			row.usageCells = usageOf(stored[a.ID])
		}
		return row
	})
	if usage {
		slices.SortStableFunc(rows, func(a, b aliasRow) int { return a.byBytes(b.usageCells) })
	}
	return rows, nil
}

// tokenFromStdin is the argument for a verify token that is read from standard input.
const tokenFromStdin = record.KeyVerifyToken + "=-"

func (c *program) aliasSet() *cobra.Command {
	cmd := &cobra.Command{
		Use: "set ALIAS key=value...", Short: "change settings of an alias; `default` restores the server's value",
		Long:    "Changes settings of an alias. `default` restores the server's value.\n\n" + record.SettingsText(),
		Example: "  relayd alias set stripe-dev offlineStatus=503 autoDeliver=on responseTimeout=10m\n  relayd alias set meta-dev handshakes=meta verifyToken=- < token.txt",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return cli.Usage("%s takes an alias and its settings", cmd.CommandPath()).WithHint("%s", cmd.UseLine())
			}
			for _, pair := range args[1:] {
				if !strings.Contains(pair, "=") {
					return cli.Usage("%q is not key=value, such as offlineStatus=503 or autoDeliver=on", pair)
				}
			}
			return nil
		},
	}
	return c.operate(cmd, func(ctx context.Context, o *operator, args []string) error {
		token := ""
		if slices.Contains(args[1:], tokenFromStdin) { // other programs of the machine can read arguments, but not standard input
			line, err := io.ReadAll(io.LimitReader(os.Stdin, record.MaxVerifyToken+2))
			if err != nil {
				return fmt.Errorf("read %s from standard input: %w", record.KeyVerifyToken, err)
			}
			if token = strings.TrimRight(string(line), "\r\n"); token == "" {
				return cli.Usage("standard input is empty, and %s is read from there", record.KeyVerifyToken)
			}
		}
		_, err := o.store.SetAlias(ctx, o.who, args[0], func(s *relay.Settings) error {
			for _, pair := range args[1:] {
				key, value, _ := strings.Cut(pair, "=")
				if pair == tokenFromStdin {
					value = token
				}
				if err := record.SetSetting(s, key, value); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return explainNotFound(err, noAlias, args[0])
		}
		o.report("alias %s changed", args[0])
		return nil
	})
}
