package main

import (
	"github.com/spf13/cobra"

	"relay/client"
	"relay/record"
)

func (p *program) whoami() *cobra.Command {
	c := &cobra.Command{Use: "whoami", Short: whoamiShort, Args: noArgs}
	return p.ask(c,
		func([]string) client.Command { return client.Command{Name: "whoami"} },
		decoded(func(w *printer, m *record.Me) error { return w.line(me(*m)) }))
}
