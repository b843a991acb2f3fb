// Command demo runs the whole loop of Relay on this machine, with the programs that people
// use: relayd, an ssh -R, one signed webhook to a local server that checks signatures, and
// one replay through the API. It uses no settings and keys of the person who runs it.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	once := flag.Bool("once", false, "exit after the loop")
	program := flag.String("relayd", "bin/relayd", "the program `FILE`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *program, *once); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, program string, once bool) error {
	if _, err := exec.LookPath("ssh"); err != nil {
		return errors.New("the demo needs the ssh program; install openssh-client")
	}
	program, err := filepath.Abs(program)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "relay-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d := &demo{dir: dir, secret: []byte("whsec_" + rand.Text())}
	wait, err := d.serve(ctx, program)
	defer wait()
	defer cancel()
	if err == nil {
		err = d.loop(ctx)
	}
	if err == nil && !once {
		fmt.Printf("Send more to %s. Ctrl+C stops everything and removes %s.\n", d.alias, dir)
		<-ctx.Done()
	}
	return err
}

// demo is one run.
type demo struct {
	dir    string
	secret []byte // of the signatures
	base   string // URL of dashboard and API
	alias  string // URL of the alias
	login  string // one-time link
	ssh    string // the printed command that opens a tunnel
	token  string

	mu  sync.Mutex
	got []string // what the local server was sent
}

func row(what, format string, args ...any) {
	fmt.Printf("%-10s %s\n", what, fmt.Sprintf(format, args...))
}

// printed is what relayd prints on a first start, as far as the demo uses it: the one-time
// link, the URL of the dashboard, the command of a tunnel, the alias, the command for a token.
var printed = regexp.MustCompile(`(?s)  dashboard +((http://\S+)/login/\S+).*\n(ssh -N -R [^\n]+).*\ncurl -d \S+ (http://\S+)/hook\n.*\nexport RELAY_TOKEN=\$\(([^\n]*)\)\n`)

// serve starts relayd, and reads addresses and commands from what it prints. The returned
// function waits until relayd has ended, which ctx makes it do.
func (d *demo) serve(ctx context.Context, program string) (wait func(), err error) {
	cmd := exec.CommandContext(ctx, program, "serve", "--http-addr", "127.0.0.1:0", "--ssh-addr", "127.0.0.1:0",
		"--admin-addr", "off", "--log-level", "warn", "--data-dir", filepath.Join(d.dir, "data"))
	cmd.Env, cmd.Stderr = []string{"HOME=" + d.dir, "PATH=" + os.Getenv("PATH")}, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return func() {}, err
	}
	wait = func() { _ = cmd.Wait() }
	text := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		text += lines.Text() + "\n"
		if m := printed.FindStringSubmatch(text); m != nil {
			d.login, d.base, d.ssh, d.alias = m[1], m[2], m[3], m[4]
			token, err := exec.CommandContext(ctx, "sh", "-c", m[5]).Output()
			d.token = strings.TrimSpace(string(token))
			return wait, err
		}
	}
	return wait, errors.New("relayd has ended")
}

// loop opens the tunnel, sends a webhook and replays it.
func (d *demo) loop(ctx context.Context) error {
	fmt.Printf("Relay, the whole loop on this machine, in %s\n\n", d.dir)
	row("server", "%s", d.base)
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: d, ReadHeaderTimeout: 10 * time.Second}
	defer server.Close()
	go func() { _ = server.Serve(target) }()
	row("target", "http://%s checks the signature of each webhook", target.Addr())
	command := strings.Replace(d.ssh, "localhost:3000", target.Addr().String(), 1)
	if err := d.openTunnel(ctx, command); err != nil {
		return err
	}
	row("tunnel", "%s", command)
	id, err := d.webhook(ctx)
	if err == nil {
		err = d.replay(ctx, id)
	}
	row("dashboard", "%s\n", d.login)
	return err
}

// openTunnel runs the printed ssh command and waits until the alias is online. The tunnel
// ends with ctx.
func (d *demo) openTunnel(ctx context.Context, command string) error {
	options := "-o StrictHostKeyChecking=accept-new -o ExitOnForwardFailure=yes -o BatchMode=yes -F none -o UserKnownHostsFile=" + d.dir + "/known_hosts"
	var talk bytes.Buffer
	cmd := exec.CommandContext(ctx, "sh", "-c", "exec "+strings.Replace(command, "ssh ", "ssh "+options+" ", 1))
	cmd.Stderr = &talk
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		var alias struct{ Online bool }
		if d.api(ctx, http.MethodGet, "/aliases/demo", &alias) == nil && alias.Online {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ended:
			return fmt.Errorf("the tunnel has ended; ssh said: %s", strings.TrimSpace(talk.String()))
		case <-look.C:
		}
	}
}

// webhook sends one signed request to the alias and returns the id of its event.
func (d *demo) webhook(ctx context.Context) (string, error) {
	body := []byte(`{"id":"evt_1RelayDemo","object":"event","type":"invoice.paid","data":{"object":{"amount_paid":4200,"currency":"eur"}}}`)
	url, at := d.alias+"/stripe/webhook?source=demo", fmt.Sprint(time.Now().Unix())
	res, answer, err := d.call(ctx, http.MethodPost, url, body, http.Header{
		"Content-Type":     {"application/json; charset=utf-8"},
		"User-Agent":       {"Stripe/1.0 (+https://stripe.com/docs/webhooks)"},
		"Stripe-Signature": {"t=" + at + ",v1=" + d.sign(at, body)},
	})
	if err != nil {
		return "", err
	}
	row("webhook", "POST %s  invoice.paid, %d bytes, signed", url, len(body))
	row("", "%d, the target's own answer: %s", res.StatusCode, bytes.TrimSpace(answer))
	var page struct{ Data []struct{ ID string } }
	if err := d.api(ctx, http.MethodGet, "/events?limit=1&alias=demo", &page); err != nil {
		return "", err
	}
	if res.StatusCode != http.StatusOK || len(page.Data) == 0 {
		return "", errors.New("the webhook was not delivered, or is not in the list of events")
	}
	row("stored", "%s", page.Data[0].ID)
	return page.Data[0].ID, nil
}

// replay sends the event again through the API and compares what the target got.
func (d *demo) replay(ctx context.Context, id string) error {
	var e struct {
		Status   int
		Attempts []struct {
			Number    int
			State     string
			Identical bool
		}
	}
	if err := d.api(ctx, http.MethodPost, "/events/"+id+"/replay", &e); err != nil {
		return err
	}
	last := e.Attempts[len(e.Attempts)-1]
	row("replay", "POST %s/api/v1/events/%s/replay", d.base, id)
	row("", "attempt %d %s, %d; same bytes as the original: %t", last.Number, last.State, e.Status, last.Identical)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range d.got {
		row("target saw", "%s", g)
	}
	if !last.Identical || len(d.got) != 2 || d.got[0] != d.got[1] {
		return errors.New("the replay was not the same as the original")
	}
	return nil
}

// ServeHTTP answers a webhook, as the local server.
func (d *demo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	at, sum, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Stripe-Signature"), "t="), ",v1=")
	verdict := "invalid"
	if hmac.Equal([]byte(sum), []byte(d.sign(at, body))) {
		verdict = "valid"
	} else {
		w.WriteHeader(http.StatusBadRequest)
	}
	d.mu.Lock()
	d.got = append(d.got, fmt.Sprintf("%s %s, body sha256 %.12x…, signature %s", r.Method, r.URL, sha256.Sum256(body), verdict))
	d.mu.Unlock()
	fmt.Fprintf(w, `{"received":true,"signature":%q}`+"\n", verdict)
}

// sign returns a signature as Stripe makes it.
func (d *demo) sign(at string, body []byte) string {
	h := hmac.New(sha256.New, d.secret)
	fmt.Fprintf(h, "%s.%s", at, body)
	return fmt.Sprintf("%x", h.Sum(nil))
}

// api calls the API with the token.
func (d *demo) api(ctx context.Context, method, path string, into any) error {
	res, body, err := d.call(ctx, method, d.base+"/api/v1"+path, nil, http.Header{"Authorization": {"Bearer " + d.token}})
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s %s", method, path, res.Status, body)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// call sends a request to this machine, because names below localhost do not resolve
// everywhere.
func (d *demo) call(ctx context.Context, method, url string, body []byte, header http.Header) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Header, req.Close = header, true
	req.Host, req.URL.Host = req.URL.Host, net.JoinHostPort("127.0.0.1", req.URL.Port())
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res, text, err
}
