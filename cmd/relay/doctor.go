package main

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"relay/client"
)

func (p *program) doctor() *cobra.Command {
	c := &cobra.Command{Use: "doctor [ALIAS...]", Short: doctorShort, Long: doctorLong, Example: doctorExample, Args: cobra.ArbitraryArgs}
	port := c.Flags().Int("port", 0, flagDoctorPort)
	asJSON := c.Flags().Bool("json", false, flagJSONList)
	c.RunE = func(c *cobra.Command, args []string) error {
		list, err := p.examine(c.Context(), args, *port)
		if err != nil {
			return err
		}
		return p.showFindings(list, *asJSON || p.output == outputJSON)
	}
	return c
}

// examine runs every check, the local files first.
func (p *program) examine(ctx context.Context, names []string, port int) ([]client.Finding, error) {
	conf, configured := p.configFinding()
	list := []client.Finding{configured, p.loginsFinding()}
	forwards, err := doctorForwards(conf, names, port)
	if err != nil {
		return nil, err
	}
	dialer, err := p.dialer(conf)
	if err != nil { // about the logins, which are reported already
		dialer = p.dialerTo(cmp.Or(p.server, p.getenv("RELAY_SERVER"), conf.Server, client.DefaultServer), p.identity)
	}
	dialer.Prompter, dialer.Say = nil, func(string) {}
	d := &client.Doctor{Dialer: dialer, BaseURL: p.getenv("RELAY_URL"), Forwards: forwards}
	d.API, d.APIErr = p.apiBy(ctx, dialer)
	return append(list, d.Examine(ctx)...), ctx.Err()
}

func (p *program) configFinding() (*client.Config, client.Finding) {
	f := client.Finding{Check: "config", Verdict: client.VerdictOK}
	conf, err := p.readConfig()
	switch {
	case err != nil:
		f.Verdict, f.Reason, f.Fix = client.VerdictFail, err.Error(), hintOf(err, "correct the file; relay config check looks at it")
		return &client.Config{}, f
	case conf.Path == "":
		f.Verdict, f.Reason = client.VerdictSkip, noConfig
	default:
		f.Reason = configSummary(conf.Path, conf)
	}
	return conf, f
}

func (p *program) loginsFinding() client.Finding {
	f := client.Finding{Check: "logins", Verdict: client.VerdictOK}
	list, err := p.logins().Read()
	switch {
	case err != nil:
		f.Verdict, f.Reason, f.Fix = client.VerdictFail, err.Error(), hintOf(err, "remove it and run relay login again")
	case len(list) == 0:
		f.Verdict, f.Reason = client.VerdictSkip, noLogins
	default:
		f.Reason = loginsKept(list)
	}
	f.Reason = p.tilde(f.Reason)
	f.Fix = p.tilde(f.Fix)
	return f
}

func hintOf(err error, otherwise string) string {
	var e *client.Error
	if errors.As(err, &e) && e.Hint != "" {
		return e.Hint
	}
	return otherwise
}

// tilde replaces the home directory, so that pasted output does not name the person.
func (p *program) tilde(text string) string {
	if home := p.home(); len(home) > 1 {
		return strings.ReplaceAll(text, home, "~")
	}
	return text
}

// doctorForwards returns the aliases to check and their targets.
func doctorForwards(conf *client.Config, names []string, port int) ([]client.Forward, error) {
	names, err := aliasNames(names)
	if err != nil {
		return nil, err
	}
	if port == 0 && len(names) == 0 {
		return conf.Aliases, nil
	}
	if port == 0 {
		var list []client.Forward
		for _, name := range names {
			target, err := configTarget(conf, name)
			if err != nil {
				return nil, err
			}
			list = append(list, client.Forward{Alias: name, Target: target})
		}
		return list, nil
	}
	target, err := client.PortTarget(port)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, usage("which alias leads to port %d?", port).WithHint("relay doctor ALIAS --port %d", port)
	}
	var list []client.Forward
	for _, name := range names {
		list = append(list, client.Forward{Alias: name, Target: target})
	}
	return list, nil
}

// showFindings prints a line for each check; it fails if a check failed.
func (p *program) showFindings(list []client.Finding, asJSON bool) error {
	w := p.printer()
	failed, width := 0, 0
	for _, f := range list {
		width = min(max(width, len(f.Check)), 40)
	}
	for i := range list {
		list[i].Reason, list[i].Fix = p.tilde(list[i].Reason), p.tilde(list[i].Fix)
		if list[i].Verdict == client.VerdictFail {
			failed++
		}
		if !asJSON {
			if err := w.line(findingLine(list[i], width)); err != nil {
				return err
			}
		}
	}
	if asJSON {
		if err := w.object(list); err != nil {
			return err
		}
	}
	if failed > 0 {
		return client.Errorf(client.ExitFailure, "%s", checksFailed(failed))
	}
	return nil
}
