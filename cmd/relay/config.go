package main

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"relay/client"
)

func (p *program) configCommand() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: configShort, Args: cobra.ArbitraryArgs, RunE: unknownCommand}
	c.AddCommand(&cobra.Command{
		Use:   "check",
		Short: checkShort, Example: checkExample,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return p.checkConfig() },
	})
	return c
}

func (p *program) checkConfig() error {
	conf, err := p.readConfig()
	if err != nil {
		return err
	}
	if conf.Path == "" {
		return client.Errorf(client.ExitFailure, noConfig)
	}
	w := p.printer()
	err = w.line(configSummary(filepath.Base(conf.Path), conf))
	for _, f := range conf.Aliases {
		if err == nil {
			err = w.line(configAlias(f))
		}
	}
	return err
}
