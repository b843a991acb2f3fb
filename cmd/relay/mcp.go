package main

import (
	"cmp"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"relay"
	"relay/cli"
	"relay/mcp"
)

func (p *program) mcp() *cobra.Command {
	c := &cobra.Command{
		Use: "mcp", Short: "serve the events of your aliases to a coding agent (Model Context Protocol)",
		Long: `Serve the events of your aliases to a coding agent over the Model Context Protocol, on standard
input and output, with the login of relay. The agent can list, wait for, show, compare, export and
replay events; secrets in them are masked unless it asks for them. The agent starts this command
itself: relay mcp config prints the lines to add to its settings.`,
		Example: "  relay mcp config claude\n  relay mcp --alias stripe-dev --read-only", Args: cli.Takes("", 0, 0),
	}
	aliases := c.Flags().StringArray("alias", nil, "let the agent see only the alias `NAME`; may be repeated")
	readOnly := c.Flags().Bool("read-only", false, "offer only tools that send nothing")
	c.RunE = func(c *cobra.Command, _ []string) error {
		for i, name := range *aliases {
			if (*aliases)[i] = cli.AliasLabel(cli.NormalAlias(name)); (*aliases)[i] == "" {
				return cli.Usage("--alias takes the name of an alias, not %q", name)
			}
		}
		api, err := p.api(c.Context())
		if err != nil {
			return err
		}
		defer api.Close()
		me, err := api.Me(c.Context())
		if err != nil {
			return err
		}
		return mcp.Run(c.Context(), mcp.Options{
			API: api, Me: me, Aliases: *aliases, ReadOnly: *readOnly, Version: relay.ThisBuild().Version,
		}, p.in, p.out)
	}
	c.AddCommand(p.mcpConfig())
	return c
}

// agentSettings has, for each agent, the command or settings that connect it to this program. RELAY is
// replaced by the path of this program.
var agentSettings = []struct{ name, where, lines string }{
	{"claude", "run this once:", "claude mcp add relay -- RELAY mcp"},
	{"cursor", "put this into .cursor/mcp.json:", `{
  "mcpServers": {
    "relay": { "command": "RELAY", "args": ["mcp"] }
  }
}`},
	{"vscode", "put this into .vscode/mcp.json:", `{
  "servers": {
    "relay": { "type": "stdio", "command": "RELAY", "args": ["mcp"] }
  }
}`},
	{"codex", "put this into ~/.codex/config.toml:", `[mcp_servers.relay]
command = "RELAY"
args = ["mcp"]`},
}

func (p *program) mcpConfig() *cobra.Command {
	var names []string
	for _, a := range agentSettings {
		names = append(names, a.name)
	}
	c := &cobra.Command{
		Use: "config " + strings.Join(names, "|"), Short: "print the lines to add to an agent's settings; writes no file",
		Example: "  relay mcp config claude", Args: cli.Takes("agent", 1, 1), ValidArgs: names,
	}
	c.RunE = func(_ *cobra.Command, args []string) error {
		for _, a := range agentSettings {
			if a.name != args[0] {
				continue
			}
			p.say(a.where)
			program, err := os.Executable()
			if err != nil {
				program = ""
			}
			return p.printer().Text(strings.ReplaceAll(a.lines, "RELAY", cmp.Or(inSettings(a.name, program), "relay")), "")
		}
		return cli.Usage("unknown agent %q", args[0]).Meant(args[0], names, "", "known are "+strings.Join(names, ", "))
	}
	return c
}

// inSettings returns the path of a program as the settings of an agent need it: in shell quotes, or as part
// of a JSON string.
func inSettings(agent, path string) string {
	switch {
	case agent != "claude":
		return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(path)
	case strings.ContainsAny(path, " '\"\\$&;()"):
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}
