package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

func (c *cli) healthcheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "healthcheck", Short: "ask the running server for /healthz; exit 0 when it answers well", Args: exactly(),
	}
	load := c.settingFlags(cmd, false)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, _, err := load()
		if err != nil {
			return err
		}
		address, err := askHealth(cmd.Context(), cfg)
		if err == nil && *asJSON {
			err = printJSON(c.stdout, map[string]string{"status": "ok", "url": address})
		}
		return err
	}
	return cmd
}

// askHealth asks the plain listener, or the TLS one where there is no other, and
// gives the address that it asked. The
// certificate is not checked: it names the public host, and this is the same
// machine.
func askHealth(ctx context.Context, cfg Config) (address string, err error) {
	scheme, addr := "http", string(cfg.HTTPAddr)
	if known, ok := recall(cfg); ok && known.HTTPAddr != "" {
		addr = known.HTTPAddr
	}
	if addr == "" {
		scheme, addr = "https", string(cfg.HTTPSAddr)
	}
	host, port, _ := net.SplitHostPort(addr)
	if port == "0" {
		return "", errors.New(noHealthPort)
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	address = scheme + "://" + net.JoinHostPort(host, port) + "/healthz"
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	site := cfg.site(cfg.addresses())
	client := &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true, DialContext: dialSelf(cfg.TrustedProxies),
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: site.Base.Hostname()},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if err != nil {
		var cause *url.Error
		if errors.As(err, &cause) {
			err = cause.Err
		}
		return "", fmt.Errorf(noHealth, address, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf(unhealthy, address, res.StatusCode)
	}
	return address, nil
}
