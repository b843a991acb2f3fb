package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"relay/client"
)

func (p *program) logout() *cobra.Command {
	c := &cobra.Command{Use: "logout", Short: logoutShort, Long: logoutLong, Example: logoutExample, Args: noArgs}
	withKey := c.Flags().Bool("key", false, flagLogoutKey)
	c.RunE = func(c *cobra.Command, _ []string) error { return p.runLogout(c.Context(), *withKey) }
	return c
}

func (p *program) runLogout(ctx context.Context, withKey bool) error {
	dialer, err := p.dialer(nil)
	if err != nil {
		return err
	}
	login, err := p.loginAt(dialer)
	if err != nil {
		return err
	}
	if login == nil {
		addr, _ := dialer.Addr()
		return client.Errorf(client.ExitFailure, "you are not logged in at %s", addr).WithHint("relay login URL")
	}
	api, err := client.NewAPI(login.BaseURL, login.Token, buildVersion())
	if err != nil {
		return err
	}
	revoked := p.revoke(ctx, api, dialer, login, withKey)
	// Whatever the relay said: nothing of the login stays here.
	if err := p.logins().Forget(login.Server); err != nil {
		return err
	}
	own := p.logins().OwnKey()
	if withKey && revoked == nil && login.Key == own {
		_ = os.Remove(own)
		_ = os.Remove(own + ".pub")
	}
	if revoked != nil {
		return &client.Error{
			Exit: client.ExitUnreachable, Text: stillValid(login), Cause: revoked,
			Hint: "revoke it at " + login.BaseURL + "/account",
		}
	}
	if err := p.printer().line(loggedOut(login)); err != nil {
		return err
	}
	if !withKey {
		p.say(keyStays)
	}
	return nil
}

// revoke takes token and, if that is wanted, key from the account.
func (p *program) revoke(ctx context.Context, api *client.API, dialer *client.Dialer, login *client.Login, withKey bool) error {
	if withKey {
		key, err := dialer.FirstKey()
		if err == nil {
			err = api.RemoveKey(ctx, key)
		}
		if err != nil {
			return err
		}
	}
	if login.TokenID == "" {
		p.say(tokenStays(login))
		return nil
	}
	return api.RemoveToken(ctx, login.TokenID)
}
