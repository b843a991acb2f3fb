package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay"
	"relay/record"
)

func (c *cli) tokenCommand() *cobra.Command {
	return group("token", "API tokens: add, list, rm", c.tokenAdd(), c.tokenList(), c.tokenRemove())
}

func (c *cli) tokenAdd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "add --user NAME", Short: "make an API token; stdout is the token and nothing else", Args: exactly(),
		Example: "  relayd token add --user alice --scope events:read,events:replay --expires 30d",
	}
	user := userFlag(cmd, "whose token it is")
	name := cmd.Flags().String("name", "", "what it is for")
	scope := cmd.Flags().String("scope", "", "scopes, separated by commas; none = all")
	alias := cmd.Flags().String("alias", "", "the one alias that it may see; none = all of the account")
	expires := cmd.Flags().String("expires", "", "how long it is valid, such as 30d; none = for ever")
	return c.operate(cmd, func(ctx context.Context, o *operator, _ []string) error {
		if err := requireFlag("user", *user); err != nil {
			return err
		}
		for _, limit := range []string{"scope", "alias"} { // an unset variable in a script must not lift a limit
			if f := cmd.Flags().Lookup(limit); f.Changed && strings.Trim(f.Value.String(), ", ") == "" {
				return usagef("--%s is empty; leave it out for a token without that limit", limit)
			}
		}
		t, err := newToken(*name, *scope, *alias, *expires)
		if err != nil {
			return err
		}
		acc, err := o.accountOf(ctx, *user)
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

func newToken(name, scope, alias, expires string) (relay.Token, error) {
	words := strings.FieldsFunc(scope, func(r rune) bool { return r == ',' || r == ' ' })
	scopes, err := relay.ParseScopes(words)
	if err != nil {
		return relay.Token{}, &usageError{err: err}
	}
	t := relay.Token{Name: name, Scopes: scopes, Alias: alias}
	if expires != "" {
		d, err := relay.ParseDuration(expires)
		if err == nil && d <= 0 {
			err = fmt.Errorf("%q is over at once", expires)
		}
		if err != nil {
			return relay.Token{}, usagef("--expires: %w", err)
		}
		t.ExpiresAt = time.Now().Add(d)
	}
	return t, nil
}

func (c *cli) tokenList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "list the tokens; their secrets are not kept", Args: exactly()}
	user := userFlag(cmd, "only those of one account")
	asJSON := jsonFlag(cmd)
	return c.operate(cmd, func(ctx context.Context, o *operator, _ []string) error {
		tokens, err := o.store.Tokens(ctx, o.who, *user)
		if err != nil {
			return explainNotFound(err, noAccount, *user)
		}
		rows := mapSlice(tokens, func(t relay.Token) record.Token { return record.OfToken(t, "") })
		head := []string{"ID", "USER", "NAME", "SCOPES", "ALIAS", "EXPIRES", "LAST USED"}
		return printRows(o.stdout, *asJSON, head, rows, func(t record.Token) []string {
			alias := "all"
			if t.Alias != nil {
				alias = *t.Alias
			}
			return []string{t.ID, t.User, cmp.Or(t.Name, "-"), strings.Join(t.Scopes, ","), alias, whenOr(t.ExpiresAt), whenOr(t.LastUsedAt)}
		})
	})
}

func (c *cli) tokenRemove() *cobra.Command {
	cmd := &cobra.Command{Use: "rm ID", Short: "revoke a token", Args: exactly("ID")}
	return c.operate(cmd, func(ctx context.Context, o *operator, args []string) error {
		if err := o.store.RemoveToken(ctx, o.who, args[0]); err != nil {
			return explainNotFound(err, noToken, args[0])
		}
		o.report("token %s revoked", args[0])
		return nil
	})
}
