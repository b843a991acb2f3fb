package main

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strings"

	"relay"
	"relay/cli"
	"relay/client"
)

// dirFor returns the directory of this program: below the directory that an environment variable names, or
// below the home directory.
func (p *program) dirFor(env string, below ...string) string {
	dir := p.getenv(env)
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(append([]string{p.home()}, below...)...)
	}
	return filepath.Join(dir, "relay")
}

// logins returns the file of logins.
func (p *program) logins() client.Logins {
	return client.Logins{Dir: p.dirFor("XDG_CONFIG_HOME", ".config")}
}

// whichServer returns the relay to use: by flag, environment, configuration, newest
// login, or default.
func (p *program) whichServer(conf *client.Config) (string, error) {
	if server := cmp.Or(p.server, p.getenv("RELAY_SERVER")); server != "" {
		return server, nil
	}
	if conf == nil {
		var err error
		if conf, err = p.readConfig(); err != nil {
			return "", err
		}
	}
	if conf.Server != "" {
		return conf.Server, nil
	}
	list, err := p.logins().Read()
	if err != nil {
		return "", err
	}
	if len(list) > 0 {
		return list[len(list)-1].Server, nil
	}
	return client.DefaultServer, nil
}

// dialer returns the dialer for the relay to use.
func (p *program) dialer(conf *client.Config) (*client.Dialer, error) {
	server, err := p.whichServer(conf)
	if err != nil {
		return nil, err
	}
	dialer := p.dialerTo(server, p.identity)
	if p.identity != "" {
		return dialer, nil
	}
	login, err := p.loginAt(dialer)
	if err != nil {
		return nil, err
	}
	if login != nil && login.Key != "" {
		return p.dialerTo(server, login.Key), nil
	}
	if own := p.logins().OwnKey(); exists(own) && dialer.NoKey() {
		return p.dialerTo(server, own), nil
	}
	return dialer, nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func (p *program) dialerTo(server, identity string) *client.Dialer {
	return &client.Dialer{
		Server: server, Identity: identity, HostKey: p.hostKey,
		Home: p.home(), StateDir: p.dirFor("XDG_STATE_HOME", ".local", "state"), Agent: p.getenv("SSH_AUTH_SOCK"),
		Version: relay.ThisBuild().Version, Prompter: p.prompter(), Say: p.say,
	}
}

// loginAt returns the stored login at the relay of a dialer, or nil.
func (p *program) loginAt(dialer *client.Dialer) (*client.Login, error) {
	addr, err := dialer.Addr()
	if err != nil {
		return nil, err
	}
	list, err := p.logins().Read()
	if err != nil {
		return nil, err
	}
	for i := range list {
		if client.SameServer(list[i].Server, addr) {
			return &list[i], nil
		}
	}
	return nil, nil
}

// api returns the API of the relay: over HTTP with a token or a login, otherwise over SSH with a key. A key
// on the command line takes precedence over a login.
func (p *program) api(ctx context.Context) (*cli.API, error) {
	dialer, err := p.dialer(nil)
	if err != nil {
		return nil, err
	}
	return p.apiBy(ctx, dialer)
}

func (p *program) apiBy(ctx context.Context, dialer *client.Dialer) (*cli.API, error) {
	token, err := p.envToken()
	if err != nil {
		return nil, err
	}
	fromEnv := token != ""
	if !fromEnv && p.identity != "" {
		return client.NewSSHAPI(dialer), nil
	}
	login, err := p.loginAt(dialer)
	if err != nil {
		return nil, err
	}
	base := p.getenv("RELAY_URL")
	switch {
	case !fromEnv && login == nil:
		return client.NewSSHAPI(dialer), nil
	case !fromEnv:
		token, base = login.Token, login.BaseURL
	case base == "":
		if err := p.mayGetToken(dialer, "RELAY_TOKEN"); err != nil {
			return nil, err
		}
		if base, err = p.baseForToken(ctx, dialer, login); err != nil {
			return nil, err
		}
	}
	api, err := client.NewAPI(base, token, relay.ThisBuild().Version)
	if err == nil && fromEnv {
		api.TokenHint = "RELAY_TOKEN is set and takes precedence over login and key: unset it, or set a valid one"
	}
	return api, err
}

// envToken returns the token of the environment, or "". White space around it, such as the carriage return of
// a file from Windows, is removed. A text that is not valid in a header line is refused here, because the
// error of the HTTP client would suggest that the relay cannot be reached.
func (p *program) envToken() (string, error) {
	text := strings.TrimSpace(p.getenv("RELAY_TOKEN"))
	if text == "" {
		return "", nil
	}
	token, err := client.ReadToken(strings.NewReader(text))
	if err != nil || token != text {
		return "", cli.Errorf(cli.ExitRefused, "RELAY_TOKEN is not a token: it contains a space, a line end or a character beyond ASCII").
			WithHint("set it to one token, or unset it")
	}
	return token, nil
}

// mayGetToken returns an error if nothing but a webhooks.yaml in a folder names the server, even if the user has
// logged in at that server. The file may be from a cloned repository, whose author would otherwise choose which
// relay gets the token.
func (p *program) mayGetToken(dialer *client.Dialer, token string) error {
	if cmp.Or(p.server, p.getenv("RELAY_SERVER"), p.config) != "" {
		return nil
	}
	conf, err := p.readConfig()
	if err != nil || conf.Server == "" {
		return err
	}
	return cli.Usage("%s is not sent to %s, which only webhooks.yaml names", token, dialer.Server).
		WithHint("if the token is for that relay, set RELAY_SERVER=%s or name it with --server", dialer.Server)
}

// baseForToken returns the base URL to which the token may be sent. Any program of this machine may listen at
// the default HTTP port, so an http URL is used only if it is that of the login or one that FindBase has
// checked.
func (p *program) baseForToken(ctx context.Context, dialer *client.Dialer, login *client.Login) (string, error) {
	if login != nil {
		return login.BaseURL, nil
	}
	if base := dialer.FindBase(ctx); base != "" {
		return base, nil
	}
	base, err := baseOf(dialer, nil)
	if addr, _ := dialer.Addr(); err == nil && !strings.HasPrefix(base, "https://") {
		return "", cli.Errorf(cli.ExitUnreachable, "the token was sent nowhere: neither %s nor the SSH address %s says that the relay is there", base, addr).
			WithHint("is relayd serve running? set RELAY_URL to the address of the dashboard, or RELAY_SERVER to the SSH address")
	}
	return base, err
}

// baseOf returns the base URL of the login, or, without a login, the one that client.BaseURL derives from the
// SSH host.
func baseOf(dialer *client.Dialer, login *client.Login) (string, error) {
	if login != nil {
		return login.BaseURL, nil
	}
	host, err := dialer.Host()
	if err != nil {
		return "", err
	}
	return client.BaseURL(host), nil
}
