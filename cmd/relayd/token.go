package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay"
	"relay/cli"
	"relay/record"
)

func (c *program) tokenCommand() *cobra.Command {
	list := &cobra.Command{Use: "list", Short: "list the tokens; their secrets are not kept"}
	user := list.Flags().String("user", "", "only those of one account")
	listing(c, list, "ID\tUSER\tNAME\tSCOPES\tALIAS\tEXPIRES\tLAST USED", func(ctx context.Context, o *operator) ([]relay.Token, error) {
		tokens, err := o.store.Tokens(ctx, o.who, *user)
		return tokens, explainNotFound(err, noAccount, *user)
	}, func(t relay.Token) record.Token { return record.OfToken(t, "") }, func(t record.Token) []string {
		alias := "all"
		if t.Alias != nil {
			alias = *t.Alias
		}
		return []string{t.ID, t.User, cmp.Or(t.Name, "-"), strings.Join(t.Scopes, ","), alias, whenOr(t.ExpiresAt), whenOr(t.LastUsedAt)}
	})
	remove := c.changing(&cobra.Command{Use: "rm ID", Short: "revoke a token", Args: cli.Takes("ID", 1, 1)},
		"there is no token %s; `relayd token list` shows their ids", "token %s revoked",
		func(ctx context.Context, o *operator, id string) error { return o.store.RemoveToken(ctx, o.who, id) })
	return group("token", "API tokens: add, list, rm", c.tokenAdd(), list, remove)
}

func (c *program) tokenAdd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "add --user NAME", Short: "make an API token; stdout is the token and nothing else", Args: cli.Takes("", 0, 0),
		Example: "  relayd token add --user alice --scope events:read,events:replay --expires 30d",
	}
	name := cmd.Flags().String("name", "", "what it is for")
	scope := cmd.Flags().StringArray("scope", nil, "`list` of scopes, separated by commas, or given more than once; none = all")
	alias := cmd.Flags().String("alias", "", "the one alias that it may see; none = all of the account")
	expires := cmd.Flags().String("expires", "", "how long it is valid, such as 30d; none = for ever")
	return c.forUser(cmd, "whose token it is", func(ctx context.Context, o *operator, user string, _ []string) error {
		scopes := strings.Join(*scope, ",")
		for _, limit := range [][2]string{{"scope", scopes}, {"alias", *alias}, {"expires", *expires}} { // an unset variable in a script must not lift a limit
			if cmd.Flags().Changed(limit[0]) && strings.Trim(limit[1], ", ") == "" {
				return cli.Usage("--%s is empty; leave it out for a token without that limit", limit[0])
			}
		}
		allowed, err := relay.ParseScopes(words(scopes))
		if err != nil {
			return cli.Usage("%v", err)
		}
		t := relay.Token{Name: *name, Scopes: allowed, Alias: *alias}
		if *expires != "" {
			d, err := relay.ParseDuration(*expires)
			if err == nil && d <= 0 {
				err = fmt.Errorf("%q is over at once", *expires)
			}
			if err != nil {
				return cli.Usage("--expires: %v", err)
			}
			t.ExpiresAt = time.Now().Add(d)
		}
		acc, err := o.accountOf(ctx, user)
		if err != nil {
			return err
		}
		t.Account, t.AccountName = acc.ID, acc.Name
		_, secret, err := o.store.CreateToken(ctx, o.who, t)
		if err != nil {
			return explainNotFound(err, noAlias, *alias)
		}
		fmt.Fprintln(o.stdout, secret)
		return nil
	})
}
