package main

import (
	"github.com/spf13/cobra"

	"relay/client"
	"relay/record"
)

func (p *program) aliases() *cobra.Command {
	c := &cobra.Command{Use: "aliases", Short: aliasesShort, Example: aliasesExample, Args: noArgs}
	return p.ask(c,
		func([]string) client.Command { return client.Command{Name: "aliases"} },
		decoded(func(w *printer, a *record.Alias) error { return w.line(aliasLine(a)) }))
}

func (p *program) replayQueued() *cobra.Command {
	c := &cobra.Command{Use: "replay-queued ALIAS", Short: queuedShort, Example: queuedExample, Args: oneArg("alias")}
	return p.ask(c,
		func(args []string) client.Command {
			return client.Command{Name: "replay-queued", Arg: client.NormalAlias(args[0])}
		},
		decoded(func(w *printer, r *record.Released) error { return w.line(released(*r)) }))
}
