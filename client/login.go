package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"regexp"
	"strings"
	"time"
)

// linkUser is the user name of an enrolment: the relay accepts any proven key, to have
// it approved and for nothing else.
const linkUser = "link"

var (
	linkLine = regexp.MustCompile(`https?://[^\s\x00-\x1f\x7f]+/link[^\s\x00-\x1f\x7f]*`)
	codeLine = regexp.MustCompile(`(?m)^\s*Code:\s*([A-Z0-9]{4}-[A-Z0-9]{4})\s*$`)
)

// enrolTimeout is longer than the relay waits for an approval.
const enrolTimeout = 150 * time.Second

// Enrol has the first key approved by a person who is signed in to the dashboard. It
// logs in with that key alone, passes link and code to show, and returns when the relay
// has accepted the key or says why not. The texts passed to show are not safe to print.
func (d *Dialer) Enrol(ctx context.Context, show func(link, code string)) error {
	dialer := &Dialer{
		Server: d.Server, Identity: d.Identity, HostKey: d.HostKey, Home: d.Home, StateDir: d.StateDir,
		Agent: d.Agent, Version: d.Version, Prompter: d.Prompter, Say: d.Say, approve: show, connect: d.connect,
	}
	conn, err := dialer.Dial(ctx)
	if err != nil {
		return err
	}
	return conn.Close()
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
