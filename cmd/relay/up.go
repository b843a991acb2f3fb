package main

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"relay"
	"relay/cli"
	"relay/client"
)

// maxAliases is the maximum number of aliases that the relay accepts on one connection.
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
	c := &cobra.Command{
		Use: "up [ALIAS...]", Short: "connect a local server to one or more aliases",
		Long: `Connect a local server to one or more aliases and log the requests.
If this directory or a parent has a webhooks.yaml, give only the alias name, or no name for
all of its aliases. relay reopens a lost connection.
At a terminal, press R to deliver the events that were queued while an alias was offline.

With --output json each line of stdout is one object. Its keys depend on its type:
  hello      host, baseUrl
  online     alias, url, queuedEvents           refused  alias, code, message
  ready      again, aliases [{alias, target}]   lost     message, retryInMs
  request    event, attempt (as in the API)
  stale, offline, superseded  alias             stopping retryAfterMs
  revoked    alias, message                     missed   (some requests are not in the log)
  local-down, local-up, local-host, local-speaks-tls, local-speaks-http, local-certificate
             alias, target, message, hint
Ignore unknown types and keys: more may be added.`,
		Example: `  relay up --port 3000 --alias stripe-dev
  relay up --target https://localhost:8443 --alias github-dev --host-header rewrite
  relay up --echo --alias stripe-dev
  relay up`,
		Args: cobra.ArbitraryArgs,
	}
	flags := c.Flags()
	flags.Var((*cli.Decimal)(&f.port), "port", "port of the local HTTP server; 127.0.0.1 is dialed, then ::1")
	flags.StringSliceVar(&f.alias, "alias", nil, "alias to open a tunnel for; the same as an argument")
	flags.StringVar(&f.target, "target", "", "`URL` of the local server: http or https, no path; loopback certificates are not verified")
	flags.StringVar(&f.hostHeader, "host-header", "", "`VALUE` of the Host header that the local server gets while this tunnel is open: preserve, rewrite or a host name")
	flags.BoolVar(&f.echo, "echo", false, "answer every request with its own body and print it; needs no local server")
	c.RunE = func(c *cobra.Command, args []string) error {
		var screen atomic.Pointer[upScreen] // keepUp sets it before the first request
		fixed, stop, err := f.fixedTarget(flags.Changed("port"), func(e client.Echoed) {
			if screen := screen.Load(); screen != nil {
				screen.echoed(e)
			}
		})
		if err != nil {
			return err
		}
		defer stop()
		conf, err := p.readConfig()
		if err != nil {
			return err
		}
		forwards, err := forwards(conf, append(args, f.alias...), fixed, f.hostHeader)
		if err != nil {
			return err
		}
		dialer, err := p.dialer(conf)
		if err != nil {
			return err
		}
		return p.keepUp(c.Context(), &client.Up{Dialer: dialer, Forwards: forwards}, &screen)
	}
	return c
}

// fixedTarget returns the target that a flag sets for all aliases, or nil. stop ends the server of --echo.
// The function came is called with each request to that server.
func (f *upFlags) fixedTarget(portGiven bool, came func(client.Echoed)) (fixed *client.Target, stop func(), err error) {
	var target client.Target
	stop = func() {}
	switch {
	case portGiven && f.target != "", portGiven && f.echo, f.target != "" && f.echo:
		err = cli.Usage("--port, --target and --echo exclude each other")
	case portGiven:
		target, err = client.PortTarget(f.port)
	case f.target != "":
		target, err = client.ParseTarget(f.target)
	case f.echo:
		target, stop, err = client.StartEcho(came)
	default:
		return nil, stop, nil
	}
	return &target, stop, err
}

// keepUp runs the tunnel until its end and prints its messages. At a terminal, the key R delivers the events
// that were queued while offline.
func (p *program) keepUp(ctx context.Context, up *client.Up, shown *atomic.Pointer[upScreen]) error {
	printer := p.printer()
	printer.Out = p.outlive()
	screen := newScreen(printer, p.say, p.output, up.Forwards)
	shown.Store(screen)
	up.Show, up.Lost, up.Local = screen.message, screen.lost, screen.local
	var keys *keyboard
	up.Ready = func(again bool) {
		screen.connected(again)
		if again || p.output == outputJSON || !term.IsTerminal(int(p.in.Fd())) || !term.IsTerminal(int(p.out.Fd())) {
			return
		}
		keys = openKeyboard(p.in, func(key byte) {
			if key == 'R' {
				p.release(ctx, up)
			}
		})
		// At the first Ctrl+C, the program waits for requests in progress, and a second Ctrl+C ends it at once.
		// So the terminal is restored at the first.
		context.AfterFunc(ctx, keys.close)
	}
	err := up.Run(ctx)
	keys.close()
	if err == nil {
		p.say("disconnected")
	}
	return err
}

// release delivers the events that were queued while offline.
func (p *program) release(ctx context.Context, up *client.Up) {
	for _, f := range up.Forwards {
		r, err := up.Release(ctx, f.Alias)
		if err != nil {
			p.say(cli.AliasLabel(f.Alias) + ": " + err.Error())
			continue // the other aliases may still succeed
		}
		p.say(cli.ReleasedText(r))
	}
}

// forwards returns the named aliases with their targets: the target fixed, or, if fixed is nil, the targets
// of the configuration. Without names, it returns all aliases of the configuration.
func forwards(conf *client.Config, names []string, fixed *client.Target, hostHeader string) ([]client.Forward, error) {
	names, err := aliasNames(names)
	if err != nil {
		return nil, err
	}
	if fixed == nil && len(names) == 0 {
		names = configNames(conf)
	}
	switch {
	case len(names) > maxAliases:
		return nil, cli.Usage("%d aliases are too many for one connection; the limit is %d", len(names), maxAliases).
			WithHint("name some of them here and the others in a second relay up")
	case len(names) > 0:
	case fixed != nil:
		return nil, cli.Usage("no alias is given").WithHint("name it: relay up --alias NAME …")
	case conf.Path == "":
		return nil, cli.Usage("name an alias: none is given, and %s", noConfig).WithHint("relay up --port 3000 --alias NAME")
	default:
		return nil, cli.Usage("name an alias: %s has none", conf.Path).WithHint("relay up --port 3000 --alias NAME")
	}
	var list []client.Forward
	for _, name := range names {
		f := client.Forward{Alias: name}
		if fixed != nil {
			f.Target = *fixed
		} else if f.Target, err = configTarget(conf, name); err != nil {
			return nil, err
		}
		if hostHeader != "" {
			if f.Target, err = f.Target.WithHostHeader(hostHeader); err != nil {
				return nil, err
			}
		}
		list = append(list, f)
	}
	return list, nil
}

// aliasNames normalizes names, and refuses invalid and duplicate names.
func aliasNames(names []string) ([]string, error) {
	var list []string
	for _, typed := range names {
		if _, err := client.ParseTarget(typed); err == nil {
			return nil, cli.Usage("%q is an address and no alias name", typed).
				WithHint("a local server is named by --target: relay up --target %s --alias NAME", typed)
		}
		name := cli.NormalAlias(typed)
		if !relay.ValidLabel(cli.AliasLabel(name)) {
			return nil, cli.Usage("%q is not an alias name; it has 1 to 63 letters, digits and inner hyphens", typed)
		}
		if contains(list, name) {
			return nil, cli.Usage("alias %s is named twice", name)
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

func configTarget(conf *client.Config, name string) (client.Target, error) {
	for _, f := range conf.Aliases {
		if f.Alias == name {
			return f.Target, nil
		}
	}
	err := cli.Usage("no local server is given for %s; add --port, --target or --echo", name)
	if port, convErr := strconv.Atoi(name); convErr == nil {
		return client.Target{}, err.WithHint("did you mean relay up --port %d --alias NAME", port)
	}
	if conf.Path == "" {
		return client.Target{}, err.WithHint("relay up --port 3000 --alias %s, or a %s that says it; %s", name, client.ConfigName, noConfig)
	}
	return client.Target{}, cli.Usage("alias %s is not in %s", name, conf.Path).
		Meant(name, configNames(conf), "", "add it there, or give --port, --target or --echo")
}
