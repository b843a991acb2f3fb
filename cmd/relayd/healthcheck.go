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

	"relay/cli"
	"relay/sockets"
)

func (c *program) healthcheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "healthcheck", Short: "check that the running server is healthy; exit 0 or 1", Args: cli.Takes("", 0, 0),
	}
	asJSON := jsonFlag(cmd)
	return c.withSettings(cmd, false, func(ctx context.Context, cfg Config, _ []*setting, _ []string) error {
		scheme, addr := "http", cfg.HTTPAddr
		if known, ok := loadSiteFile(cfg); ok && known.HTTPAddr != "" {
			addr = known.HTTPAddr
		}
		if addr == "" { // without a plain HTTP listener, use the TLS listener
			scheme, addr = "https", cfg.HTTPSAddr
		}
		if port(addr) == "0" {
			return errors.New("the configured HTTP port is 0, so there is no fixed address to ask; pass --http-addr")
		}
		address := scheme + "://" + dialable(addr) + "/healthz"
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := getLocal(ctx, cfg, cfg.TrustedProxies, address)
		if err == nil && *asJSON {
			err = printJSON(c.stdout, map[string]string{"status": "ok", "url": address})
		}
		return err
	})
}

// getLocal requests a URL of a listener of this machine and returns the body of a 200 answer. The certificate
// is not checked, because it is for the public host name and not for a local address.
func getLocal(ctx context.Context, cfg Config, trusted []netip.Prefix, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	base := cfg.site().Base
	client := &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true, DialContext: dialLocal(trusted),
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: base.Hostname()},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if err != nil {
		if cause, ok := errors.AsType[*url.Error](err); ok {
			err = cause.Err
		}
		return nil, fmt.Errorf("no relayd answers at %s (%w); start it with `relayd serve`, or pass the --http-addr or --data-dir of the one that runs", address, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 4<<20))
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s answered %d; the log of that relayd says why", address, res.StatusCode)
	}
	return body, err
}

// dialLocal returns a function that dials a listener of this machine. If this machine is a trusted
// proxy, the listener requires a PROXY header; the function then sends one that names this machine as
// the source.
func dialLocal(trusted []netip.Prefix) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if sockets.ContainsAddr(trusted, sockets.AddrOf(conn.LocalAddr()).Addr()) {
			if _, err := io.WriteString(conn, "PROXY UNKNOWN\r\n"); err != nil {
				_ = conn.Close()
				return nil, err
			}
		}
		return conn, nil
	}
}
