package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"relay"
	"relay/manual"
)

func (p *program) versionCommand() *cobra.Command {
	c := &cobra.Command{Use: "version", Short: versionShort, Args: noArgs}
	asJSON := c.Flags().Bool("json", false, flagJSON)
	c.RunE = func(*cobra.Command, []string) error {
		w := p.printer()
		if !*asJSON && p.output != outputJSON {
			return w.line("relay " + relay.ThisBuild().String())
		}
		raw, err := json.Marshal(struct {
			Name string `json:"name"`
			relay.Build
		}{"relay", relay.ThisBuild()})
		if err != nil {
			return err
		}
		return w.json(raw)
	}
	return c
}

// man writes the manual pages, for packages.
func (p *program) man() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: manShort, Args: oneArg("folder"), Hidden: true,
		RunE: func(c *cobra.Command, args []string) error {
			return manual.Manual{Section: 1, End: manExits}.Write(c.Root(), args[0])
		},
	}
}
