package main

import (
	"encoding/json"
	"runtime"

	"github.com/spf13/cobra"
)

func (p *program) versionCommand() *cobra.Command {
	c := &cobra.Command{Use: "version", Short: versionShort, Args: noArgs}
	asJSON := c.Flags().Bool("json", false, flagJSON)
	c.RunE = func(*cobra.Command, []string) error {
		w := p.printer()
		if !*asJSON && p.output != outputJSON {
			return w.line("relay " + buildVersion())
		}
		raw, err := json.Marshal(map[string]string{
			"version": buildVersion(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
		})
		if err != nil {
			return err
		}
		return w.json(raw)
	}
	return c
}
