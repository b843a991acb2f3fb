package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"relay"
	"relay/cli"
	"relay/client"
	"relay/record"
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
	c := &cobra.Command{
		Use: "login [URL]", Short: "log in to a server: register a key, pin the host key, store a token",
		Long: `Log in to the server whose dashboard is at URL. relay reads its SSH address and host key from
there. You approve your SSH key in the browser, unless it is registered already; --with-token
registers it with a token from stdin. If you have no key, relay creates one. relay stores its
token in a file that only you can read. The token expires after 90 days without use.`,
		Example: `  relay login https://relay.example.com
  relay login https://relay.example.com --with-token < token`,
		Args: cli.Takes("base URL", 0, 1),
	}
	c.Flags().BoolVar(&f.withToken, "with-token", false, "read an API token from stdin instead of approving the key in the browser")
	c.Flags().BoolVar(&f.noBrowser, "no-browser", false, "do not open a browser; show the link only")
	c.Flags().StringVar(&f.name, "name", "", "`TEXT` that names token and key in the dashboard (default: relay on this host)")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON, including link and code, one object per line")
	c.RunE = func(c *cobra.Command, args []string) error {
		f.json = f.json || p.output == outputJSON
		f.name = cmp.Or(f.name, tokenName())
		return p.runLogin(c.Context(), f, strings.Join(args, ""))
	}
	return c
}

// tokenName returns a name for a new token or key: the name of this machine.
func tokenName() string {
	if host, _ := os.Hostname(); host != "" {
		return "relay on " + record.SafeTextMax(host, 60)
	}
	return "relay"
}

func (p *program) runLogin(ctx context.Context, f loginFlags, typed string) error {
	base, err := p.loginBase(ctx, cmp.Or(typed, p.getenv("RELAY_URL")), f.withToken)
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
	var api *cli.API
	if f.withToken { // a wrong token is reported before a key is made
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
	var proven bool
	if f.withToken {
		proven, err = p.registerKey(ctx, dialer, api, &login, f.name)
	} else {
		proven, err = true, p.loginByKey(ctx, dialer, &login, f)
	}
	if err != nil {
		return err
	}
	if proven {
		err = dialer.KeepExpected()
	} else {
		err = p.mayKeepUnproven(dialer, &login)
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
	if f.json {
		return p.printer().Object(map[string]string{"user": login.User, "baseUrl": login.BaseURL, "server": login.Server, "key": login.Key})
	}
	return p.printer().Line("Logged in to " + login.BaseURL + " as " + login.User)
}

// mayKeepUnproven returns an error if a login must not be stored, because the relay at the SSH address could
// not be asked for its base URL. With a stored login, later commands for that SSH address would send their
// requests to the base URL, which may belong to another relay. Two SSH addresses are allowed: one on the host
// of the base URL, because that host has proven its name, and one that the user typed.
func (p *program) mayKeepUnproven(dialer *client.Dialer, login *client.Login) error {
	host, err := dialer.Host()
	if err != nil {
		return err
	}
	if cmp.Or(p.server, p.getenv("RELAY_SERVER")) != "" || client.SameSite("https://"+net.JoinHostPort(host, "1"), login.BaseURL) {
		return nil
	}
	return cli.Errorf(cli.ExitUnreachable, "%s tells the SSH address %s, and the relay there could not be asked whether that is so", login.BaseURL, login.Server).
		WithHint("if it is the address of this relay, name it with --server")
}

// loginBase returns the base URL to log in at.
func (p *program) loginBase(ctx context.Context, typed string, withToken bool) (string, error) {
	if typed == "" {
		server, err := p.whichServer(nil)
		if err != nil {
			return "", err
		}
		dialer := p.dialerTo(server, "")
		if withToken {
			if err := p.mayGetToken(dialer, "the token"); err != nil {
				return "", err
			}
		}
		login, err := p.loginAt(dialer)
		if err != nil {
			return "", err
		}
		if withToken {
			typed, err = p.baseForToken(ctx, dialer, login)
		} else {
			typed, err = baseOf(dialer, login)
		}
		if err != nil {
			return "", err
		}
	}
	base, err := client.CleanBase(typed)
	if err == nil && !client.Private(base) {
		return "", client.NotEncrypted(base)
	}
	return base, err
}

// loginDialer returns a dialer that accepts the host keys of the site. If the user has no key, loginDialer
// makes one.
func (p *program) loginDialer(site *client.Site) (*client.Dialer, error) {
	server := cmp.Or(p.server, p.getenv("RELAY_SERVER"), site.SSHAddr)
	if server == "" { // the relay does not publish its SSH address
		var err error
		if server, err = p.whichServer(nil); err != nil {
			return nil, err
		}
	}
	dialer := p.dialerTo(server, p.identity)
	addr, err := dialer.Addr()
	if err != nil {
		return nil, err
	}
	before, err := p.loginAt(dialer)
	if err != nil {
		return nil, err
	}
	if before != nil && !client.SameSite(before.BaseURL, site.BaseURL) {
		return nil, cli.Errorf(cli.ExitRefused, "the SSH address %s belongs to the login at %s, not to %s", addr, before.BaseURL, site.BaseURL).
			WithHint("if the relay has moved: relay logout --server %s, then log in again", addr)
	}
	// The host keys of a site do not apply to an address that only the environment names.
	isItsOwn := p.server != "" || server == site.SSHAddr || client.SameServer(addr, site.SSHAddr)
	if len(site.HostKeys) > 0 && p.hostKey == "" && isItsOwn {
		if err := dialer.Expect(site.HostKeys, before != nil); err != nil {
			return nil, err
		}
	}
	if !dialer.NoKey() {
		return dialer, nil
	}
	own := p.logins().OwnKey()
	had := exists(own)
	key, err := client.MakeKey(own, tokenName())
	if err != nil {
		return nil, err
	}
	if !had {
		p.say("there was no SSH key, so one was made: " + own + " (" + ssh.FingerprintSHA256(key) + ")")
	}
	return dialer.WithIdentity(own), nil
}

// tokenFromStdin reads a token from standard input and asks the relay for its account.
func (p *program) tokenFromStdin(ctx context.Context, login *client.Login) (*cli.API, error) {
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

// registerKey registers the key that the dialer offers first to an SSH server. The login is stored even if the
// token lacks the scope for keys, because commands can use the token. proven means that the relay at the SSH
// address has the base URL of the login.
func (p *program) registerKey(ctx context.Context, dialer *client.Dialer, api *cli.API, login *client.Login, name string) (proven bool, err error) {
	key, err := dialer.FirstKey()
	if err == nil {
		err = api.RegisterKey(ctx, name, key)
	}
	byKey := client.NewSSHAPI(dialer)
	defer byKey.Close()
	proven, wrong := client.CheckSite(ctx, byKey, login.BaseURL)
	if e, ok := errors.AsType[*cli.Error](wrong); ok && (proven || e.Exit == cli.ExitRefused && !dialer.HostKeyAccepted()) {
		return false, wrong // the address leads to another relay, or shows another host key
	}
	if cli.Conflict(err) {
		if me, refused := byKey.Me(ctx); refused == nil { // the key is registered already, maybe with another account
			err = nil
			if me.User != login.User {
				p.say("warning: the token works, but the SSH key belongs to another account: tunnels go as " + me.User +
					"; relay login URL --with-token --identity FILE uses another key")
			}
		}
	}
	if err != nil {
		p.say("warning: the token works, but no SSH key was registered with it: " + err.Error())
	}
	return proven, ctx.Err()
}

// loginByKey asks for the approval of the key if the relay does not know it, and then makes a token with the
// key.
func (p *program) loginByKey(ctx context.Context, dialer *client.Dialer, login *client.Login, f loginFlags) error {
	api := client.NewSSHAPI(dialer)
	defer api.Close()
	me, err := api.Me(ctx)
	if e, ok := errors.AsType[*cli.Error](err); ok && e.Exit == cli.ExitRefused {
		if err := p.enrol(ctx, dialer, f); err != nil {
			return err
		}
		me, err = api.Me(ctx)
	}
	if err != nil {
		return err
	}
	if _, err := client.CheckSite(ctx, api, login.BaseURL); err != nil { // commands send the token to this base URL
		return err
	}
	token, err := api.MakeToken(ctx, f.name)
	if err != nil {
		return err
	}
	login.User, login.Token, login.TokenID = me.User, token.Token, token.ID
	return nil
}

// enrol asks for the approval of the key in a browser.
func (p *program) enrol(ctx context.Context, dialer *client.Dialer, f loginFlags) error {
	var failed error
	err := dialer.Enrol(ctx, func(link, code string) {
		w := p.printer()
		if f.json {
			failed = w.Object(map[string]string{"link": link, "code": code})
		} else {
			failed = errors.Join(w.Line("Open  "+link), w.Line("Code: "+code))
		}
		p.say("waiting for somebody who is signed in there to approve the key, 2 minutes at most")
		if p.prompter() == nil || f.noBrowser {
			return
		}
		// Failures of the browser are ignored, because the link is also printed.
		if c := p.browser(link); c != nil && c.Start() == nil {
			go func() { _ = c.Wait() }()
		}
	})
	return errors.Join(err, failed)
}

// browser returns the command that opens a page in a browser on this machine, or nil if there is no browser
// or no screen.
func (p *program) browser(link string) *exec.Cmd {
	u, err := url.Parse(link)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil
	}
	name, args := "xdg-open", []string{u.String()}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", u.String()}
	default:
		if p.getenv("DISPLAY") == "" && p.getenv("WAYLAND_DISPLAY") == "" && p.getenv("BROWSER") == "" {
			return nil
		}
	}
	if _, err := exec.LookPath(name); err != nil {
		return nil
	}
	return exec.Command(name, args...)
}

func (p *program) logout() *cobra.Command {
	c := &cobra.Command{
		Use: "logout", Short: "revoke the token that the login made, and remove the login",
		Long:    "Revoke the token of the login at this server and remove the login. A token passed by\n--with-token stays valid. The SSH key still logs in.",
		Example: "  relay logout\n  relay logout --key", Args: cli.Takes("", 0, 0),
	}
	withKey := c.Flags().Bool("key", false, "also remove the SSH key from the account")
	c.RunE = func(c *cobra.Command, _ []string) error { return p.runLogout(c.Context(), *withKey) }
	return c
}

func (p *program) runLogout(ctx context.Context, withKey bool) error {
	dialer, err := p.dialer(nil)
	if err != nil {
		return err
	}
	login, err := p.loginAt(dialer)
	if err != nil {
		return err
	}
	if login == nil {
		addr, _ := dialer.Addr()
		return cli.Errorf(cli.ExitFailure, "you are not logged in at %s", addr).WithHint("relay login URL")
	}
	api, err := client.NewAPI(login.BaseURL, login.Token, relay.ThisBuild().Version)
	if err != nil {
		return err
	}
	defer api.Close()
	var keyErr error
	if withKey {
		var key ssh.PublicKey
		if key, keyErr = dialer.FirstKey(); keyErr == nil {
			keyErr = api.RemoveKey(ctx, key)
		}
	}
	tokenErr := p.endToken(ctx, api, login)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// The login is removed from this machine even if the relay did not revoke the token.
	if err := p.logins().Forget(login.Server); err != nil {
		return err
	}
	if own := p.logins().OwnKey(); withKey && keyErr == nil && login.Key == own {
		_ = os.Remove(own)
		_ = os.Remove(own + ".pub")
	}
	account := login.BaseURL + "/account"
	if tokenErr != nil {
		return &cli.Error{
			Exit: cli.ExitUnreachable, Cause: tokenErr, Hint: "revoke it at " + account,
			Text: "logged out here, but " + login.BaseURL + " could not be reached, so the token is still valid",
		}
	}
	if keyErr != nil {
		return &cli.Error{
			Exit: cli.ExitFailure, Cause: keyErr, Hint: "remove it at " + account,
			Text: "logged out of " + login.BaseURL + ", but the SSH key still logs in",
		}
	}
	err = p.printer().Line("Logged out of " + login.BaseURL)
	if err == nil && !withKey {
		p.say("the SSH key still logs in; remove it in the dashboard, or use relay logout --key next time")
	}
	return err
}

// endToken revokes the token that the login made. It does not revoke a token that the user passed by
// --with-token, because other programs may use that token; it prints a message instead.
func (p *program) endToken(ctx context.Context, api *cli.API, login *client.Login) error {
	account := login.BaseURL + "/account"
	if login.TokenID != "" {
		revoked, err := api.RevokeToken(ctx, login.TokenID)
		if err == nil && !revoked {
			p.say("the token lacks the scope to revoke itself, so it stays valid; revoke it at " + account + " if nothing else uses it")
		}
		return err
	}
	me, err := api.Me(ctx)
	if e, ok := errors.AsType[*cli.Error](err); ok && e.Exit == cli.ExitRefused { // the token is already revoked
		return nil
	}
	if err == nil && me.TokenID != nil {
		account = "with relayd token rm " + *me.TokenID + " or at " + account
	} else {
		account = "at " + account
	}
	p.say("the token was made elsewhere and stays valid; revoke it " + account)
	return nil
}

func (p *program) whoami() *cobra.Command {
	c := &cobra.Command{Use: "whoami", Short: "show your account and the addresses of the server", Example: "  relay whoami\n  relay whoami --json", Args: cli.Takes("", 0, 0)}
	// The answer is that of GET /me, with two fields added: how the API is reached, and its address.
	asked := func(ctx context.Context, api *cli.API, _ []string, _ func(json.RawMessage) error) (json.RawMessage, error) {
		fields := map[string]any{}
		if err := api.Get(ctx, "/me", &fields); err != nil {
			return nil, err
		}
		fields["connection"], fields["relay"] = api.Endpoint.Name, api.Endpoint.Addr
		return json.Marshal(fields)
	}
	type me struct {
		record.Me
		Connection, Relay string
	}
	return cli.Ask(p.front(), c, asked, func(w *cli.Printer, m *me) error {
		account, way := m.User, "with a key, over SSH at "
		if m.Admin {
			account += " (admin)"
		}
		if m.Alias != nil {
			account += ", alias " + *m.Alias + " only"
		}
		if m.Connection == "api" {
			way = "with a token, over the API at "
		}
		return errors.Join(w.Line(account), w.Line(way+m.Relay))
	})
}
