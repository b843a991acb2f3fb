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
	list := &cobra.Command{Use: "list", Short: "list the tokens, without their values"}
	user := list.Flags().String("user", "", "list only those of one account")
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
	remove := c.operate(&cobra.Command{
		Use: "rm ID|TOKEN", Short: "revoke a token by its id, or by the token itself", Args: cli.Takes("ID or TOKEN", 1, 1),
	}, func(ctx context.Context, o *operator, args []string) error {
		id := args[0]
		if strings.HasPrefix(id, tokenPrefix) { // messages and the audit log must not repeat a token
			owner, err := o.store.TokenOwner(ctx, id)
			if err != nil {
				return explainNotFound(err, "no account has that token, or it has expired: it opens nothing")
			}
			id = owner.Credential
		}
		if err := o.store.RemoveToken(ctx, o.who, id); err != nil {
			return explainNotFound(err, "there is no token %s; `relayd token list` shows their ids", id)
		}
		o.report("token %s revoked", id)
		return nil
	})
	return group("token", "API tokens: add, list, rm", c.tokenAdd(), list, remove)
}

// tokenPrefix begins every token.
const tokenPrefix = "rly_"

func (c *program) tokenAdd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "add --user NAME", Short: "make an API token; stdout is the token and nothing else", Args: cli.Takes("", 0, 0),
		Example: "  relayd token add --user alice --scope events:read,events:replay --expires 30d",
	}
	name := cmd.Flags().String("name", "", "name of the token in lists, such as its purpose")
	scope := cmd.Flags().StringArray("scope", nil, "`list` of scopes, separated by commas; may be repeated; none = all")
	alias := cmd.Flags().String("alias", "", "limit the token to one alias; none = all aliases of the account")
	expires := cmd.Flags().String("expires", "", "how long it is valid, such as 30d; none = no expiry")
	return c.forUser(cmd, "account of the token", func(ctx context.Context, o *operator, user string, _ []string) error {
		scopes := strings.Join(*scope, ",")
		for _, limit := range [][2]string{{"scope", scopes}, {"alias", *alias}, {"expires", *expires}} { // an unset variable of a script must not lift a limit
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
