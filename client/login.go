package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"regexp"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// linkUser is the user name of an enrolment: the relay accepts any proven key, to have
// it approved and for nothing else.
const linkUser = "link"

var (
	linkLine = regexp.MustCompile(`https?://[^\s\x00-\x1f\x7f]+/link[^\s\x00-\x1f\x7f]*`)
	codeLine = regexp.MustCompile(`(?m)^\s*Code:\s*([A-Z0-9]{4}-[A-Z0-9]{4})\s*$`)
)

const (
	// maxLinkText bounds the text that is searched for link and code.
	maxLinkText = 64 << 10
	// enrolTimeout is longer than the relay waits for an approval.
	enrolTimeout = 150 * time.Second
)

// as returns a dialer for another user name, with the same keys and host keys.
func (d *Dialer) as(user string) (*Dialer, error) {
	_, host, port, err := SplitServer(d.Server)
	if err != nil {
		return nil, err
	}
	server := host
	if port != "" {
		server = net.JoinHostPort(host, port)
	}
	return &Dialer{
		Server: user + "@" + server, Identity: d.Identity, HostKey: d.HostKey, Home: d.Home, StateDir: d.StateDir,
		Agent: d.Agent, Version: d.Version, Prompter: d.Prompter, Say: d.Say, connect: d.connect,
	}, nil
}

// Enrol has the first key approved by a person who is signed in to the dashboard. It
// logs in with that key alone, passes link and code to show, and returns when the relay
// has accepted the key or says why not. The texts passed to show are not safe to print.
func (d *Dialer) Enrol(ctx context.Context, show func(link, code string)) error {
	dialer, err := d.as(linkUser)
	if err != nil {
		return err
	}
	dialer.once.Do(dialer.prepare)
	if dialer.fail != nil {
		return dialer.fail
	}
	dialer.keys.prompter = d.Prompter
	signers, done, err := dialer.keys.signers()
	if err != nil {
		return err
	}
	defer done()
	hosts := dialer.hostKeys(d.Prompter)
	if err := hosts.load(); err != nil {
		return err
	}
	addr := dialer.where.String()
	raw, err := dialer.open(ctx, addr)
	if err != nil {
		return unreachable(addr, err)
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	_ = raw.SetDeadline(time.Now().Add(enrolTimeout))
	return enrol(ctx, dialer, &loginAttempt{addr: addr, hosts: hosts, signers: signers[:1], keys: dialer.keys}, raw, show)
}

// enrol does the handshake, in which the relay waits for the approval.
func enrol(ctx context.Context, d *Dialer, try *loginAttempt, raw net.Conn, show func(link, code string)) error {
	text := &linkText{show: show}
	config := try.config(d)
	config.Auth = []ssh.AuthMethod{ssh.PublicKeys(try.signers...)}
	config.BannerCallback = func(banner string) error {
		text.take(banner)
		return nil
	}
	conn, channels, requests, err := ssh.NewClientConn(raw, try.addr, config)
	if err == nil {
		return ssh.NewClient(conn, channels, requests).Close()
	}
	if last := text.last(); try.hosts.accepted && last != "" && ctx.Err() == nil {
		return Errorf(ExitRefused, "the key was not approved: %s", last).
			WithHint("run relay login again for a new link, or make a token in the dashboard and run: relay login URL --with-token")
	}
	return try.explain(ctx, err)
}

// linkText collects the text of the relay until it decides.
type linkText struct {
	show  func(link, code string)
	all   strings.Builder
	shown bool
}

// take handles a banner. Link and code are shown once both are known.
func (l *linkText) take(banner string) {
	if l.all.Len()+len(banner) > maxLinkText {
		return
	}
	l.all.WriteString(strings.ReplaceAll(banner, "\r", ""))
	link, code := linkLine.FindString(l.all.String()), codeLine.FindStringSubmatch(l.all.String())
	if !l.shown && link != "" && code != nil {
		l.shown = true
		l.show(link, code[1])
	}
}

// last returns the last line of the text.
func (l *linkText) last() string {
	lines := strings.Split(strings.TrimSpace(l.all.String()), "\n")
	return strings.TrimPrefix(strings.TrimSpace(lines[len(lines)-1]), "relay: ")
}

// ReadToken reads a text that holds nothing but a token.
func ReadToken(r io.Reader) (string, error) {
	text, err := bufio.NewReader(io.LimitReader(r, 4096)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	token := strings.TrimSpace(text)
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", Errorf(ExitUsage, "there is no token on standard input").
			WithHint("relay login URL --with-token < FILE")
	}
	return token, nil
}
