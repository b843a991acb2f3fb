package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"relay"
	"relay/client"
)

// loginFlags are the flags of relay login.
type loginFlags struct {
	withToken bool
	noBrowser bool
	name      string
	json      bool
}

func (p *program) login() *cobra.Command {
	var f loginFlags
	c := &cobra.Command{Use: "login [URL]", Short: loginShort, Long: loginLong, Example: loginExample, Args: optionalArg("base URL")}
	c.Flags().BoolVar(&f.withToken, "with-token", false, flagWithToken)
	c.Flags().BoolVar(&f.noBrowser, "no-browser", false, flagNoBrowser)
	c.Flags().StringVar(&f.name, "name", "", flagTokenName)
	c.Flags().BoolVar(&f.json, "json", false, flagLoginJSON)
	c.RunE = func(c *cobra.Command, args []string) error {
		typed := p.getenv("RELAY_URL")
		if len(args) > 0 {
			typed = args[0]
		}
		f.json = f.json || p.output == outputJSON
		if f.name == "" {
			host, _ := os.Hostname()
			f.name = tokenName(host)
		}
		return p.runLogin(c.Context(), f, typed)
	}
	return c
}

func (p *program) runLogin(ctx context.Context, f loginFlags, typed string) error {
	base, err := p.loginBase(typed)
	if err != nil {
		return err
	}
	site, err := client.Discover(ctx, base, relay.ThisBuild().Version)
	if err != nil {
		return err
	}
	if !client.Private(site.BaseURL) {
		return client.NotEncrypted(site.BaseURL)
	}
	login := client.Login{BaseURL: base}
	var api *client.API
	if f.withToken { // a wrong token is reported before anything is made
		if api, err = p.tokenFromStdin(ctx, &login); err != nil {
			return err
		}
	}
	dialer, err := p.loginDialer(site)
	if err != nil {
		return err
	}
	if login.Server, err = dialer.Addr(); err != nil {
		return err
	}
	if f.withToken {
		err = p.registerKey(ctx, dialer, api, &login, f.name)
	} else {
		err = p.loginByKey(ctx, dialer, &login, f)
	}
	if err != nil {
		return err
	}
	login.Key = dialer.Identity
	if login.Key != "" {
		if login.Key, err = filepath.Abs(login.Key); err != nil {
			return err
		}
	}
	if err := p.logins().Save(login); err != nil {
		return err
	}
	return p.loggedIn(f, login)
}

// loginBase returns the base URL to log in at.
func (p *program) loginBase(typed string) (string, error) {
	if typed == "" {
		server, err := p.whichServer(nil)
		if err != nil {
			return "", err
		}
		dialer := p.dialerTo(server, "")
		login, err := p.loginAt(dialer)
		if err != nil {
			return "", err
		}
		if typed, err = baseOf(dialer, login); err != nil {
			return "", err
		}
	}
	base, err := client.CleanBase(typed)
	if err == nil && !client.Private(base) {
		return "", client.NotEncrypted(base)
	}
	return base, err
}

// loginDialer pins the host key and makes a key if there is none.
func (p *program) loginDialer(site *client.Site) (*client.Dialer, error) {
	server := p.server
	if server == "" {
		server = p.getenv("RELAY_SERVER")
	}
	if server == "" {
		server = site.SSHAddr
	}
	if server == "" { // the relay does not tell
		var err error
		if server, err = p.whichServer(nil); err != nil {
			return nil, err
		}
	}
	dialer := p.dialerTo(server, p.identity)
	if len(site.HostKeys) > 0 && p.hostKey == "" {
		if err := dialer.Pin(site.HostKeys); err != nil {
			return nil, err
		}
	}
	if !dialer.NoKey() {
		return dialer, nil
	}
	own := p.logins().OwnKey()
	had := exists(own)
	host, _ := os.Hostname()
	key, err := client.MakeKey(own, tokenName(host))
	if err != nil {
		return nil, err
	}
	if !had {
		p.say(madeKey(own, ssh.FingerprintSHA256(key)))
	}
	return p.dialerTo(server, own), nil
}

// tokenFromStdin reads a token and asks the relay for its account.
func (p *program) tokenFromStdin(ctx context.Context, login *client.Login) (*client.API, error) {
	token, err := client.ReadToken(p.in)
	if err != nil {
		return nil, err
	}
	api, err := client.NewAPI(login.BaseURL, token, relay.ThisBuild().Version)
	if err != nil {
		return nil, err
	}
	me, err := api.Me(ctx)
	if err != nil {
		return nil, err
	}
	login.Token, login.User = token, me.User
	return api, nil
}

// registerKey registers the key that is offered first. A token without the scope for
// that still serves for commands.
func (p *program) registerKey(ctx context.Context, dialer *client.Dialer, api *client.API, login *client.Login, name string) error {
	key, err := dialer.FirstKey()
	if err == nil {
		err = api.RegisterKey(ctx, name, key)
	}
	if client.Conflict(err) {
		byKey := client.NewSSHAPI(dialer)
		defer byKey.Close()
		if me, refused := byKey.Me(ctx); refused == nil { // it belongs to another account
			err = nil
			if me.User != login.User {
				p.say(keyOfAnother(me.User))
			}
		}
	}
	if err != nil {
		p.say(keyNotRegistered(err))
	}
	return ctx.Err()
}

// loginByKey has the key approved unless it is known already, and makes a token with
// it.
func (p *program) loginByKey(ctx context.Context, dialer *client.Dialer, login *client.Login, f loginFlags) error {
	api := client.NewSSHAPI(dialer)
	defer api.Close()
	me, err := api.Me(ctx)
	var e *client.Error
	if errors.As(err, &e) && e.Exit == client.ExitRefused {
		if err := p.enrol(ctx, dialer, f); err != nil {
			return err
		}
		me, err = api.Me(ctx)
	}
	if err != nil {
		return err
	}
	token, err := api.MakeToken(ctx, f.name)
	if err != nil {
		return err
	}
	login.User, login.Token, login.TokenID = me.User, token.Token, token.ID
	return nil
}

func (p *program) enrol(ctx context.Context, dialer *client.Dialer, f loginFlags) error {
	var failed error
	err := dialer.Enrol(ctx, func(link, code string) {
		w := p.printer()
		if f.json {
			failed = w.object(map[string]string{"link": link, "code": code})
		} else {
			failed = errors.Join(w.line(openLink(link)), w.line(codeIs(code)))
		}
		p.say(waitingForApproval)
		if p.prompter() != nil && !f.noBrowser {
			p.browse(link)
		}
	})
	return errors.Join(err, failed)
}

// browse opens a page for the person at the terminal. Failures are ignored: the link is
// printed, too.
func (p *program) browse(link string) {
	if c := p.opener(link); c != nil && c.Start() == nil {
		go func() { _ = c.Wait() }()
	}
}

func (p *program) loggedIn(f loginFlags, login client.Login) error {
	w := p.printer()
	if f.json {
		return w.object(map[string]string{"user": login.User, "baseUrl": login.BaseURL, "server": login.Server, "key": login.Key})
	}
	return w.line(loggedInAs(login))
}
