package main

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"relay/client"
	"relay/record"
)

func (p *program) aliases() *cobra.Command {
	c := &cobra.Command{Use: "aliases", Short: aliasesShort, Example: aliasesExample, Args: noArgs}
	return p.ask(c, getting(func([]string) string { return "/aliases" }),
		decoded(func(w *printer, a *record.Alias) error { return w.line(aliasLine(a)) }))
}

func (p *program) replayQueued() *cobra.Command {
	c := &cobra.Command{Use: "replay-queued ALIAS", Short: queuedShort, Example: queuedExample, Args: oneArg("alias")}
	return p.ask(c,
		func(ctx context.Context, api *client.API, args []string, out io.Writer) error {
			return api.Call(ctx, http.MethodPost, "/aliases/"+url.PathEscape(client.NormalAlias(args[0]))+"/replay-queued", nil, out)
		},
		decoded(func(w *printer, r *record.Released) error { return w.line(released(*r)) }))
}
