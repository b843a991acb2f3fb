package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"relay"
	"relay/cli"
	"relay/record"
)

const (
	probeLimit = 5 * time.Second // time limit of one request to the network
	// Limits of the clock difference. Signatures of webhooks are valid for minutes, so a wrong clock makes
	// them fail.
	skewWarn = 5 * time.Second
	skewFail = time.Minute
)

// Doctor checks the path from this machine to a relay and back to the local servers. It changes nothing
// and asks no questions.
type Doctor struct {
	Dialer *Dialer
	// API is the API that commands use. The doctor closes it.
	API *cli.API
	// APIErr is the reason why commands can use no API, such as a token that would be sent over clear http.
	// It is the finding of the login check. nil = commands use API.
	APIErr error
	// BaseURL is the address of the dashboard; "" = unknown.
	BaseURL  string
	Forwards []Forward // from webhooks.yaml, or from the command line

	timeout time.Duration // time limit of one request to the network; 0 = probeLimit
	list    []relay.Finding
	addr    string
	shown   ssh.PublicKey // the host key that the relay shows
	broken  bool          // a check has failed, so the checks that need it are skipped
}

// note stores the outcome of a check. It joins the lines of the reason.
func (d *Doctor) note(check string, f relay.Finding) {
	f.Check, f.Reason = check, strings.ReplaceAll(f.Reason, "\n", "; ")
	d.list = append(d.list, f)
}

// check makes a check and stores its finding. If d.broken is true, it stores instead that this one is skipped.
func (d *Doctor) check(check string, look func() relay.Finding) {
	if d.broken {
		d.note(check, relay.Findingf(relay.VerdictSkip, "", "needs the check above that failed"))
		return
	}
	f := look()
	d.broken = f.Verdict == relay.VerdictFail
	d.note(check, f)
}

// Examine makes every check that needs the network, and returns the findings. A check is skipped if it needs an
// earlier check that has failed. A check takes 10 seconds at most.
func (d *Doctor) Examine(ctx context.Context) []relay.Finding {
	defer func() {
		if d.API != nil {
			d.API.Close()
		}
	}()
	d.timeout = cmp.Or(d.timeout, probeLimit)
	host, err := d.Dialer.Host()
	d.addr, _ = d.Dialer.Addr()
	d.check("name resolution", func() relay.Finding {
		if err != nil {
			return relay.Findingf(relay.VerdictFail, "pass --server HOST:PORT or set RELAY_SERVER", "%v", err)
		}
		if net.ParseIP(host) != nil {
			return relay.Findingf(relay.VerdictOK, "", "%s is an address", host)
		}
		limited, cancel := context.WithTimeout(ctx, d.timeout)
		defer cancel()
		found, err := net.DefaultResolver.LookupHost(limited, host)
		if err != nil {
			return relay.Findingf(relay.VerdictFail, "is the name right, and is there a network? ask the operator of the relay for its SSH address", "%v", err)
		}
		return relay.Findingf(relay.VerdictOK, "", "%s is %s", host, strings.Join(found[:min(len(found), 4)], ", "))
	})
	d.server(ctx)
	if d.APIErr != nil || !d.API.OverSSH() {
		d.broken = false // the API of the commands uses HTTP, so it is checked anyway
	}
	d.check("login", func() relay.Finding { return d.login(ctx) })
	d.aliases(ctx)
	d.locals(ctx)
	d.note("clock", d.clock(ctx, host))
	return d.list
}

// greetingConn stores the first bytes that are read, which hold the SSH identification.
type greetingConn struct {
	net.Conn
	start []byte
}

// Read reads, and stores the first bytes.
func (c *greetingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.start = append(c.start, p[:min(n, max(0, 256-len(c.start)))]...)
	return n, err
}

// server connects, reads the SSH identification (RFC 4253, section 4.2), and compares the host key with the
// known host keys. It stores no host key.
func (d *Doctor) server(ctx context.Context) {
	hosts := d.Dialer.hostKeys()
	loadErr := hosts.load()
	var verdict, handshakeErr error
	var remote net.Addr
	d.check("port", func() relay.Finding {
		ctx, cancel := context.WithTimeout(ctx, d.timeout)
		defer cancel()
		raw, err := d.Dialer.open(ctx, d.addr)
		if err != nil {
			return relay.Findingf(relay.VerdictFail, "is relayd serve running there, and does a firewall let you through? pass --server HOST:PORT for another address", "%v", err)
		}
		defer raw.Close()
		_ = raw.SetDeadline(time.Now().Add(d.timeout))
		config := &ssh.ClientConfig{User: defaultUser}
		config.HostKeyCallback = func(addr string, at net.Addr, key ssh.PublicKey) error {
			d.shown, remote = key, at
			if loadErr == nil {
				verdict = hosts.known(addr, at, key)
			}
			return errors.New("seen enough")
		}
		if loadErr == nil {
			config.HostKeyAlgorithms = hosts.algorithms(d.addr)
		}
		conn := &greetingConn{Conn: raw}
		_, _, _, handshakeErr = ssh.NewClientConn(conn, d.addr, config)
		greeting, _, _ := bytes.Cut(conn.start, []byte("\n"))
		switch {
		case len(greeting) == 0:
			return relay.Findingf(relay.VerdictFail, "is that the SSH port of the relay?", "%s accepts connections and says nothing: %v", d.addr, handshakeErr)
		case !bytes.HasPrefix(greeting, []byte("SSH-2.0-")):
			return relay.Findingf(relay.VerdictFail, "is that the SSH port of the relay? its HTTP port is another one", "%s does not speak SSH", d.addr)
		case !bytes.Contains(bytes.ToLower(greeting), []byte("relayd")):
			return relay.Findingf(relay.VerdictWarn, "is that the relay, or the machine's own sshd?", "%s answers as %s", d.addr, bytes.TrimSpace(greeting))
		}
		return relay.Findingf(relay.VerdictOK, "", "%s answers as %s", d.addr, bytes.TrimSpace(greeting))
	})
	d.check("host key", func() relay.Finding {
		switch {
		case loadErr != nil:
			return relay.Findingf(relay.VerdictFail, "make the file readable, or remove it", "%v", loadErr)
		case d.shown == nil:
			return relay.Findingf(relay.VerdictFail, fixHostKey(hosts, d.addr), "the relay shows no key of a known kind: %v", handshakeErr)
		}
		return d.judgeKey(hosts, remote, verdict)
	})
}

func fixHostKey(hosts *hostKeys, addr string) string {
	return "ask the operator of the relay; if it was reinstalled, remove the old line: ssh-keygen -R '" +
		knownhosts.Normalize(addr) + "' -f " + hosts.fileOf(addr)
}

func (d *Doctor) judgeKey(hosts *hostKeys, remote net.Addr, verdict error) relay.Finding {
	shown := ssh.FingerprintSHA256(d.shown)
	tcp, isTCP := remote.(*net.TCPAddr)
	switch unknown, isUnknown := errors.AsType[*knownhosts.KeyError](verdict); {
	case hosts.pin != "" && strings.TrimRight(hosts.pin, "=") == shown:
		return relay.Findingf(relay.VerdictOK, "", "%s is the pinned one", shown)
	case hosts.pin != "":
		return relay.Findingf(relay.VerdictFail, "ask the operator of the relay for its fingerprint", "%s is not the pinned %s", shown, hosts.pin)
	case verdict == nil:
		return relay.Findingf(relay.VerdictOK, "", "%s is known", shown)
	case !isUnknown:
		return relay.Findingf(relay.VerdictFail, fixHostKey(hosts, d.addr), "%s: %v", shown, verdict)
	case len(unknown.Want) > 0:
		return relay.Findingf(relay.VerdictFail, fixHostKey(hosts, d.addr), "%s is not the known host key: another server may be intercepting the connection", shown)
	case isTCP && tcp.IP.IsLoopback():
		return relay.Findingf(relay.VerdictOK, "", "%s is new, and accepted at the first login: it is this machine", shown)
	}
	return relay.Findingf(relay.VerdictFail, "relay login URL pins it, or pass --host-key with the fingerprint that the operator of the relay tells you",
		"%s is not known", shown)
}

const loginFix = "relay login URL"

// login asks the relay for the account, over the connection that commands use. Over SSH, it accepts only the
// host key that the relay has shown to server. It stores nothing.
func (d *Doctor) login(ctx context.Context) relay.Finding {
	if d.APIErr != nil {
		return relay.Findingf(relay.VerdictFail, cli.HintOf(d.APIErr, loginFix), "%v", d.APIErr)
	}
	way := "with a token at " + d.API.Endpoint.Addr
	if d.API.OverSSH() {
		way = "with an SSH key"
		d.Dialer.HostKey = ssh.FingerprintSHA256(d.shown) // d.API uses this dialer, too
	}
	ctx, cancel := context.WithTimeout(ctx, 2*d.timeout)
	defer cancel()
	me, err := d.API.Me(ctx)
	switch {
	case err != nil:
		return relay.Findingf(relay.VerdictFail, cli.HintOf(err, loginFix), "%v", err)
	case me.User == "":
		return relay.Findingf(relay.VerdictFail, "set RELAY_URL to the address of the dashboard", "%s gave an answer that is not a relay's", d.API.Endpoint.Addr)
	}
	return relay.Findingf(relay.VerdictOK, "", "you are %s, %s", me.User, way)
}

// aliases checks each alias that is configured on this machine.
func (d *Doctor) aliases(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, 2*d.timeout)
	defer cancel()
	var list record.List[record.Alias]
	var err error
	if !d.broken {
		err = d.API.Get(limited, "/aliases", &list)
	}
	switch {
	case err != nil:
		d.check("alias", func() relay.Finding { return relay.Findingf(relay.VerdictFail, cli.HintOf(err, loginFix), "%v", err) })
	case d.broken || len(d.Forwards) == 0:
		d.check("alias", func() relay.Finding {
			return relay.Findingf(relay.VerdictSkip, "", "none is named here; the account has %d", len(list.Data))
		})
	default:
		for _, f := range d.Forwards {
			d.note("alias "+f.Alias, aliasFinding(f.Alias, list.Data))
		}
	}
}

func aliasFinding(name string, list []record.Alias) relay.Finding {
	at := slices.IndexFunc(list, func(a record.Alias) bool { return a.Name == cli.AliasLabel(name) })
	if at < 0 {
		return relay.Findingf(relay.VerdictWarn, "relay up "+name+" claims it when the name is free; else have its owner make you a member",
			"the account has no such alias")
	}
	switch a := list[at]; {
	case a.Online && a.Tunnel != nil:
		return relay.Findingf(relay.VerdictOK, "", "online since %s by %s, %s", a.Since, a.Tunnel.User, a.URL)
	case a.Online:
		return relay.Findingf(relay.VerdictOK, "", "online, %s", a.URL)
	case a.QueuedEvents > 0:
		return relay.Findingf(relay.VerdictWarn, "relay up "+name+", then relay replay-queued "+name, "%s with %d events queued, %s", a.State, a.QueuedEvents, a.URL)
	default:
		return relay.Findingf(relay.VerdictWarn, "relay up "+name, "%s, %s", a.State, a.URL)
	}
}

// locals dials each local server once.
func (d *Doctor) locals(ctx context.Context) {
	if len(d.Forwards) == 0 {
		d.note("local server", relay.Findingf(relay.VerdictSkip, "", "none is named here: there is no %s, and no --port", ConfigName))
	}
	for _, f := range d.Forwards {
		limited, cancel := context.WithTimeout(ctx, d.timeout)
		conn, err := f.Target.Dial(limited)
		cancel()
		found := relay.Findingf(relay.VerdictOK, "", "%s accepts connections", f.Target.URL)
		if err != nil {
			found = relay.Findingf(relay.VerdictFail, "start it, or name the right port; until then requests are stored and answered 502", "%s: %v", f.Target.URL, err)
		} else {
			conn.Close()
		}
		d.note("local server of "+f.Alias, found)
	}
}

// clock compares the clock of this machine with the Date header of the relay.
func (d *Doctor) clock(ctx context.Context, host string) relay.Finding {
	const where = "set RELAY_URL to the address of the dashboard"
	api := d.API
	if d.broken || d.APIErr != nil {
		var err error
		if api, err = NewAPI(cmp.Or(d.BaseURL, BaseURL(host)), "", d.Dialer.Version); err != nil {
			return relay.Findingf(relay.VerdictFail, where, "%v", err)
		}
		defer api.Close()
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	from, asked := api.Endpoint.Addr, time.Now()
	resp, err := api.Request(ctx, http.MethodGet, "/ssh", nil, "")
	if err != nil {
		return relay.Findingf(relay.VerdictSkip, where, "cannot ask %s: %v", from, err)
	}
	defer resp.Body.Close()
	theirs, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return relay.Findingf(relay.VerdictSkip, "", "%s does not report its time", from)
	}
	const fix = "set this machine's clock (NTP), or the relay's: receivers refuse signatures by their time"
	switch skew := clockSkew(theirs, asked, time.Now()); {
	case skew >= skewFail:
		return relay.Findingf(relay.VerdictFail, fix, "%s apart from %s", skew.Round(time.Second), from)
	case skew >= skewWarn:
		return relay.Findingf(relay.VerdictWarn, fix, "%s apart from %s", skew.Round(time.Second), from)
	}
	return relay.Findingf(relay.VerdictOK, "", "less than %s apart from %s", skewWarn, from)
}

// clockSkew returns the smallest clock difference that explains theirs, the time in a Date header. The header has
// whole seconds, and was written between the times asked and answered.
func clockSkew(theirs, asked, answered time.Time) time.Duration {
	switch {
	case theirs.After(answered):
		return theirs.Sub(answered)
	case theirs.Add(time.Second).Before(asked):
		return asked.Sub(theirs.Add(time.Second))
	}
	return 0
}
