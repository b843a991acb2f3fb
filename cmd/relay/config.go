package main

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"relay/client"
)

func (p *program) configCommand() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: configShort, Args: cobra.ArbitraryArgs, RunE: unknownCommand}
	check := &cobra.Command{Use: "check", Short: checkShort, Example: checkExample, Args: noArgs}
	asJSON := check.Flags().Bool("json", false, flagJSON)
	check.RunE = func(*cobra.Command, []string) error { return p.checkConfig(*asJSON || p.output == outputJSON) }
	c.AddCommand(check)
	return c
}

// checkedConfig is the output of config check --json for a valid file.
type checkedConfig struct {
	File    string         `json:"file"`
	Server  *string        `json:"server"` // null = the file does not say
	Aliases []checkedAlias `json:"aliases"`
}

type checkedAlias struct {
	Alias      string  `json:"alias"`
	Target     string  `json:"target"`
	HostHeader *string `json:"hostHeader"` // null = preserved
}

func (p *program) checkConfig(asJSON bool) error {
	conf, err := p.readConfig()
	if err != nil {
		return err
	}
	if conf.Path == "" {
		return client.Errorf(client.ExitFailure, noConfig).WithHint(noConfigHint)
	}
	w := p.printer()
	if asJSON {
		return w.object(checked(conf))
	}
	err = w.line(configSummary(filepath.Base(conf.Path), conf))
	for _, f := range conf.Aliases {
		if err == nil {
			err = w.line(configAlias(f))
		}
	}
	return err
}

func checked(conf *client.Config) checkedConfig {
	out := checkedConfig{File: conf.Path, Server: nullable(conf.Server), Aliases: []checkedAlias{}}
	for _, f := range conf.Aliases {
		out.Aliases = append(out.Aliases, checkedAlias{f.Alias, f.Target.URL, nullable(f.Target.HostHeader)})
	}
	return out
}

// nullable returns nil for an empty text.
func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
