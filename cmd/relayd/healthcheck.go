package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
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
		address, err := requestHealth(cmd.Context(), cfg)
		if err == nil && *asJSON {
			err = printJSON(c.stdout, map[string]string{"status": "ok", "url": address})
		}
		return err
	}
	return cmd
}

// requestHealth requests /healthz from the plain listener, or from the TLS listener if
// there is no other, and returns its URL. It does not check the certificate, which is for
// the public host, because the listener is on this machine.
func requestHealth(ctx context.Context, cfg Config) (address string, err error) {
	scheme, addr := "http", string(cfg.HTTPAddr)
	if known, ok := loadSiteFile(cfg); ok && known.HTTPAddr != "" {
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
			DisableKeepAlives: true, DialContext: dialLocal(cfg.TrustedProxies),
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

// localProxy is the PROXY header of a proxy that is itself the source.
const localProxy = "PROXY UNKNOWN\r\n"

// dialLocal dials a listener of this machine. If this machine is a trusted proxy, the
// listener requires a PROXY header, and dialLocal sends one.
func dialLocal(trusted Prefixes) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		own, err := netip.ParseAddrPort(conn.LocalAddr().String())
		if err != nil {
			return conn, nil
		}
		for _, p := range trusted {
			if p.Contains(own.Addr().Unmap()) {
				if _, err := io.WriteString(conn, localProxy); err != nil {
					_ = conn.Close()
					return nil, err
				}
				break
			}
		}
		return conn, nil
	}
}
