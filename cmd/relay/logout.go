package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"relay"
	"relay/client"
	"relay/record"
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
	api, err := client.NewAPI(login.BaseURL, login.Token, relay.ThisBuild().Version)
	if err != nil {
		return err
	}
	defer api.Close()
	var keyErr error
	if withKey {
		keyErr = removeKey(ctx, api, dialer)
	}
	err = p.endToken(ctx, api, login)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// The login is removed here whatever the relay answered.
	if err := p.logins().Forget(login.Server); err != nil {
		return err
	}
	if own := p.logins().OwnKey(); withKey && keyErr == nil && login.Key == own {
		_ = os.Remove(own)
		_ = os.Remove(own + ".pub")
	}
	return p.loggedOut(login, withKey, err, keyErr)
}

// endToken revokes the token that the login made. A token that was passed by
// --with-token is not revoked, because others may use it, and the person is told.
func (p *program) endToken(ctx context.Context, api *client.API, login *client.Login) error {
	if login.TokenID == "" {
		me, err := api.Me(ctx)
		var e *client.Error
		if errors.As(err, &e) && e.Exit == client.ExitRefused { // revoked already
			return nil
		}
		if err != nil { // the id is only informative
			me = &record.Me{}
		}
		p.say(madeElsewhere(login, me.TokenID))
		return nil
	}
	revoked, err := api.RevokeToken(ctx, login.TokenID)
	if err == nil && !revoked {
		p.say(tokenStays(login))
	}
	return err
}

// loggedOut reports the outcome and what stays valid at the relay.
func (p *program) loggedOut(login *client.Login, withKey bool, tokenErr, keyErr error) error {
	account := login.BaseURL + "/account"
	if tokenErr != nil {
		return &client.Error{Exit: client.ExitUnreachable, Text: stillValid(login), Cause: tokenErr, Hint: "revoke it at " + account}
	}
	if keyErr != nil {
		return &client.Error{Exit: client.ExitFailure, Text: stillLogsIn(login), Cause: keyErr, Hint: "remove it at " + account}
	}
	if err := p.printer().line(loggedOut(login)); err != nil {
		return err
	}
	if !withKey {
		p.say(keyStays)
	}
	return nil
}

// removeKey removes the key that is offered first from the account.
func removeKey(ctx context.Context, api *client.API, dialer *client.Dialer) error {
	key, err := dialer.FirstKey()
	if err != nil {
		return err
	}
	return api.RemoveKey(ctx, key)
}
