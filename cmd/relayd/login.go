package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"relay"
)

// How long one-time links live.
const (
	loginLinkTTL = 15 * time.Minute
	inviteTTL    = 3 * 24 * time.Hour
)

func (c *cli) loginLinkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "login-link --user NAME", Short: "print a one-time dashboard link, valid for 15 minutes", Args: exactly(),
	}
	user := userFlag(cmd, "who will be signed in")
	return c.operate(cmd, func(ctx context.Context, o *operator, _ []string) error {
		if err := need("user", *user); err != nil {
			return err
		}
		secret, err := o.store.CreateLoginLink(ctx, o.who, *user, loginLinkTTL)
		if err != nil {
			return missing(err, noAccount, *user)
		}
		fmt.Fprintln(o.stdout, o.site.URL("/login/"+secret))
		return nil
	})
}

func (c *cli) inviteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "invite NAME", Short: "print a one-time link by which a person joins, valid for 3 days", Args: exactly("NAME"),
		Long: "Prints a one-time link, valid for 3 days. The account is made if there is none of that name.",
	}
	return c.operate(cmd, func(ctx context.Context, o *operator, args []string) error {
		_, err := o.store.AccountByName(ctx, args[0])
		if errors.Is(err, relay.ErrNotFound) {
			if _, err = o.store.CreateAccount(ctx, o.who, args[0], false); err == nil {
				o.say("account %s made", args[0])
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
