package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh/knownhosts"

	"relay"
	"relay/record"
)

// demoCommand runs the whole loop: server, target, a tunnel by the real ssh, one
// signed webhook, one replay.
func (c *cli) demoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "demo", Short: "run the whole loop by itself and say what happened", Args: exactly(), Hidden: true,
	}
	once := cmd.Flags().Bool("once", false, "exit after the loop")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if _, err := exec.LookPath("ssh"); err != nil {
			return errors.New(noSSHProgram)
		}
		dir, err := os.MkdirTemp("", "relay-demo-")
		if err != nil {
			return err
		}
		defer func() {
			if rerr := os.RemoveAll(dir); err == nil {
				err = rerr
			}
		}()
		d := &demo{cli: c, dir: dir, once: *once}
		return d.run(cmd.Context())
	}
	return cmd
}

// demo is one run of the demonstration. Nothing of the person's own settings and
// keys is used.
type demo struct {
	*cli
	dir    string
	once   bool
	app    *app
	start  *summary
	target *demoTarget
	tunnel *exec.Cmd
	token  string
}

func (d *demo) run(ctx context.Context) (err error) {
	if err := d.serve(ctx); err != nil {
		return err
	}
	defer func() {
		if serr := d.app.Stop(); err == nil {
			err = serr
		}
	}()
	defer d.target.close()
	stopTunnel, err := d.openTunnel(ctx)
	if err != nil {
		return err
	}
	defer stopTunnel()
	id, err := d.webhook(ctx)
	if err != nil {
		return err
	}
	if err := d.replay(ctx, id); err != nil {
		return err
	}
	d.printRow("dashboard", "%s", d.start.LoginLink)
	d.printRow("", "one use, 15 minutes")
	if !d.once {
		fmt.Fprintf(d.stdout, "\nSend more to %s. Ctrl+C stops everything and removes %s.\n", d.app.site.AliasURL(demoAlias), d.dir)
		<-ctx.Done()
	}
	return nil
}

func (d *demo) printRow(what, format string, args ...any) {
	fmt.Fprintf(d.stdout, "%-10s %s\n", what, fmt.Sprintf(format, args...))
}

// serve starts the target and the server on free ports, with an account made for
// this run.
func (d *demo) serve(ctx context.Context) error {
	nothing := func(string) string { return "" }
	cfg, list, err := load(sources{getenv: nothing, flags: map[string]string{
		"http-addr": "127.0.0.1:0", "ssh-addr": "127.0.0.1:0", "admin-addr": off,
		"data-dir": filepath.Join(d.dir, "data"), "log-level": "warn",
	}})
	if err != nil {
		return err
	}
	d.app = newApp(&cli{getenv: nothing, stdout: d.stdout, stderr: d.stderr}, cfg)
	if err := d.app.Start(ctx); err != nil {
		return err
	}
	if err := d.prepare(ctx, list); err != nil {
		return errors.Join(err, d.app.Stop())
	}
	fmt.Fprintf(d.stdout, "Relay, the whole loop on this machine, in %s\n\n", d.dir)
	d.printRow("server", "%s  ssh %s", d.app.site.Base.String(), d.app.site.SSHAddr)
	d.printRow("target", "http://%s checks the signature of each webhook", d.target.addr)
	return nil
}

func (d *demo) prepare(ctx context.Context, list []*setting) error {
	var err error
	if d.start, err = d.app.firstStart(ctx, list); err != nil {
		return err
	}
	acc, err := d.app.store.AccountByName(ctx, d.start.Admin)
	if err != nil {
		return err
	}
	_, d.token, err = d.app.store.CreateToken(ctx, relay.System(), relay.Token{
		Account: acc.ID, AccountName: acc.Name, Name: "demo", Scopes: relay.AllScopes,
	})
	if err != nil {
		return err
	}
	d.target, err = newDemoTarget()
	return err
}

// openTunnel runs ssh -R and waits until the alias is online. The host key is known
// beforehand, so nothing is asked.
func (d *demo) openTunnel(ctx context.Context) (stop func(), err error) {
	known := filepath.Join(d.dir, "known_hosts")
	line := knownhosts.Line([]string{d.app.site.SSHAddr}, d.app.hostKeys[0].PublicKey())
	if err := os.WriteFile(known, []byte(line+"\n"), 0o600); err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(d.app.site.SSHAddr)
	args := []string{
		"-N", "-R", demoAlias + ":80:" + d.target.addr, "-p", port, "-i", d.start.KeyFile, "-o", "IdentitiesOnly=yes",
		"-o", "UserKnownHostsFile=" + known, "-o", "ExitOnForwardFailure=yes", "-o", "BatchMode=yes", "-F", "none", host,
	}
	ctx, cancel := context.WithCancel(ctx)
	var talk bytes.Buffer
	d.tunnel = exec.CommandContext(ctx, "ssh", args...)
	d.tunnel.Stderr = &talk
	if err := d.tunnel.Start(); err != nil {
		cancel()
		return nil, err
	}
	ended := make(chan struct{})
	go func() { _ = d.tunnel.Wait(); close(ended) }()
	stop = func() { cancel(); <-ended }
	if err := d.awaitOnline(ctx, ended); err != nil {
		stop()
		return nil, fmt.Errorf("%w; ssh said: %s", err, strings.TrimSpace(talk.String()))
	}
	d.printRow("tunnel", "ssh -N -R %s:80:%s -p %s … %s", demoAlias, d.target.addr, port, host)
	return stop, nil
}

func (d *demo) awaitOnline(ctx context.Context, ended <-chan struct{}) error {
	late := time.NewTimer(15 * time.Second)
	defer late.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		var alias record.Alias
		if d.api(ctx, http.MethodGet, "/aliases/"+demoAlias, &alias) == nil && alias.Online {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ended:
			return errors.New("the tunnel ended before it was online")
		case <-late.C:
			return errors.New("the tunnel did not come online within 15 seconds")
		case <-look.C:
		}
	}
}

// webhook sends one signed request to the alias and returns the id of its event.
func (d *demo) webhook(ctx context.Context) (string, error) {
	body := []byte(`{"id":"evt_1RelayDemo","object":"event","type":"invoice.paid","data":{"object":{"amount_paid":4200,"currency":"eur"}}}`)
	url := d.app.site.AliasURL(demoAlias) + "/stripe/webhook?source=demo"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	req.Header.Set("User-Agent", "Stripe/1.0 (+https://stripe.com/docs/webhooks)")
	req.Header.Set("Stripe-Signature", d.target.sign(body, time.Now()))
	begun := time.Now()
	res, err := d.client().Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return "", err
	}
	d.printRow("webhook", "POST %s  invoice.paid, %d bytes, signed", url, len(body))
	d.printRow("", "%d in %s, the target's own answer: %s", res.StatusCode, time.Since(begun).Round(100*time.Microsecond), bytes.TrimSpace(answer))
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the webhook was answered %d", res.StatusCode)
	}
	var page struct{ Data []record.Summary }
	if err := d.api(ctx, http.MethodGet, "/events?limit=1&alias="+demoAlias, &page); err != nil {
		return "", err
	}
	if len(page.Data) == 0 {
		return "", errors.New("the webhook is not in the list of events")
	}
	d.printRow("stored", "%s", page.Data[0].ID)
	return page.Data[0].ID, nil
}

// replay sends the event again through the API and compares what the target got.
func (d *demo) replay(ctx context.Context, id string) error {
	var e record.Event
	if err := d.api(ctx, http.MethodPost, "/events/"+id+"/replay", &e); err != nil {
		return err
	}
	last := e.Attempts[len(e.Attempts)-1]
	same := last.Identical != nil && *last.Identical
	d.printRow("replay", "POST %s/api/v1/events/%s/replay", d.app.site.Base.String(), id)
	status := "no answer"
	if e.Status != nil {
		status = strconv.Itoa(*e.Status)
	}
	d.printRow("", "attempt %d %s, %s; same bytes as the original: %t", last.Number, last.State, status, same)
	got := d.target.seen()
	for _, g := range got {
		d.printRow("target saw", "%s", g)
	}
	if !same || len(got) != 2 || got[0] != got[1] {
		return errors.New("the replay was not the same as the original")
	}
	fmt.Fprintln(d.stdout)
	return nil
}

// api calls the relay's own API as anybody would.
func (d *demo) api(ctx context.Context, method, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, d.app.site.URL("/api/v1"+path), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+d.token)
	res, err := d.client().Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 4<<10))
		return fmt.Errorf("%s %s: %d %s", method, path, res.StatusCode, bytes.TrimSpace(text))
	}
	return json.NewDecoder(res.Body).Decode(into)
}

// client reaches every name on the HTTP listener: alias hosts under localhost do
// not resolve everywhere.
func (d *demo) client() *http.Client {
	var dialer net.Dialer
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", d.app.listenAddrs.HTTP)
		},
	}}
}
