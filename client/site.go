package client

import (
	"context"
	"errors"
	"net"
	"net/url"
	"regexp"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"relay/cli"
	"relay/record"
)

// Site has the addresses of a relay, as the relay at its base URL reports them.
type Site struct {
	BaseURL  string          // base URL as the user gave it
	SSHAddr  string          // HOST:PORT to dial
	HostKeys []ssh.PublicKey // host keys that the SSH server will show
}

// CleanBase completes a base URL that a user typed: it adds a missing scheme, http for this machine and https
// for other hosts, and removes a trailing slash.
func CleanBase(typed string) (string, error) {
	text := typed
	if !strings.Contains(text, "://") {
		scheme := "https://"
		if u, err := url.Parse("http://" + text); err == nil && LoopbackName(u.Hostname()) {
			scheme = "http://"
		}
		text = scheme + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.Path != "" && u.Path != "/" {
		return "", cli.Errorf(cli.ExitUsage, "%q is not a base URL", typed).
			WithHint("give the address of the dashboard, such as https://relay.example.com")
	}
	return u.Scheme + "://" + u.Host, nil
}

// Private reports whether traffic to a base URL is safe from eavesdroppers: the URL is https, or names this
// machine.
func Private(base string) bool {
	u, err := url.Parse(base)
	return err == nil && (u.Scheme == "https" || LoopbackName(u.Hostname()))
}

// SameSite reports whether two base URLs have the same host; all names of this machine are equal.
// Ports are ignored, because a relay checks only the host of its base URL.
func SameSite(a, b string) bool {
	one, errA := url.Parse(a)
	two, errB := url.Parse(b)
	return errA == nil && errB == nil && (strings.EqualFold(one.Hostname(), two.Hostname()) ||
		LoopbackName(one.Hostname()) && LoopbackName(two.Hostname()))
}

// CheckSite asks a relay, over SSH, whether the host of its base URL is the host of base, and returns an
// error if not. asked is false if the relay could not be asked. The check is needed because any site can name
// the SSH address of another relay as its own.
func CheckSite(ctx context.Context, a *cli.API, base string) (asked bool, err error) {
	var told record.SSH
	if err := a.Get(ctx, "/ssh", &told); err != nil {
		return false, err
	}
	if !SameSite(told.BaseURL, base) {
		return true, cli.Errorf(cli.ExitRefused, "the relay at the SSH address %s is %s, not %s", a.Endpoint.Addr, told.BaseURL, base).
			WithHint("relay login %s logs in there; --server names another SSH address", told.BaseURL)
	}
	return true, nil
}

// Discover asks the base URL of a relay for its SSH address and host keys; both are empty if the relay does
// not publish them.
func Discover(ctx context.Context, base, version string) (*Site, error) {
	api, err := NewAPI(base, "", version)
	if err != nil {
		return nil, err
	}
	site := &Site{BaseURL: api.Base}
	var told record.SSH
	defer api.Close()
	err = api.Get(ctx, "/ssh", &told)
	var e *cli.Error
	switch {
	case errors.As(err, &e) && (e.Exit == cli.ExitNotFound || e.Exit == cli.ExitRefused):
		return site, nil
	case errors.As(err, &e) && e.Exit == cli.ExitUnreachable:
		if strings.Contains(e.Error(), `"SSH-2.0-`) {
			return nil, e.WithHint("that is an SSH port; give the address of the dashboard: relay login URL")
		}
		return nil, e.WithHint("is that the address of its dashboard, and is relayd serve running there? relay login URL names another")
	case err != nil:
		return nil, err
	}
	if _, _, _, err := SplitServer(told.Addr); err != nil || strings.Contains(told.Addr, "@") {
		return nil, cli.Errorf(cli.ExitFailure, "%s names %q as its SSH address, which is not a valid address", base, told.Addr)
	}
	site.SSHAddr = told.Addr
	for _, k := range told.HostKeys {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(k.Type + " " + strings.TrimSpace(k.Key)))
		if err != nil {
			return nil, &cli.Error{Exit: cli.ExitFailure, Text: base + " tells a host key that cannot be read", Cause: err}
		}
		site.HostKeys = append(site.HostKeys, key)
	}
	return site, nil
}

// accountPage finds the base URL in the message of a relay that refuses a login.
var accountPage = regexp.MustCompile(`(https?://[^\s\x00-\x1f\x7f]+)/account\b`)

// FindBase finds the base URL of a relay of which only the SSH address is known: it tries the usual
// addresses, then asks over SSH, where the host key is checked. It returns "" if no address works.
func (d *Dialer) FindBase(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, findLimit)
	defer cancel()
	host, err := d.Host()
	if err != nil {
		return ""
	}
	addr, _ := d.Addr()
	_, port, _ := net.SplitHostPort(addr)
	usual := BaseURL(host)
	if site, err := Discover(ctx, usual, d.Version); err == nil {
		if _, _, told, _ := SplitServer(site.SSHAddr); told == port {
			return usual
		}
	}
	api := NewSSHAPI(d)
	defer api.Close()
	var told record.SSH
	if err := api.Get(ctx, "/ssh", &told); err != nil {
		// Only a relay whose host key was accepted may name its base URL. d.told has the text of such a relay;
		// the text of err may come from a peer that has shown no key yet.
		if page := accountPage.FindStringSubmatch(d.told); page != nil {
			told.BaseURL = page[1]
		}
	}
	base, err := CleanBase(told.BaseURL)
	if err != nil {
		return ""
	}
	return base
}

// findLimit bounds the search for a base URL.
const findLimit = 10 * time.Second
