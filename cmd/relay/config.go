package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"relay/cli"
	"relay/client"
	"relay/record"
)

const noConfig = "there is no " + client.ConfigName + " in this directory or a parent"

// readConfig reads the webhooks.yaml that a flag names, or the nearest one. Without a file it returns an
// empty configuration.
func (p *program) readConfig() (*client.Config, error) {
	if p.config != "" {
		return client.ReadConfig(p.config, p.config)
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	path := client.FindConfig(dir)
	if path == "" {
		return &client.Config{}, nil
	}
	name, err := filepath.Rel(dir, path)
	if err != nil {
		name = path
	}
	return client.ReadConfig(path, name)
}

// configuredSecret returns the name of the environment variable that webhooks.yaml has for the secret of a
// sender; "" = none.
func (p *program) configuredSecret(alias, provider string) (string, error) {
	conf, err := p.readConfig()
	if err != nil {
		return "", err
	}
	for _, f := range conf.Aliases {
		if f.Alias == alias {
			return f.SecretEnv[provider], nil
		}
	}
	return "", nil
}

func (p *program) configCommand() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "inspect webhooks.yaml", Args: cobra.ArbitraryArgs, RunE: cli.UnknownCommand}
	check := &cobra.Command{
		Use: "check", Short: "check a webhooks.yaml and print its meaning",
		Example: "  relay config check\n  relay config check --config ci/webhooks.yaml", Args: cli.Takes("", 0, 0),
	}
	asJSON := check.Flags().Bool("json", false, cli.FlagJSON)
	check.RunE = func(*cobra.Command, []string) error {
		conf, err := p.readConfig()
		if err != nil {
			return err
		}
		if conf.Path == "" {
			return cli.Errorf(cli.ExitFailure, noConfig).WithHint("create one, or name one with --config FILE")
		}
		if *asJSON || p.output == outputJSON {
			return p.printer().Object(checkedConfig(conf))
		}
		err = p.printer().Line(configSummary(filepath.Base(conf.Path), conf))
		for _, f := range conf.Aliases {
			line := fmt.Sprintf("%-20s %s", f.Alias, f.Target.URL)
			if f.Target.HostHeader != "" {
				line += "  Host: " + f.Target.HostHeader
			}
			if err == nil {
				err = p.printer().Line(line)
			}
		}
		return err
	}
	c.AddCommand(check)
	return c
}

func configSummary(name string, c *client.Config) string {
	server := cmp.Or(c.Server, client.DefaultServer+" (default)")
	return name + " is fine: server " + server + ", " + record.Count(len(c.Aliases), "alias", "aliases")
}

// checkedConfig returns the output of config check --json for a valid file.
func checkedConfig(conf *client.Config) any {
	type alias struct {
		Alias      string  `json:"alias"`
		Target     string  `json:"target"`
		HostHeader *string `json:"hostHeader"` // null = the Host line is preserved
	}
	out := struct {
		File    string  `json:"file"`
		Server  *string `json:"server"` // null = the file does not say
		Aliases []alias `json:"aliases"`
	}{File: conf.Path, Server: nullable(conf.Server), Aliases: []alias{}}
	for _, f := range conf.Aliases {
		out.Aliases = append(out.Aliases, alias{f.Alias, f.Target.URL, nullable(f.Target.HostHeader)})
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
