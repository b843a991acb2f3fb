package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"relay/client"
	"relay/record"
)

func (p *program) aliases() *cobra.Command {
	c := &cobra.Command{Use: "aliases", Short: aliasesShort, Example: aliasesExample, Args: noArgs}
	return p.ask(c, allAliases,
		decoded(func(w *printer, a *record.Alias) error { return w.line(aliasLine(a)) }))
}

// allAliases asks for every page of the aliases.
func allAliases(ctx context.Context, api *client.API, _ []string, out io.Writer) error {
	for path := "/aliases"; path != ""; {
		var page record.List[json.RawMessage]
		var raw json.RawMessage
		err := api.Get(ctx, path, &raw)
		if err == nil {
			err = json.Unmarshal(raw, &page)
		}
		if err == nil {
			_, err = out.Write(raw)
		}
		if err != nil {
			return err
		}
		if path = ""; page.NextCursor != nil {
			path = "/aliases?cursor=" + url.QueryEscape(*page.NextCursor)
		}
	}
	return nil
}

func (p *program) replayQueued() *cobra.Command {
	c := &cobra.Command{Use: "replay-queued ALIAS", Short: queuedShort, Example: queuedExample, Args: oneArg("alias")}
	return p.ask(c,
		func(ctx context.Context, api *client.API, args []string, out io.Writer) error {
			return api.Call(ctx, http.MethodPost, "/aliases/"+url.PathEscape(client.NormalAlias(args[0]))+"/replay-queued", nil, out)
		},
		decoded(func(w *printer, r *record.Released) error { return w.line(released(*r)) }))
}
