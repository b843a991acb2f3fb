package cli

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"relay/record"
)

// changedMember is the output of the commands that change members, because the answer of the API has no body.
type changedMember struct {
	Alias string `json:"alias"`
	User  string `json:"user"`
}

func (f *Front) member() *cobra.Command {
	c := &cobra.Command{
		Use: "member", Short: "list, add and remove the members of an alias",
		Long: `List, add and remove the members of an alias. A member can open its tunnel, and see and replay
its events. Only the owner adds and removes members; a member can remove itself.`,
		Example: "  relay member add stripe-dev bob\n  relay member list stripe-dev\n  relay member rm stripe-dev bob",
		Args:    cobra.ArbitraryArgs, RunE: UnknownCommand, DisableFlagsInUseLine: true,
	}
	path := func(args []string) string {
		return "/aliases/" + url.PathEscape(AliasLabel(NormalAlias(args[0]))) + "/members"
	}
	list := &cobra.Command{Use: "list ALIAS", Short: "list the members of an alias", Example: "  relay member list stripe-dev", Args: Takes("alias", 1, 1)}
	c.AddCommand(Ask(f, list, Calling(http.MethodGet, path, nil), func(w *Printer, m *record.Member) error { return w.Line(m.User) }))
	change := func(use, short, method, done string) {
		sub := &cobra.Command{Use: use + " ALIAS USER", Short: short, Example: "  relay member " + use + " stripe-dev bob", Args: Takes("arguments: ALIAS and USER", 2, 2)}
		c.AddCommand(Ask(f, sub, func(ctx context.Context, api *API, args []string, _ func(json.RawMessage) error) (json.RawMessage, error) {
			if _, err := api.Call(ctx, method, path(args)+"/"+url.PathEscape(args[1]), nil); err != nil {
				return nil, err
			}
			return json.Marshal(changedMember{AliasLabel(NormalAlias(args[0])), args[1]})
		}, func(w *Printer, m *changedMember) error { return w.Line(m.User + done + m.Alias) }))
	}
	change("add", "let another account use an alias", http.MethodPut, " is a member of ")
	change("rm", "end the access of a member", http.MethodDelete, " is no longer a member of ")
	return c
}
