package client

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
)

const (
	serverDialTimeout = 4 * time.Second  // a lost SYN is repeated after 1 and 3 s
	loginTimeout      = 15 * time.Second // without the time that a person takes to answer
)

// Dialer logs in to one relay. Its fields are set once. Dial may be called repeatedly,
// but not concurrently.
type Dialer struct {
	Server   string // HOST[:PORT], a name of ~/.ssh/config too
	Identity string // key file that alone is used; "" = agent, then default keys
	HostKey  string // SHA256:… that alone is accepted; "" = known hosts
	Home     string // where .ssh is
	StateDir string // where accepted host keys are kept
	Agent    string // socket of the ssh-agent, or ""
	Version  string // of this program
	// Prompter asks the person at the terminal; nil = there is nobody.
	Prompter Prompter
	// Say gets lines for people, not yet safe to print.
	Say func(string)

	// connect replaces TCP in tests.
	connect func(ctx context.Context, addr string) (net.Conn, error)

	once  sync.Once
	where address
	keys  *keyring
	fail  error
}

// Conn is a verified and logged-in connection.
type Conn struct {
	*ssh.Client
	Addr     string
	activity *activityConn
	notices  chan relay.Notice // closed at the end of the connection
	ended    chan struct{}     // closed then too
}

// maxNotices is how many notices wait at most; the relay sends a few for each forward.
const maxNotices = 256

// newConn starts to use an SSH connection.
func newConn(conn ssh.Conn, channels <-chan ssh.NewChannel, requests <-chan *ssh.Request, addr string, activity *activityConn) *Conn {
	c := &Conn{Addr: addr, activity: activity, notices: make(chan relay.Notice, maxNotices), ended: make(chan struct{})}
	others := make(chan *ssh.Request)
	c.Client = ssh.NewClient(conn, channels, others)
	go func() {
		defer close(c.ended)
		defer close(c.notices)
		defer close(others)
		for r := range requests {
			if r.Type != relay.NoticeRequest {
				others <- r // refused by the library
				continue
			}
			var n relay.Notice
			if ssh.Unmarshal(r.Payload, &n) != nil {
				continue
			}
			select {
			case c.notices <- n:
			default: // waiting would stop the whole connection
			}
		}
	}()
	return c
}

// Host returns the host of the server as it is dialed.
func (d *Dialer) Host() (string, error) {
	d.once.Do(d.prepare)
	return d.where.host, d.fail
}

func (d *Dialer) prepare() {
	d.where, d.fail = resolve(d.Server, d.Home, d.Say)
	d.keys = &keyring{
		identity: d.Identity, agent: d.Agent, prompter: d.Prompter, say: d.Say,
		files: append(d.where.identities, defaultKeys(d.Home)...),
	}
}

func (d *Dialer) hostKeys(ask Prompter) *hostKeys {
	return &hostKeys{
		pin: d.HostKey, prompter: ask, say: d.Say,
		own:   filepath.Join(d.StateDir, "known_hosts"),
		files: []string{filepath.Join(d.Home, ".ssh", "known_hosts"), "/etc/ssh/ssh_known_hosts"},
	}
}

// Dial connects, checks the host key and logs in. Errors are *Error: ExitUnreachable
// when another try may help, ExitRefused when only a person can help.
func (d *Dialer) Dial(ctx context.Context) (*Conn, error) {
	d.once.Do(d.prepare)
	if d.fail != nil {
		return nil, d.fail
	}
	for {
		deadline := &pausableDeadline{ask: d.Prompter}
		conn, err := d.dial(ctx, deadline)
		var e *Error
		// A person may take longer than the server waits. The next try uses the
		// answers.
		if errors.As(err, &e) && e.Exit == ExitUnreachable && deadline.asked && ctx.Err() == nil {
			continue
		}
		if err != nil && errors.Is(ctx.Err(), context.Canceled) {
			return nil, ctx.Err() // also when a prompt was interrupted
		}
		return conn, err
	}
}

func (d *Dialer) dial(ctx context.Context, deadline *pausableDeadline) (*Conn, error) {
	var prompter Prompter
	if d.Prompter != nil {
		prompter = deadline
	}
	d.keys.prompter = prompter
	if d.Identity != "" { // a bad file is reported before anything is dialed
		if _, _, err := d.keys.signers(); err != nil {
			return nil, err
		}
	}
	addr := d.where.String()
	spoke := d.waiting(addr)
	defer spoke()
	raw, err := d.open(ctx, addr)
	if err != nil {
		return nil, unreachable(addr, err)
	}
	deadline.conn = raw
	hosts := d.hostKeys(prompter)
	if err := hosts.load(); err != nil {
		raw.Close()
		return nil, err
	}
	signers, done, err := d.keys.signers()
	if err != nil {
		raw.Close()
		return nil, err
	}
	defer done()
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()
	activity := &activityConn{Conn: raw, out: relay.NewBatchWriter(raw)}
	deadline.resume()
	d.keys.locked = nil
	try := loginAttempt{addr: addr, hosts: hosts, signers: signers, keys: d.keys, gotHostKey: spoke}
	conn, channels, requests, err := ssh.NewClientConn(activity, addr, try.config(d))
	if err != nil {
		return nil, try.explain(ctx, err)
	}
	_ = raw.SetDeadline(time.Time{})
	return newConn(conn, channels, requests, addr, activity), nil
}

// sayWaiting is how long a peer may be silent before the person at the terminal is
// told.
const sayWaiting = 3 * time.Second

// waiting tells the person at the terminal which address does not answer, unless the
// returned function is called before.
func (d *Dialer) waiting(addr string) (spoke func()) {
	if d.Prompter == nil || d.Say == nil {
		return func() {}
	}
	timer := time.AfterFunc(sayWaiting, func() { d.Say("waiting for " + addr + " …") })
	return func() { timer.Stop() }
}

func (d *Dialer) open(ctx context.Context, addr string) (net.Conn, error) {
	if d.connect != nil {
		return d.connect(ctx, addr)
	}
	return (&net.Dialer{Timeout: serverDialTimeout}).DialContext(ctx, "tcp", addr)
}

func unreachable(addr string, cause error) *Error {
	return (&Error{Exit: ExitUnreachable, Text: "cannot reach the relay at " + addr, Cause: cause}).
		WithHint("is the address right, and is relayd serve running there? pass --server HOST:PORT or set RELAY_SERVER")
}

// loginAttempt is one attempt to log in.
type loginAttempt struct {
	addr       string
	hosts      *hostKeys
	signers    []ssh.Signer
	keys       *keyring
	gotHostKey func() // called when the peer has shown its host key; may be nil
	banner     []string
	bannerSize int // bytes of it
}

// hostKey is the ssh.HostKeyCallback.
func (l *loginAttempt) hostKey(host string, remote net.Addr, key ssh.PublicKey) error {
	if l.gotHostKey != nil {
		l.gotHostKey()
	}
	return l.hosts.check(host, remote, key)
}

// emptyAnswers answers the keyboard-interactive method, which follows the last key. It
// proves nothing; a relay that knows none of the keys uses the method to say so.
func emptyAnswers(_, _ string, questions []string, _ []bool) ([]string, error) {
	return make([]string, len(questions)), nil
}

func (l *loginAttempt) config(d *Dialer) *ssh.ClientConfig {
	c := &ssh.ClientConfig{
		User:              d.where.user,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(l.signers...), ssh.KeyboardInteractive(emptyAnswers)},
		HostKeyCallback:   l.hostKey,
		HostKeyAlgorithms: l.hosts.algorithms(l.addr),
		ClientVersion:     "SSH-2.0-relay_" + versionToken(d.Version),
		BannerCallback: func(text string) error {
			l.addBanner(text)
			return nil
		},
	}
	// AES-GCM first: with AES in the CPU it is twice as fast as ChaCha20.
	c.Ciphers = []string{
		ssh.CipherAES128GCM, ssh.CipherAES256GCM, ssh.CipherChaCha20Poly1305,
		ssh.CipherAES128CTR, ssh.CipherAES192CTR, ssh.CipherAES256CTR,
	}
	return c
}

// maxBanner bounds what is kept of the banners.
const maxBanner = 64 << 10

func (l *loginAttempt) addBanner(text string) {
	if l.bannerSize+len(text) <= maxBanner {
		l.bannerSize += len(text)
		l.banner = append(l.banner, text)
	}
}

// versionToken returns the version as RFC 4253 section 4.2 allows it: printable ASCII
// without space and minus.
func versionToken(v string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r >= 0x7f || r == '-' {
			return '_'
		}
		return r
	}, v)
}

// explain turns a failed handshake into an *Error. It distinguishes a broken connection
// from a refused login.
func (l *loginAttempt) explain(ctx context.Context, err error) error {
	var own *Error
	var algorithms *ssh.AlgorithmNegotiationError
	switch {
	case errors.As(err, &own):
		return own
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &algorithms) && len(l.hosts.wanted(l.addr)) > 0:
		return (&Error{Exit: ExitRefused, Text: "the host key of " + l.addr + " may have changed: it has none of the known type", Cause: err}).
			WithHint("if the relay was set up anew, remove its old line: ssh-keygen -R '%s'", l.addr)
	case !l.hosts.accepted && !timedOut(err):
		return unreachable(l.addr, err).WithHint("is that the SSH address of the relay, and is relayd serve running there? its HTTP port is another one")
	case !l.hosts.accepted || connectionError(err):
		return l.interrupted(err)
	}
	if l.keys.locked != nil { // otherwise the error would be that no key was offered
		return l.keys.locked
	}
	refused := Errorf(ExitRefused, "%s refused the login", l.addr).
		WithHint("relay login URL has a key approved in the browser; offered here: %s", fingerprints(l.signers))
	if text := bannerText(l.banner); text != "" {
		refused.Cause = errors.New(text)
	}
	return refused
}

// interrupted returns the error of a connection that broke before the login was
// decided. A relay that cannot look up keys at the moment says so in a banner and hangs
// up.
func (l *loginAttempt) interrupted(cause error) *Error {
	text := bannerText(l.banner)
	if text == "" {
		return unreachable(l.addr, cause)
	}
	return (&Error{Exit: ExitUnreachable, Text: l.addr + " has ended the login", Cause: errors.New(text)}).
		WithHint("this does not mean that your key is refused; try again in a moment")
}

// bannerText returns the text of the banners without the prefix of their lines, because
// the program prints the same prefix.
func bannerText(banner []string) string {
	lines := strings.Split(strings.TrimSpace(strings.Join(banner, "\n")), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(strings.TrimRight(line, "\r"), "relay: ")
	}
	return strings.Join(lines, "\n")
}

func timedOut(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

// connectionError reports whether an error is about the connection and not an answer of
// the peer.
func connectionError(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// pausableDeadline is a Prompter that suspends the deadline of the login while a person
// is asked.
type pausableDeadline struct {
	ask   Prompter
	conn  net.Conn
	asked bool
}

func (p *pausableDeadline) resume() { _ = p.conn.SetDeadline(time.Now().Add(loginTimeout)) }

// Confirm is Prompter.Confirm without a deadline.
func (p *pausableDeadline) Confirm(question string) bool {
	p.asked = true
	_ = p.conn.SetDeadline(time.Time{})
	defer p.resume()
	return p.ask.Confirm(question)
}

// Passphrase is Prompter.Passphrase without a deadline.
func (p *pausableDeadline) Passphrase(file string) ([]byte, error) {
	p.asked = true
	_ = p.conn.SetDeadline(time.Time{})
	defer p.resume()
	return p.ask.Passphrase(file)
}
