package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay"
	"relay/cli"
	"relay/record"
)

const noAccount = "there is no account %s; `relayd user list` shows them"

func (c *program) userCommand() *cobra.Command {
	list := &cobra.Command{Use: "list", Short: "list the accounts", Example: "  relayd user list --usage"}
	usage := usageFlag(list)
	listing(c, list, "NAME\tADMIN\tEVENTS\tSTORED\tLIMIT\tQUEUE LIMIT\tMADE", func(ctx context.Context, o *operator) ([]record.User, error) {
		return o.users(ctx, *usage)
	}, func(u record.User) record.User { return u }, func(u record.User) []string {
		admin, limit, queue := "-", "-", "-"
		if u.Admin {
			admin = "admin"
		}
		if u.StorageLimit != nil {
			limit = relay.FormatBytes(*u.StorageLimit)
		}
		if u.QueueLimit != nil {
			queue = strconv.Itoa(*u.QueueLimit)
		}
		return slices.Concat([]string{u.Name, admin}, usageCells{u.Events, u.StoredBytes}.cells(), []string{limit, queue, when(u.CreatedAt.Time)})
	})
	remove := c.changing(&cobra.Command{
		Use: "rm NAME", Short: "remove an account with its keys, tokens and tunnels; its aliases stay for an admin to transfer", Args: cli.Takes("NAME", 1, 1),
	}, noAccount, "", func(ctx context.Context, o *operator, name string) error {
		if err := o.store.RemoveAccount(ctx, o.who, name); err != nil {
			return err
		}
		o.report("account %s removed; `relayd alias list` shows aliases to hand on", name)
		if rest, err := o.store.Accounts(ctx, o.who); err == nil && !anyAdmin(rest) {
			o.report(noAdminLeft)
		}
		return nil
	})
	return group("user", "accounts: add, list, set, rm", c.userAdd(), list, c.userSet(), remove)
}

// users lists the accounts with their limits. With usage, it adds the stored bytes of all their aliases and
// lists the largest first.
func (o *operator) users(ctx context.Context, usage bool) ([]record.User, error) {
	accounts, err := o.store.Accounts(ctx, o.who)
	if err != nil {
		return nil, err
	}
	var sums map[int64]relay.Usage
	if usage {
		if sums, err = o.usageByAccount(ctx); err != nil {
			return nil, err
		}
	}
	rows := mapSlice(accounts, func(a relay.Account) record.User {
		has := relay.AccountUsage{Bytes: sums[a.ID].Bytes, Limit: o.cfg.MaxAccountStorage, QueueLimit: o.cfg.MaxAccountQueue}
		if a.MaxStorage != nil {
			has.Limit = *a.MaxStorage
		}
		if a.MaxQueue != nil {
			has.QueueLimit = int(*a.MaxQueue)
		}
		u := record.OfAccountUsage(a, has)
		if u.Queued = nil; !usage {
			u.StoredBytes = nil
			return u
		}
		events := sums[a.ID].Events
		u.Events = &events
		return u
	})
	if usage {
		slices.SortStableFunc(rows, func(a, b record.User) int { return cmp.Compare(*b.StoredBytes, *a.StoredBytes) })
	}
	return rows, nil
}

// usageByAccount adds up the usage of all aliases of each account.
func (o *operator) usageByAccount(ctx context.Context) (map[int64]relay.Usage, error) {
	stored, err := o.store.Usage(ctx, o.who)
	if err != nil {
		return nil, err
	}
	aliases, err := o.store.Aliases(ctx, o.who)
	sums := map[int64]relay.Usage{}
	for i := range aliases {
		a, sum := stored[aliases[i].ID], sums[aliases[i].Owner]
		sums[aliases[i].Owner] = relay.Usage{Events: sum.Events + a.Events, Bytes: sum.Bytes + a.Bytes}
	}
	return sums, err
}

// userSet returns the command that changes the limits of an account.
func (c *program) userSet() *cobra.Command {
	const storage, queue = "max-account-storage", "max-account-queue"
	cmd := &cobra.Command{
		Use: "set NAME key=value...", Short: "change the limits of an account; `default` restores the server's value", Args: cli.Takes("arguments, NAME and key=value", 2, 3),
		Example: "  relayd user set alice " + storage + "=20GiB " + queue + "=5000\n  relayd user set alice " + storage + "=default",
		Long: `Gives an account its own --max-account-storage (bytes that all its aliases together may store) or
its own --max-account-queue (attempts that may be queued at all of them). off means no limit;
default restores the server's limit. A running server applies it within 2 seconds.`,
	}
	return c.operate(cmd, func(ctx context.Context, o *operator, args []string) error {
		limits := map[string]*int64{}
		for _, arg := range args[1:] {
			name, value, ok := strings.Cut(arg, "=")
			key, parse := "maxAccountStorage", parseSize
			switch {
			case ok && (name == storage || name == key):
			case ok && (name == queue || name == "maxAccountQueue"):
				key, parse = "maxAccountQueue", parseCount
			default:
				return cli.Usage("%q is not %s=SIZE or %s=COUNT", arg, storage, queue).WithHint("%s alice %s=20GiB", cmd.CommandPath(), storage)
			}
			if _, twice := limits[key]; twice {
				return cli.Usage("%s is given twice", name)
			}
			limit, err := ownLimit(name, value, parse)
			if err != nil {
				return err
			}
			limits[key] = limit
		}
		if _, err := o.store.SetAccount(ctx, o.who, args[0], limits); err != nil {
			return explainNotFound(err, noAccount, args[0])
		}
		o.report("account %s changed", args[0])
		return nil
	})
}

// ownLimit reads the limit of an account; nil = the limit of the server, 0 = no limit.
func ownLimit(key, value string, parse func(string) (any, error)) (*int64, error) {
	var limit int64
	switch value {
	case "default", "null":
		return nil, nil
	case off:
		return &limit, nil
	}
	n, err := parse(value)
	if err != nil {
		return nil, cli.Usage("%s: %s", key, err)
	}
	switch n := n.(type) {
	case int64:
		limit = n
	case int:
		limit = int64(n)
	}
	if limit == 0 {
		return nil, cli.Usage("%s: %q would allow nothing; write off for no limit", key, value)
	}
	return &limit, nil
}

func (c *program) userAdd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "add NAME", Short: "make an account", Args: cli.Takes("NAME", 1, 1),
		Example: "  relayd user add alice --key alice.pub",
	}
	admin := cmd.Flags().Bool("admin", false, "the account may manage the others")
	files := cmd.Flags().StringArray("key", nil, "`FILE` of public keys in authorized_keys form, - = stdin; may be repeated")
	return c.operate(cmd, func(ctx context.Context, o *operator, args []string) error {
		var keys []publicKey
		for _, file := range *files {
			found, err := readKeyFile(file)
			if err != nil {
				return err
			}
			keys = appendNew(keys, found...)
		}
		if err := requireNewKeys(ctx, o.store, keys); err != nil {
			return fmt.Errorf("%w; no account was made", err)
		}
		acc, err := o.store.CreateAccount(ctx, o.who, args[0], *admin)
		if err != nil {
			return err
		}
		o.report("account %s made", acc.Name)
		return o.addKeys(ctx, acc.Name, keys)
	})
}

// accountOf returns an account by name. Its error is a message for the operator.
func (o *operator) accountOf(ctx context.Context, name string) (relay.Account, error) {
	acc, err := o.store.AccountByName(ctx, name)
	return acc, explainNotFound(err, noAccount, name)
}

// Lifetimes of one-time links.
const (
	loginLinkTTL = 15 * time.Minute
	inviteTTL    = 3 * 24 * time.Hour
)

func (c *program) loginLinkCommand() *cobra.Command {
	return c.forUser(&cobra.Command{
		Use: "login-link --user NAME", Short: "print a one-time dashboard link, valid for 15 minutes", Args: cli.Takes("", 0, 0),
	}, "account to log in", func(ctx context.Context, o *operator, user string, _ []string) error {
		secret, err := o.store.CreateLoginLink(ctx, o.who, user, loginLinkTTL)
		if err != nil {
			return explainNotFound(err, noAccount, user)
		}
		fmt.Fprintln(o.stdout, o.site.URL("/login/"+secret))
		return nil
	})
}

func (c *program) inviteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "invite NAME", Short: "print a one-time invite link, valid for 3 days", Args: cli.Takes("NAME", 1, 1),
		Long: "Prints a one-time link, valid for 3 days. If no account has that name, relayd creates it.",
	}
	return c.operate(cmd, func(ctx context.Context, o *operator, args []string) error {
		_, err := o.store.AccountByName(ctx, args[0])
		if errors.Is(err, relay.ErrNotFound) {
			if _, err = o.store.CreateAccount(ctx, o.who, args[0], false); err == nil {
				o.report("account %s made", args[0])
			}
		}
		if err != nil {
			return err
		}
		secret, err := o.store.CreateInvite(ctx, o.who, args[0], inviteTTL)
		if err != nil {
			return err
		}
		fmt.Fprintln(o.stdout, o.site.URL("/invite/"+secret))
		return nil
	})
}
