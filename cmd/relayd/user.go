package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"relay"
	"relay/record"
)

func (c *cli) userCommand() *cobra.Command {
	return group("user", "accounts: add, list, rm", c.userAdd(), c.userList(), c.userRemove())
}

func (c *cli) userAdd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "add NAME", Short: "make an account", Args: exactly("NAME"),
		Example: "  relayd user add alice --key alice.pub",
	}
	admin := cmd.Flags().Bool("admin", false, "the account may manage the others")
	file := cmd.Flags().String("key", "", "file of public keys in authorized_keys form, - = stdin")
	return c.operate(cmd, func(ctx context.Context, o *operator, args []string) error {
		var keys []publicKey
		if *file != "" {
			var err error
			if keys, err = readKeyFile(*file); err != nil {
				return err
			}
		}
		if err := o.areNew(ctx, keys); err != nil {
			return fmt.Errorf("%w; no account was made", err)
		}
		acc, err := o.store.CreateAccount(ctx, o.who, args[0], *admin)
		if err != nil {
			return err
		}
		o.say("account %s made", acc.Name)
		return o.addKeys(ctx, acc.Name, keys)
	})
}

func (c *cli) userList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "list the accounts", Args: exactly()}
	asJSON := jsonFlag(cmd)
	return c.operate(cmd, func(ctx context.Context, o *operator, _ []string) error {
		accounts, err := o.store.Accounts(ctx, o.who)
		if err != nil {
			return err
		}
		rows := each(accounts, record.OfAccount)
		return printRows(o.stdout, *asJSON, []string{"NAME", "ADMIN", "MADE"}, rows, func(u record.User) []string {
			admin := "-"
			if u.Admin {
				admin = "admin"
			}
			return []string{u.Name, admin, when(u.CreatedAt.Time)}
		})
	})
}

func (c *cli) userRemove() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm NAME", Short: "remove an account: tunnels cut, tokens dead, aliases kept for an admin to hand on",
		Args: exactly("NAME"),
	}
	return c.operate(cmd, func(ctx context.Context, o *operator, args []string) error {
		if err := o.store.RemoveAccount(ctx, o.who, args[0]); err != nil {
			return missing(err, noAccount, args[0])
		}
		o.say("account %s removed; `relayd alias list` shows aliases to hand on", args[0])
		if rest, err := o.store.Accounts(ctx, o.who); err == nil && !anyAdmin(rest) {
			o.say(noAdminLeft)
		}
		return nil
	})
}

// each maps a list.
func each[A, B any](list []A, f func(A) B) []B {
	out := make([]B, len(list))
	for i, a := range list {
		out[i] = f(a)
	}
	return out
}

// accountOf finds an account by name, in words for people.
func (o *operator) accountOf(ctx context.Context, name string) (relay.Account, error) {
	acc, err := o.store.AccountByName(ctx, name)
	return acc, missing(err, noAccount, name)
}
