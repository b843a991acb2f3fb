package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/cli"
	"relay/link"
)

const (
	serverDialTimeout = 4 * time.Second  // a lost SYN is sent again after 1 and 3 s
	nameDialTimeout   = 10 * time.Second // a resolver waits 5 s for a name server that is down (resolv.conf(5))
	loginTimeout      = 15 * time.Second // without the time that the user takes to answer prompts
)

// Dialer logs in to one relay. Dial may be called repeatedly, but not concurrently.
type Dialer struct {
	Server   string // HOST[:PORT], or a Host of ~/.ssh/config
	Identity string // the only key file to use; "" = agent, then default keys
	HostKey  string // the only accepted host key, SHA256:…; "" = known hosts
	Home     string // the directory that contains .ssh
	StateDir string // directory for accepted host keys
	Agent    string // socket of the ssh-agent, or ""
	Version  string // version of this program
	// Prompter asks the user at the terminal; nil = there is no user to ask.
	Prompter Prompter
	// KeepNothing: an accepted host key is not stored.
	KeepNothing bool
	// Say gets messages for the user, not yet safe to print.
	Say func(string)

	// approve, if set, makes the login an enrolment: the dialer logs in as linkUser with the first key
	// alone, and calls approve with the link and the code for the user who approves the key.
	approve func(link, code string)
	// connect replaces TCP in tests.
	connect func(ctx context.Context, addr string) (net.Conn, error)
	// expected are host keys that only this dialer accepts; nil = none.
	expected *expectedKeys
	// told is the message of a relay that refused the login after it had shown its host key.
	told string
	// accepted: whether the last host key that was checked was accepted. Key exchanges of several open
	// connections may set the field at the same time.
	accepted atomic.Bool

	once  sync.Once
	where address
	keys  *keyring
	fail  error
}

// Conn is a verified and logged-in connection.
type Conn struct {
	*link.Conn
	Addr    string
	notices chan relay.Notice                   // closed at the end of the connection
	offers  atomic.Pointer[func(o *link.Offer)] // handles the channels that the relay opens
}

// maxNotices is the largest number of waiting notices; the relay sends a few for each forward.
const maxNotices = 256

// newConn returns a connection over a socket, before the login.
func newConn(raw net.Conn, addr string) *Conn {
	c := &Conn{Addr: addr, notices: make(chan relay.Notice, maxNotices)}
	work := link.NewWorkers()
	c.Conn = link.New(raw, link.Options{
		Workers: work, Gone: work.Close,
	})
	return c
}

// handlers returns the handlers for the requests of the relay, and for the channels that the relay opens.
func (c *Conn) handlers() link.Handlers {
	return link.Handlers{
		Request: c.take, Ended: func() { close(c.notices) },
		Channel: func(o *link.Offer) {
			if serve := c.offers.Load(); serve != nil {
				(*serve)(o)
			} else {
				_ = o.Reject(link.UnknownType, "nothing is forwarded here")
			}
		},
	}
}

// take handles a global request from the relay.
func (c *Conn) take(r *link.Request) {
	var n relay.Notice
	if r.Type != relay.NoticeRequest {
		_ = r.Reply(false, nil)
	} else if link.Unmarshal(r.Payload, &n) == nil {
		select {
		case c.notices <- n:
		default: // the notice is dropped, because waiting for its reader would block the whole connection
		}
	}
}

// Host returns the name of the server that is dialed.
func (d *Dialer) Host() (string, error) {
	d.once.Do(d.prepare)
	return d.where.host, d.fail
}

// Addr returns the host and port that are dialed, after ~/.ssh/config is applied.
func (d *Dialer) Addr() (string, error) {
	d.once.Do(d.prepare)
	return d.where.String(), d.fail
}

func (d *Dialer) prepare() {
	d.where, d.fail = resolve(d.Server, d.Home, d.Say)
	if d.approve != nil {
		d.where.user = linkUser
	}
	d.keys = &keyring{
		identity: d.Identity, agent: d.Agent, prompter: d.Prompter, say: d.Say,
		files: d.where.identities, onlyFiles: d.where.identitiesOnly, addKeys: d.where.addKeys,
	}
	if d.where.agent != nil {
		d.keys.agent = *d.where.agent
	}
	if d.where.identityFiles {
		return
	}
	for _, name := range []string{"id_ed25519", "id_ecdsa", "id_rsa"} {
		d.keys.files = append(d.keys.files, filepath.Join(d.Home, ".ssh", name))
	}
}

func (d *Dialer) hostKeys() *hostKeys {
	return &hostKeys{
		pin: d.HostKey, say: d.Say, expected: d.expected, keepNothing: d.KeepNothing,
		own:   filepath.Join(d.StateDir, "known_hosts"),
		files: []string{filepath.Join(d.Home, ".ssh", "known_hosts"), "/etc/ssh/ssh_known_hosts"},
	}
}

// Dial connects, checks the host key and logs in. It returns the error of ctx if ctx has ended. Other errors are
// *cli.Error: with cli.ExitUnreachable another try may help, with other exit codes only the user can help.
func (d *Dialer) Dial(ctx context.Context) (*Conn, error) {
	d.once.Do(d.prepare)
	if d.fail != nil {
		return nil, d.fail
	}
	for {
		person := &pausableDeadline{ask: d.Prompter, timeout: loginTimeout}
		if d.approve != nil {
			person.timeout = enrolTimeout
		}
		conn, err := d.dial(ctx, person)
		// The user may have taken longer to answer than the server waits. The next try uses these answers.
		if e, ok := errors.AsType[*cli.Error](err); ok && e.Exit == cli.ExitUnreachable && person.asked && ctx.Err() == nil {
			continue
		}
		if err != nil && errors.Is(ctx.Err(), context.Canceled) {
			return nil, ctx.Err() // replaces err, which may come from a prompt that Ctrl+C has interrupted
		}
		return conn, err
	}
}

// sayWaiting is the silence of a peer after which the program tells the user that it is waiting.
const sayWaiting = 3 * time.Second

// dial makes one try to log in. person sets the deadline of the login. If d.Prompter is set, prompts go to
// person, which suspends the deadline while it asks d.Prompter.
func (d *Dialer) dial(ctx context.Context, person *pausableDeadline) (*Conn, error) {
	hosts := d.hostKeys()
	if d.keys.prompter = nil; d.Prompter != nil {
		d.keys.prompter, hosts.prompter = person, person
	}
	if d.Identity != "" { // an unusable file is reported before the dial
		if _, _, err := d.keys.signers(); err != nil {
			return nil, err
		}
	}
	if err := hosts.load(); err != nil {
		return nil, err
	}
	addr := d.where.String()
	waiting := time.AfterFunc(sayWaiting, func() { d.Say("waiting for " + addr + " …") })
	defer waiting.Stop()
	if d.Prompter == nil {
		waiting.Stop()
	}
	raw, err := d.open(ctx, addr)
	if err != nil {
		return nil, unreachable(addr, err)
	}
	signers, done, err := d.keys.signers()
	if err != nil {
		raw.Close()
		return nil, err
	}
	defer done()
	conn := newConn(raw, addr)
	person.conn = raw
	person.resume()
	d.keys.locked = nil
	try := loginAttempt{Dialer: d, hosts: hosts, signers: signers, waiting: waiting}
	if err := conn.Connect(ctx, addr, try.config(), conn.handlers()); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err() // try.explain would read fields that the goroutine of the login may still be writing
		}
		return nil, try.explain(err)
	}
	_ = raw.SetDeadline(time.Time{})
	return conn, nil
}

func (d *Dialer) open(ctx context.Context, addr string) (net.Conn, error) {
	if d.connect != nil {
		return d.connect(ctx, addr)
	}
	return serverDialer(addr).DialContext(ctx, "tcp", addr)
}

// serverDialer returns the dialer for the address of a relay, of the form HOST:PORT.
func serverDialer(addr string) *net.Dialer {
	if _, err := netip.ParseAddrPort(addr); err != nil {
		return &net.Dialer{Timeout: nameDialTimeout}
	}
	return &net.Dialer{Timeout: serverDialTimeout}
}

func unreachable(addr string, cause error) *cli.Error {
	return (&cli.Error{Exit: cli.ExitUnreachable, Text: "cannot reach the relay at " + addr, Cause: cause}).
		WithHint("is the address right, and is relayd serve running there? pass --server HOST:PORT or set RELAY_SERVER")
}

// loginAttempt is one attempt to log in.
type loginAttempt struct {
	*Dialer
	hosts   *hostKeys
	signers []ssh.Signer
	waiting *time.Timer // stopped when the peer has shown its host key
	banner  string      // texts of the banners, each with a line end
	shown   bool        // link and code of an enrolment have been shown
}

func (l *loginAttempt) config() *ssh.ClientConfig {
	c := &ssh.ClientConfig{
		User: l.where.user,
		HostKeyCallback: func(addr string, remote net.Addr, key ssh.PublicKey) error {
			l.waiting.Stop()
			err := l.hosts.check(addr, remote, key)
			l.Dialer.accepted.Store(err == nil)
			return err
		},
		HostKeyAlgorithms: l.hosts.algorithms(l.where.String()),
		ClientVersion:     "SSH-2.0-relay_" + versionToken(l.Version),
		BannerCallback:    l.addBanner,
	}
	if l.approve != nil {
		l.signers = l.signers[:1]
		c.Auth = []ssh.AuthMethod{ssh.PublicKeys(l.signers...)}
	} else {
		// The keyboard-interactive method comes after the last key. A relay uses it to say that it knows none
		// of the keys; the client returns empty answers.
		empty := func(_, _ string, questions []string, _ []bool) ([]string, error) {
			return make([]string, len(questions)), nil
		}
		c.Auth = []ssh.AuthMethod{ssh.PublicKeys(l.signers...), ssh.KeyboardInteractive(empty)}
	}
	// AES-GCM comes first, because with AES instructions of the CPU it is twice as fast as ChaCha20.
	c.Ciphers = []string{
		ssh.CipherAES128GCM, ssh.CipherAES256GCM, ssh.CipherChaCha20Poly1305,
		ssh.CipherAES128CTR, ssh.CipherAES192CTR, ssh.CipherAES256CTR,
	}
	return c
}

// versionToken returns the version in the form of RFC 4253, section 4.2: printable ASCII without space and
// minus.
func versionToken(v string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r >= 0x7f || r == '-' {
			return '_'
		}
		return r
	}, v)
}

// maxBanner bounds the stored bytes of SSH banners.
const maxBanner = 64 << 10

// addBanner is the ssh.BannerCallback. It shows the link and the code of an enrolment as soon as both are known.
func (l *loginAttempt) addBanner(text string) error {
	if len(l.banner)+len(text) >= maxBanner {
		return nil
	}
	l.banner += strings.ReplaceAll(text, "\r", "") + "\n"
	if l.approve == nil || l.shown {
		return nil
	}
	link, code := linkLine.FindString(l.banner), codeLine.FindStringSubmatch(l.banner)
	if l.shown = link != "" && code != nil; l.shown {
		l.approve(link, code[1])
	}
	return nil
}

// HostKeyAccepted reports whether the last login that got a host key has accepted this key.
func (d *Dialer) HostKeyAccepted() bool { return d.accepted.Load() }

// explain converts the error of a failed handshake into an *cli.Error. It distinguishes a broken connection
// from a refused login.
func (l *loginAttempt) explain(err error) error {
	addr := l.where.String()
	// This removes the prefix "relay: " of each line, because the program adds the prefix itself.
	told := strings.ReplaceAll("\n"+strings.TrimSpace(l.banner), "\nrelay: ", "\n")[1:]
	var own *cli.Error
	var algorithms *ssh.AlgorithmNegotiationError
	netErr, isNetErr := errors.AsType[net.Error](err)
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &algorithms) && len(l.hosts.wanted(addr)) > 0:
		return (&cli.Error{Exit: cli.ExitRefused, Text: "the host key of " + addr + " may have changed: it has none of the known type", Cause: err}).
			WithHint("if the relay was reinstalled, remove its old line: ssh-keygen -R '%s'", addr)
	case !l.hosts.accepted && !(isNetErr && netErr.Timeout()):
		return unreachable(addr, err).WithHint("is that the SSH address of the relay, and is relayd serve running there? its HTTP port is another one")
	case l.hosts.accepted && l.approve != nil && told != "":
		return cli.Errorf(cli.ExitRefused, "the key was not approved: %s", told[strings.LastIndexByte(told, '\n')+1:]).
			WithHint("run relay login again for a new link, or make a token in the dashboard and run: relay login URL --with-token")
	case !l.hosts.accepted || isNetErr || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed):
		// The connection ended before the login was accepted or refused. A relay that cannot look up keys at
		// the moment says so in a banner and hangs up.
		if told == "" {
			return unreachable(addr, err)
		}
		return (&cli.Error{Exit: cli.ExitUnreachable, Text: addr + " has ended the login", Cause: errors.New(told)}).
			WithHint("this does not mean that your key is refused; try again in a moment")
	case l.keys.locked != nil: // more useful than the error that no key was offered
		return l.keys.locked
	}
	var offered []string
	for _, s := range l.signers {
		offered = append(offered, ssh.FingerprintSHA256(s.PublicKey()))
	}
	refused := cli.Errorf(cli.ExitRefused, "%s refused the login", addr).
		WithHint("relay login URL has a key approved in the browser; offered here: %s", strings.Join(offered, ", "))
	if told != "" {
		refused.Cause = errors.New(told)
		l.Dialer.told = told
	}
	return refused
}

// pausableDeadline is a Prompter that suspends the deadline of the login while the user is asked.
type pausableDeadline struct {
	ask     Prompter
	timeout time.Duration
	conn    net.Conn
	asked   bool
}

func (p *pausableDeadline) resume() { _ = p.conn.SetDeadline(time.Now().Add(p.timeout)) }

func (p *pausableDeadline) pause() {
	p.asked = true
	_ = p.conn.SetDeadline(time.Time{})
}

// Confirm is Prompter.Confirm without a deadline.
func (p *pausableDeadline) Confirm(question string) bool {
	p.pause()
	defer p.resume()
	return p.ask.Confirm(question)
}

// Passphrase is Prompter.Passphrase without a deadline.
func (p *pausableDeadline) Passphrase(file string) ([]byte, error) {
	p.pause()
	defer p.resume()
	return p.ask.Passphrase(file)
}

// linkUser is the user name of an enrolment. With this name, the relay accepts any key whose owner proves
// possession, but only to have the key approved.
const linkUser = "link"

var (
	linkLine = regexp.MustCompile(`https?://[^\s\x00-\x1f\x7f]+/link[^\s\x00-\x1f\x7f]*`)
	codeLine = regexp.MustCompile(`(?m)^\s*Code:\s*([A-Z0-9]{4}-[A-Z0-9]{4})\s*$`)
)

// enrolTimeout is longer than the relay's wait for an approval.
const enrolTimeout = 150 * time.Second

// Enrol asks for the approval of the first key by a user who is logged in to the dashboard. It logs in with
// the first key alone, calls show with the link and the code, and returns when the relay has accepted or
// refused the key. link and code are not safe to print.
func (d *Dialer) Enrol(ctx context.Context, show func(link, code string)) error {
	dialer := d.copy()
	dialer.approve = show
	conn, err := dialer.Dial(ctx)
	if err != nil {
		return err
	}
	conn.Close(link.Unneeded) // the relay has ended the connection already
	return nil
}
