package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"relay"
	"relay/client"
	"relay/record"
)

// maxAliases is how many aliases the relay accepts on one connection.
const maxAliases = 16

// upFlags are the flags of relay up.
type upFlags struct {
	port       int
	alias      []string
	target     string
	hostHeader string
	echo       bool
}

func (p *program) up() *cobra.Command {
	var f upFlags
	c := &cobra.Command{Use: "up [ALIAS...]", Short: upShort, Long: upLong, Example: upExample, Args: cobra.ArbitraryArgs}
	flags := c.Flags()
	flags.IntVar(&f.port, "port", 0, flagPort)
	flags.StringSliceVar(&f.alias, "alias", nil, flagAlias)
	flags.StringVar(&f.target, "target", "", flagTarget)
	flags.StringVar(&f.hostHeader, "host-header", "", flagHostHeader)
	flags.BoolVar(&f.echo, "echo", false, flagEcho)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := f.check(flags.Changed("port")); err != nil {
			return err
		}
		return p.runUp(c.Context(), f, append(args, f.alias...))
	}
	return c
}

func (f *upFlags) check(portGiven bool) error {
	given := 0
	for _, is := range []bool{portGiven, f.target != "", f.echo} {
		if is {
			given++
		}
	}
	if given > 1 {
		return usage("--port, --target and --echo exclude each other")
	}
	if portGiven {
		_, err := client.PortTarget(f.port)
		return err
	}
	return nil
}

func (p *program) runUp(ctx context.Context, f upFlags, names []string) error {
	conf, err := p.readConfig()
	if err != nil {
		return err
	}
	var echo *client.Echo
	if f.echo {
		if echo, err = client.StartEcho(); err != nil {
			return err
		}
		defer echo.Close()
	}
	forwards, err := f.forwards(conf, names, echo)
	if err != nil {
		return err
	}
	dialer, err := p.dialer(conf)
	if err != nil {
		return err
	}
	return p.keepUp(ctx, &client.Up{Dialer: dialer, Forwards: forwards})
}

// keepUp runs until the end and shows what happens. At a terminal the key R delivers
// what was queued while offline.
func (p *program) keepUp(ctx context.Context, up *client.Up) error {
	screen := newScreen(p.printer(), p.say, p.output, up.Forwards)
	up.Show, up.Lost, up.Local = screen.message, screen.lost, screen.local
	var keys *keyboard
	up.Ready = func(again bool) {
		screen.connected(again)
		if !again && p.output != outputJSON && term.IsTerminal(int(p.in.Fd())) && term.IsTerminal(int(p.out.Fd())) {
			keys = openKeyboard(p.in, func(key byte) {
				if key == 'R' {
					p.release(ctx, up)
				}
			})
		}
	}
	err := up.Run(ctx)
	keys.close()
	if err == nil {
		p.say(goodbye)
	}
	return err
}

// release delivers the events that were queued while offline.
func (p *program) release(ctx context.Context, up *client.Up) {
	for _, f := range up.Forwards {
		r, err := up.Release(ctx, f.Alias)
		if err != nil {
			p.say(client.AliasLabel(f.Alias) + ": " + err.Error())
			return
		}
		p.say(released(*r))
	}
}

// forwards returns the aliases and their targets.
func (f *upFlags) forwards(conf *client.Config, names []string, echo *client.Echo) ([]client.Forward, error) {
	names, err := aliasNames(names)
	if err != nil {
		return nil, err
	}
	fixed, given, err := f.fixedTarget(echo)
	if err != nil {
		return nil, err
	}
	if given && len(names) == 0 {
		return nil, usage("which alias?").WithHint("name it: relay up --alias NAME …")
	}
	if !given && len(names) == 0 {
		names = configNames(conf)
	}
	if len(names) > maxAliases {
		return nil, usage("%s", tooManyAliases(len(names))).WithHint("name some of them here and the others in a second relay up")
	}
	if len(names) == 0 {
		return nil, usage("nothing to do: no alias is named and %s", noConfigOr(conf)).
			WithHint("relay up --port 3000 --alias NAME")
	}
	var list []client.Forward
	for _, name := range names {
		target := fixed
		if !given {
			if target, err = configTarget(conf, name); err != nil {
				return nil, err
			}
		}
		if f.hostHeader != "" {
			if target, err = target.WithHostHeader(f.hostHeader); err != nil {
				return nil, err
			}
		}
		list = append(list, client.Forward{Alias: name, Target: target})
	}
	return list, nil
}

// fixedTarget returns the target that a flag sets for all aliases.
func (f *upFlags) fixedTarget(echo *client.Echo) (t client.Target, given bool, err error) {
	switch {
	case echo != nil:
		return echo.Target(), true, nil
	case f.target != "":
		t, err = client.ParseTarget(f.target)
		return t, true, err
	case f.port != 0:
		t, err = client.PortTarget(f.port)
		return t, true, err
	}
	return t, false, nil
}

// aliasNames normalises names and refuses invalid and duplicate ones.
func aliasNames(names []string) ([]string, error) {
	var list []string
	for _, typed := range names {
		name := client.NormalAlias(typed)
		if !relay.ValidLabel(client.AliasLabel(name)) {
			return nil, usage("%q is no alias name; it has 1 to 63 letters, digits and inner hyphens", typed)
		}
		for _, other := range list {
			if client.SameAlias(name, other) {
				return nil, usage("alias %s is named twice", name)
			}
		}
		list = append(list, name)
	}
	return list, nil
}

func configNames(conf *client.Config) []string {
	var names []string
	for _, f := range conf.Aliases {
		names = append(names, f.Alias)
	}
	return names
}

func noConfigOr(conf *client.Config) string {
	if conf.Path == "" {
		return noConfig
	}
	return conf.Path + " has none"
}

func configTarget(conf *client.Config, name string) (client.Target, error) {
	if f, ok := conf.Forward(name); ok {
		return f.Target, nil
	}
	err := usage("where does %s lead? give --port, --target or --echo", name)
	if port, convErr := strconv.Atoi(name); convErr == nil {
		return client.Target{}, err.WithHint("did you mean relay up --port %d --alias NAME", port)
	}
	if conf.Path == "" {
		return client.Target{}, err.WithHint("relay up --port 3000 --alias %s, or a %s that says it; %s", name, client.ConfigName, noConfig)
	}
	if near := record.Nearest(name, configNames(conf)); near != "" {
		return client.Target{}, usage("alias %s is not in %s", name, conf.Path).WithHint("did you mean %s", near)
	}
	return client.Target{}, usage("alias %s is not in %s", name, conf.Path).
		WithHint("add it there, or give --port, --target or --echo")
}
