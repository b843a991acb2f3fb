package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"relay"
	"relay/cli"
	"relay/client"
	"relay/record"
)

func (p *program) doctor() *cobra.Command {
	c := &cobra.Command{
		Use: "doctor [ALIAS...]", Short: "check everything between a local server and the relay",
		Long: `Check webhooks.yaml, stored logins, name resolution, port, host key, login, aliases, local servers
and clock. doctor changes nothing. Each line has a verdict (ok, warn, fail, skip), the check, the
reason, and what to do. The output contains no secrets. Exit 1 when a check fails.`,
		Example: "  relay doctor\n  relay doctor stripe-dev --port 3000", Args: cobra.ArbitraryArgs,
	}
	var port int
	c.Flags().Var((*cli.Decimal)(&port), "port", "`PORT` of the local server of the named aliases")
	asJSON := c.Flags().Bool("json", false, "print a JSON list")
	c.RunE = func(c *cobra.Command, args []string) error {
		list, err := p.examine(c.Context(), args, port)
		if err != nil {
			return err
		}
		return p.showFindings(list, *asJSON || p.output == outputJSON)
	}
	return c
}

// examine runs every check, the local files first.
func (p *program) examine(ctx context.Context, names []string, port int) ([]relay.Finding, error) {
	found := relay.Finding{Check: "config", Verdict: relay.VerdictOK}
	conf, err := p.readConfig()
	switch {
	case err != nil:
		found.Verdict, found.Reason, found.Fix = relay.VerdictFail, err.Error(), cli.HintOf(err, "correct the file; relay config check looks at it")
		conf = &client.Config{}
	case conf.Path == "":
		found.Verdict, found.Reason = relay.VerdictSkip, noConfig
	default:
		found.Reason = configSummary(conf.Path, conf)
	}
	list := []relay.Finding{found, p.loginsFinding()}
	forwards, err := doctorForwards(conf, names, port)
	if err != nil {
		return nil, err
	}
	dialer, err := p.dialer(conf)
	if err != nil { // loginsFinding has reported this error
		dialer = p.dialerTo(cmp.Or(p.server, p.getenv("RELAY_SERVER"), conf.Server, client.DefaultServer), p.identity)
	}
	dialer.Prompter, dialer.Say, dialer.KeepNothing = nil, func(string) {}, true
	d := &client.Doctor{Dialer: dialer, BaseURL: p.getenv("RELAY_URL"), Forwards: forwards}
	d.API, d.APIErr = p.apiBy(ctx, dialer)
	return append(list, d.Examine(ctx)...), ctx.Err()
}

func (p *program) loginsFinding() relay.Finding {
	f := relay.Finding{Check: "logins", Verdict: relay.VerdictOK}
	list, err := p.logins().Read()
	switch {
	case err != nil:
		f.Verdict, f.Reason, f.Fix = relay.VerdictFail, err.Error(), cli.HintOf(err, "remove it and run relay login again")
	case len(list) == 0:
		f.Verdict, f.Reason = relay.VerdictSkip, "there is no login; commands use SSH with the key, or RELAY_TOKEN"
	default:
		var where []string
		for _, l := range list {
			where = append(where, l.BaseURL+" as "+l.User)
		}
		f.Reason = strings.Join(where, ", ")
	}
	return f
}

// doctorForwards returns the aliases to check and their targets.
func doctorForwards(conf *client.Config, names []string, port int) ([]client.Forward, error) {
	if port == 0 && len(names) == 0 {
		return conf.Aliases, nil
	}
	if port != 0 && len(names) == 0 {
		return nil, cli.Usage("no alias is given for port %d", port).WithHint("relay doctor ALIAS --port %d", port)
	}
	if port == 0 {
		return forwards(conf, names, nil, "")
	}
	target, err := client.PortTarget(port)
	if err != nil {
		return nil, err
	}
	return forwards(conf, names, &target, "")
}

// tilde replaces the home directory with ~, because doctor's output may be pasted and should not name the
// user.
func (p *program) tilde(text string) string {
	if home := p.home(); len(home) > 1 {
		return strings.ReplaceAll(text, home, "~")
	}
	return text
}

// showFindings prints a line for each check. It returns an error if a check failed.
func (p *program) showFindings(list []relay.Finding, asJSON bool) error {
	failed, width := 0, 0
	for i, f := range list {
		list[i].Reason, list[i].Fix = p.tilde(f.Reason), p.tilde(f.Fix)
		width = min(max(width, len(f.Check)), 40)
		if f.Verdict == relay.VerdictFail {
			failed++
		}
	}
	var err error
	if asJSON {
		err = p.printer().Object(list)
	} else {
		for _, f := range list {
			line := fmt.Sprintf("%-4s  %-*s  %s", f.Verdict, width, f.Check, f.Reason)
			if f.Fix != "" {
				line += "; fix: " + f.Fix
			}
			err = cmp.Or(err, p.printer().Line(line))
		}
	}
	if err != nil {
		return err
	}
	if failed > 0 {
		return cli.Errorf(cli.ExitFailure, "%s failed; see what each line says to do", record.Count(failed, "check", "checks"))
	}
	return nil
}
