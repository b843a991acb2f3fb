package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"relay/record"
)

// Verdicts of a Finding.
const (
	VerdictOK   = "ok"
	VerdictWarn = "warn" // it works, but not as one would want
	VerdictFail = "fail"
	VerdictSkip = "skip" // could not be looked at, or there is nothing to look at
)

// Finding is the outcome of one check. It holds no secrets; nothing in it is safe
// to print.
type Finding struct {
	Check   string `json:"check"`
	Verdict string `json:"verdict"`
	Reason  string `json:"reason"`
	Fix     string `json:"fix"` // "" = nothing to do
}

const (
	probeLimit = 5 * time.Second // of one question to the network
	// skews: signatures of webhooks are good for minutes, so that a wrong clock
	// makes them fail.
	skewWarn = 5 * time.Second
	skewFail = time.Minute
)

// Doctor checks the path from this machine to a relay and back to the local servers. It
// changes nothing and prompts nobody.
type Doctor struct {
	Dialer *Dialer
	// API is what commands use. The doctor closes it.
	API *API
	// APIErr is why commands cannot use any API, such as a token that would be sent over
	// clear http; nil = they use API. It is the finding of the login check.
	APIErr error
	// BaseURL is where the dashboard is; "" = not known.
	BaseURL  string
	Forwards []Forward // of webhooks.yaml, or as the person asks

	timeoutOverride time.Duration // in place of probeLimit; 0 = that
	list            []Finding
	addr            string
	shown           ssh.PublicKey // the host key that the relay shows
	broken          bool          // the relay cannot be asked
}

// Examine runs every check that needs the network; each check depends on the ones
// before it. A check takes a few seconds at most.
func (d *Doctor) Examine(ctx context.Context) []Finding {
	d.list = nil
	defer func() {
		if d.API != nil {
			d.API.Close()
		}
	}()
	host := d.names(ctx)
	d.port(ctx)
	d.hostKey(ctx)
	d.login(ctx)
	d.aliases(ctx)
	d.locals(ctx)
	d.clock(ctx, host)
	return d.list
}

// timeout returns how long one check may wait for the network.
func (d *Doctor) timeout() time.Duration { return cmp.Or(d.timeoutOverride, probeLimit) }

func (d *Doctor) note(check, verdict, fix, format string, args ...any) {
	reason := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ") // a finding is one line
	d.list = append(d.list, Finding{Check: check, Verdict: verdict, Reason: reason, Fix: fix})
	d.broken = d.broken || verdict == VerdictFail
}

func (d *Doctor) skip(check string) {
	d.list = append(d.list, Finding{Check: check, Verdict: VerdictSkip, Reason: "needs the check above that failed"})
}

// names resolves the name of the server.
func (d *Doctor) names(ctx context.Context) (host string) {
	const check = "name resolution"
	host, err := d.Dialer.Host()
	if err == nil {
		d.addr, err = d.Dialer.Addr()
	}
	if err != nil {
		d.note(check, VerdictFail, "pass --server HOST:PORT or set RELAY_SERVER", "%v", err)
		return ""
	}
	if net.ParseIP(host) != nil {
		d.note(check, VerdictOK, "", "%s is an address", host)
		return host
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout())
	defer cancel()
	found, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		d.note(check, VerdictFail, "is the name right, and is there a network? ask the operator of the relay for its SSH address", "%v", err)
		return host
	}
	d.note(check, VerdictOK, "", "%s is %s", host, strings.Join(found[:min(len(found), 4)], ", "))
	return host
}

// port connects and reads the SSH identification.
func (d *Doctor) port(ctx context.Context) {
	const check = "port"
	if d.broken {
		d.skip(check)
		return
	}
	conn, err := d.dial(ctx)
	if err != nil {
		d.note(check, VerdictFail, "is relayd serve running there, and does a firewall let you through? pass --server HOST:PORT for another address", "%v", err)
		return
	}
	defer conn.Close()
	// The identification of RFC 4253 section 4.2; lines may come before it.
	start := make([]byte, 256)
	n, err := conn.Read(start)
	greeting, _, _ := bytes.Cut(start[:n], []byte("\n"))
	switch {
	case err != nil:
		d.note(check, VerdictFail, "is that the SSH port of the relay?", "%s accepts connections and says nothing: %v", d.addr, err)
	case !bytes.HasPrefix(greeting, []byte("SSH-2.0-")):
		d.note(check, VerdictFail, "is that the SSH port of the relay? its HTTP port is another one", "%s does not speak SSH", d.addr)
	case !bytes.Contains(bytes.ToLower(greeting), []byte("relayd")):
		d.note(check, VerdictWarn, "is that the relay, or the machine's own sshd?", "%s answers as %s", d.addr, bytes.TrimSpace(greeting))
	default:
		d.note(check, VerdictOK, "", "%s answers as %s", d.addr, bytes.TrimSpace(greeting))
	}
}

func (d *Doctor) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout())
	defer cancel()
	conn, err := d.Dialer.open(ctx, d.addr)
	if err == nil {
		_ = conn.SetDeadline(time.Now().Add(d.timeout()))
	}
	return conn, err
}

// login asks the relay for the account, over the connection that commands use. It
// accepts only the host key that was shown before and stores nothing.
func (d *Doctor) login(ctx context.Context) {
	const check = "login"
	if d.APIErr != nil {
		d.note(check, VerdictFail, fixOf(d.APIErr), "%v", d.APIErr)
		return
	}
	if d.broken && d.API.overSSH() {
		d.skip(check)
		return
	}
	if d.API.overSSH() && d.shown != nil {
		pinned, err := d.Dialer.as(d.Dialer.where.user)
		if err != nil {
			d.note(check, VerdictFail, fixOf(err), "%v", err)
			return
		}
		pinned.HostKey = ssh.FingerprintSHA256(d.shown)
		d.API = NewSSHAPI(pinned)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*d.timeout())
	defer cancel()
	me, err := d.API.Me(ctx)
	switch {
	case err != nil:
		d.note(check, VerdictFail, fixOf(err), "%v", err)
		return
	case me.User == "":
		d.note(check, VerdictFail, "set RELAY_URL to the address of the dashboard", "%s gave no answer of a relay", d.API.Endpoint().Addr)
		return
	}
	way := "with an SSH key"
	if !d.API.overSSH() {
		way = "with a token at " + d.API.Endpoint().Addr
	}
	d.note(check, VerdictOK, "", "you are %s, %s", me.User, way)
}

func fixOf(err error) string {
	var e *Error
	if errors.As(err, &e) && e.Hint != "" {
		return e.Hint
	}
	return "relay login URL"
}

// aliases checks each alias that is configured here.
func (d *Doctor) aliases(ctx context.Context) {
	const check = "alias"
	if d.broken {
		d.skip(check)
		return
	}
	limited, cancel := context.WithTimeout(ctx, 2*d.timeout())
	defer cancel()
	var list record.List[record.Alias]
	if err := d.API.Get(limited, "/aliases", &list); err != nil {
		d.note(check, VerdictFail, fixOf(err), "%v", err)
		return
	}
	if len(d.Forwards) == 0 {
		d.note(check, VerdictSkip, "", "none is named here; the account has %d", len(list.Data))
		return
	}
	for _, f := range d.Forwards {
		d.alias(f.Alias, list.Data)
	}
}

func (d *Doctor) alias(name string, list []record.Alias) {
	check := "alias " + name
	for _, a := range list {
		if a.Name != AliasLabel(name) {
			continue
		}
		switch {
		case a.Online && a.Tunnel != nil:
			d.note(check, VerdictOK, "", "online since %s by %s, %s", a.Since, a.Tunnel.User, a.URL)
		case a.Online:
			d.note(check, VerdictOK, "", "online, %s", a.URL)
		case a.QueuedEvents > 0:
			d.note(check, VerdictWarn, "relay up "+name+", then relay replay-queued "+name, "%s with %d events queued, %s", a.State, a.QueuedEvents, a.URL)
		default:
			d.note(check, VerdictWarn, "relay up "+name, "%s, %s", a.State, a.URL)
		}
		return
	}
	d.note(check, VerdictWarn, "relay up "+name+" claims it when the name is free; else have its owner make you a member",
		"the account has no such alias")
}

// locals dials each local server once.
func (d *Doctor) locals(ctx context.Context) {
	const check = "local server"
	if len(d.Forwards) == 0 {
		d.note(check, VerdictSkip, "", "none is named here: there is no %s, and no --port", ConfigName)
		return
	}
	for _, f := range d.Forwards {
		limited, cancel := context.WithTimeout(ctx, d.timeout())
		conn, err := f.Target.Dial(limited)
		cancel()
		if err != nil {
			d.list = append(d.list, Finding{
				Check: check + " of " + f.Alias, Verdict: VerdictFail, Reason: f.Target.URL + ": " + err.Error(),
				Fix: "start it, or name the right port; what comes meanwhile is kept and answered 502",
			})
			continue
		}
		conn.Close()
		d.note(check+" of "+f.Alias, VerdictOK, "", "%s accepts connections", f.Target.URL)
	}
}

// clock compares the clock of this machine with the Date header of the relay.
func (d *Doctor) clock(ctx context.Context, host string) {
	const check = "clock"
	api := d.API
	if d.broken || d.APIErr != nil {
		base := cmp.Or(d.BaseURL, BaseURL(host))
		var err error
		if api, err = NewAPI(base, "", d.Dialer.Version); err != nil {
			d.list = append(d.list, Finding{check, VerdictFail, err.Error(), "set RELAY_URL to the address of the dashboard"})
			return
		}
		defer api.Close()
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout())
	defer cancel()
	from, asked := api.Endpoint().Addr, time.Now()
	resp, err := api.request(ctx, http.MethodGet, "/ssh", nil, "")
	if err != nil {
		d.list = append(d.list, Finding{check, VerdictSkip, "cannot ask " + from + ": " + err.Error(), "set RELAY_URL to the address of the dashboard"})
		return
	}
	defer resp.Body.Close()
	theirs, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		d.list = append(d.list, Finding{check, VerdictSkip, from + " does not say what time it is", ""})
		return
	}
	d.skew(from, clockSkew(theirs, asked, time.Now()))
}

func (d *Doctor) skew(from string, skew time.Duration) {
	const check, fix = "clock", "set this machine's clock (NTP), or the relay's: receivers refuse signatures by their time"
	switch {
	case skew >= skewFail:
		d.note(check, VerdictFail, fix, "%s apart from %s", skew.Round(time.Second), from)
	case skew >= skewWarn:
		d.note(check, VerdictWarn, fix, "%s apart from %s", skew.Round(time.Second), from)
	default:
		d.note(check, VerdictOK, "", "less than %s apart from %s", skewWarn, from)
	}
}

// clockSkew returns the least difference of the clocks that explains the header: it has
// whole seconds, and was written between question and answer.
func clockSkew(theirs, asked, answered time.Time) time.Duration {
	switch {
	case theirs.After(answered):
		return theirs.Sub(answered)
	case theirs.Add(time.Second).Before(asked):
		return asked.Sub(theirs.Add(time.Second))
	}
	return 0
}
