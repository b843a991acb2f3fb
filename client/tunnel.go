package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"relay"
	"relay/cli"
	"relay/link"
	"relay/record"
)

const (
	forwardPort     = 80
	replyTimeout    = 10 * time.Second // time until the first sign that the peer is a relay
	shutDownTimeout = 2 * time.Second  // time for requests in progress at a clean disconnect
	forwardRetry    = 3 * time.Second  // pause before an alias is requested again after a transient refusal
	askAgain        = time.Second      // pause between failing requests to the API
)

// tunnel is one connection of Up: its forwards, their notices, and the log of their requests.
type tunnel struct {
	up   *Up
	conn *Conn
	api  *cli.API
	wg   sync.WaitGroup
	open atomic.Int64 // number of open channels
	busy atomic.Int64 // number of channels with a request on them

	messages      chan *Message         // a nil message means that there are no more notices
	ended         error                 // why there are no more notices; valid after a nil message
	attached      chan struct{}         // closed when the first alias is online
	logged        chan struct{}         // closed when the request log has begun, or its first try has failed
	announced     chan struct{}         // closed when the first online message was posted; messages of requests come after it
	online        map[string]bool       // by label; only the goroutine of run uses online and early
	early         map[string][]*Message // requests that came before the notice that their alias is online; by label of the alias
	noRetryBefore time.Time             // a stopping relay asked for a pause until this time; zero = none did
	readyCalled   bool                  // Ready was called
}

// errMoving ends the use of a connection whose node has asked the client to connect to another node. See
// run.
var errMoving = errors.New("the relay asks to connect to another node")

// forwardRequest is the payload of tcpip-forward and its cancel (RFC 4254, section 7.1).
type forwardRequest struct {
	Bind string
	Port uint32
}

// channelOpen is the payload of a forwarded-tcpip channel (RFC 4254, section 7.2).
type channelOpen struct {
	Bind       string
	Port       uint32
	Origin     string
	OriginPort uint32
}

// run keeps the tunnel up until it is lost or ctx ends. It waits for the goroutines that it started.
// After errMoving the connection stays open until the relay ends it.
func (t *tunnel) run(ctx context.Context) error {
	alive, cancel := context.WithCancel(context.Background())
	lost := t.conn.Context()
	t.wg.Go(func() { t.conn.keepalive(alive) })
	serve := func(o *link.Offer) { t.serveOffer(alive, o) }
	t.conn.offers.Store(&serve)
	t.wg.Go(func() {
		select {
		case <-ctx.Done():
			t.shutDown()
		case <-alive.Done():
		}
	})
	end := func() {
		cancel()
		t.conn.CloseSent(link.Unneeded)
		t.api.Close()
		t.wg.Wait()
		<-t.conn.Done()
	}
	err := t.announce(lost)
	if err == nil {
		logging, stop := context.WithCancel(lost)
		logEnded := make(chan struct{})
		t.up.tunnel.Store(t)
		t.wg.Go(func() { t.hear(alive, lost) })
		t.wg.Go(func() {
			defer close(logEnded)
			t.followLog(logging)
		})
		err = t.handleMessages(alive)
		t.up.tunnel.Store(nil)
		stop()
		if errors.Is(err, errMoving) {
			<-logEnded // so that these messages are shown before those of the next connection, which continues the log
			for len(t.messages) > 0 {
				if m := <-t.messages; m != nil && (m.Type == TypeRequest || m.Type == TypeMissed) {
					_ = t.handle(alive, m)
				}
			}
			t.up.leaving.Go(func() {
				<-lost.Done()
				end()
			})
			return err
		}
	}
	end()
	if silent := t.conn.silence(); silent != nil && retryable(err) {
		return silent
	}
	return err
}

// announce sends the version of this program and the targets, and requests the forwards. It does not wait for
// replies, because a notice reports the result of each forward.
func (t *tunnel) announce(ctx context.Context) error {
	hello := relay.Hello{Protocol: 1, Flags: relay.HelloLazyDial | relay.HelloMoves, Version: t.up.Dialer.Version}
	err := t.tell(ctx, relay.HelloRequest, hello)
	for _, f := range *t.up.active.Load() {
		if err == nil {
			err = t.forward(ctx, f)
		}
	}
	if err != nil {
		return cli.LostConnection(err)
	}
	return nil
}

// tell sends a global request without a reply.
func (t *tunnel) tell(ctx context.Context, kind string, payload any) error {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	_, _, err := t.conn.SendRequest(ctx, kind, false, link.Marshal(payload))
	return err
}

// forward sends the target of an alias and requests the alias. The relay answers with a notice, because an
// SSH reply cannot carry a reason.
func (t *tunnel) forward(ctx context.Context, f Forward) error {
	target := relay.Target{Bind: f.Alias, URL: f.Target.URL, HostHeader: f.Target.HostHeader}
	if err := t.tell(ctx, relay.TargetRequest, target); err != nil {
		return err
	}
	return t.tell(ctx, "tcpip-forward", forwardRequest{f.Alias, forwardPort})
}

// forwardLater waits and requests an alias again that was refused for a transient reason.
func (t *tunnel) forwardLater(ctx context.Context, alias string) {
	t.wg.Go(func() {
		if !cli.Wait(ctx, forwardRetry) {
			return
		}
		for _, f := range *t.up.active.Load() { // the alias may have been removed during the wait
			if SameAlias(f.Alias, alias) {
				_ = t.forward(ctx, f)
			}
		}
	})
}

// hear turns the identification of the relay and its notices into messages. The context lost ends together with
// the connection. The last notices may arrive just before the connection ends, so hear posts messages until ctx
// ends.
func (t *tunnel) hear(ctx, lost context.Context) {
	defer t.post(ctx, nil)
	var told record.SSH
	limited, cancel := context.WithTimeout(lost, replyTimeout)
	defer cancel()
	switch err := t.ask(limited, "/ssh", &told); {
	case err == nil:
		m := &Message{Type: TypeHello, BaseURL: told.BaseURL}
		if u, err := url.Parse(told.BaseURL); err == nil {
			m.Host = u.Hostname()
		}
		t.post(ctx, m)
		t.ended = cli.LostConnection(io.EOF)
	case lost.Err() != nil:
		t.ended = cli.LostConnection(errors.New("it closed the connection without a reason"))
	case limited.Err() == nil:
		t.ended = err
		return
	case t.conn.isRelay():
		t.ended = cli.LostConnection(fmt.Errorf("it has not answered for %d s", int(replyTimeout.Seconds())))
		return
	default:
		t.ended = notARelay(t.conn.Addr)
		return
	}
	attached := sync.OnceFunc(func() { close(t.attached) })
	announced := sync.OnceFunc(func() { close(t.announced) })
	for n := range t.conn.notices {
		t.ended = cli.LostConnection(io.EOF)
		m := &Message{Type: n.Kind, Alias: n.Alias, Code: n.Code, Message: n.Message, RetryAfterMs: n.RetryAfterMs}
		if n.Kind == relay.NoticeOnline {
			var a record.Alias
			if t.ask(lost, "/aliases/"+url.PathEscape(n.Alias), &a) != nil {
				continue // the alias is offline again
			}
			m.URL, m.QueuedEvents, m.Paused = a.URL, &a.QueuedEvents, a.Settings.Paused
			attached()
			select {
			case <-t.logged: // the log has begun, so it has all requests after this message
			case <-lost.Done():
			}
		}
		if !t.post(ctx, m) {
			return
		}
		if n.Kind == relay.NoticeOnline {
			announced()
		}
	}
}

// ask sends a GET request to the API, and repeats it while the relay cannot answer.
func (t *tunnel) ask(ctx context.Context, path string, into any) error {
	for {
		err := t.api.Get(ctx, path, into)
		e, ok := errors.AsType[*cli.Error](err)
		if err == nil || ok && !e.Transient && e.Exit != cli.ExitUnreachable || !cli.Wait(ctx, askAgain) {
			return err
		}
	}
}

func (t *tunnel) post(ctx context.Context, m *Message) bool {
	select {
	case t.messages <- m:
		return true
	case <-ctx.Done():
		return false
	}
}

// followLog posts a message for each request that ends, until ctx ends.
func (t *tunnel) followLog(ctx context.Context) {
	select {
	case <-t.attached: // before that, the relay may refuse the stream, because it does not know a new alias yet
	case <-ctx.Done():
		return
	}
	begin := sync.OnceFunc(func() { close(t.logged) })
	query := url.Values{} // with several aliases, the stream has the requests of all aliases of the account
	if list := *t.up.active.Load(); len(list) == 1 {
		query.Set("alias", cli.AliasLabel(list[0].Alias))
	}
	var tries cli.Backoff
	for {
		resumed := false
		err := t.api.Stream(ctx, "?"+query.Encode(), t.up.lastItem, func() error {
			if begin(); t.up.followed.IsZero() {
				t.up.followed = t.api.Now()
			}
			tries.Reset()
			return nil
		}, func(id, name string, data []byte) error {
			select {
			case <-t.announced:
			case <-ctx.Done():
			}
			switch {
			case name == "resync" && resumed:
				t.post(ctx, &Message{Type: TypeMissed})
			case name == "resync": // the relay cannot continue after the last item before the loss
				t.readMissed(ctx, query)
			}
			t.logItem(ctx, name, data)
			t.up.lastItem, t.up.heard, resumed = id, t.api.Now(), resumed || name != ""
			return ctx.Err()
		})
		begin()
		if errors.Is(err, cli.ErrLongLine) {
			t.up.lastItem = ""
		}
		if !cli.Wait(ctx, max(askAgain, tries.Next(0))) {
			return
		}
	}
}

// handleMessages handles the messages of the relay until the connection ends, and returns the reason.
func (t *tunnel) handleMessages(ctx context.Context) error {
	for {
		m := <-t.messages
		if m == nil {
			return t.ended
		}
		if err := t.handle(ctx, m); err != nil {
			return err
		}
	}
}

// handle handles one message; an error ends the tunnel.
func (t *tunnel) handle(ctx context.Context, m *Message) error {
	var gone *cli.Error // why an alias is removed for good
	asked := min(time.Duration(m.RetryAfterMs)*time.Millisecond, time.Minute)
	switch m.Type {
	case relay.NoticeOnline:
		t.online[m.Alias] = true
		t.up.lossSpread = asked
		t.up.reached = true
	case TypeRequest:
		if !t.online[m.Event.Alias] { // another connection of the account serves the alias, or the notice comes later
			t.keepEarly(m)
			return nil
		}
	case relay.NoticeSuperseded:
		gone = cli.Errorf(cli.ExitTaken, "%s", m.Superseded())
		if m.Message == relay.TakenOver {
			gone.Hint = "another relay up or ssh forwards it now; run this one again to take it back"
		}
	case relay.NoticeRefused:
		if m.Transient() {
			t.forwardLater(ctx, m.Alias)
			break
		}
		gone = cli.Errorf(cli.ExitTaken, "alias %s was refused: %s", m.Alias, m.Message)
		switch m.Code {
		case relay.CodeValidationFailed:
			gone.Exit = cli.ExitUsage
		case relay.CodeConflict: // the account has reached its limit of aliases
			gone.Exit = cli.ExitFailure
		}
	case relay.NoticeStopping, relay.NoticeMoving:
		t.noRetryBefore = time.Now().Add(asked)
	case relay.NoticeRevoked:
		if m.Alias == "" { // the login itself was revoked
			return cli.Errorf(cli.ExitRefused, "the relay has ended this connection: %s", m.Message)
		}
		gone = cli.Errorf(cli.ExitTaken, "%s", m.Message)
	}
	t.up.Show(m)
	if m.Type == relay.NoticeMoving {
		return errMoving
	}
	if gone != nil && t.up.remove(m.Alias) == 0 {
		return gone
	}
	waits := func(f Forward) bool { return !t.online[cli.AliasLabel(f.Alias)] }
	if !t.readyCalled && m.Type != TypeHello && !slices.ContainsFunc(*t.up.active.Load(), waits) {
		again := t.up.readyCalled
		t.readyCalled, t.up.readyCalled = true, true
		// From now on, the user is asked nothing: the host key is accepted, the keys are open, and what is typed
		// at the terminal is a command.
		t.up.Dialer.Prompter = nil
		t.up.Ready(again)
	}
	if gone != nil || m.Type == relay.NoticeOnline {
		t.showEarly(m)
	}
	return nil
}

// maxEarly bounds the number of requests of one alias that are kept until the notice that the alias is online.
const maxEarly = 64

// keepEarly stores a request for showEarly, if it is for a forward of this connection and fewer than maxEarly
// requests of the alias are stored.
func (t *tunnel) keepEarly(m *Message) {
	label := m.Event.Alias
	if len(t.early[label]) >= maxEarly || !slices.ContainsFunc(*t.up.active.Load(), isFor(label)) {
		return
	}
	if t.early == nil {
		t.early = map[string][]*Message{}
	}
	t.early[label] = append(t.early[label], m)
}

// isFor returns a function that reports whether a forward is for the alias with this label.
func isFor(label string) func(Forward) bool {
	return func(f Forward) bool { return cli.AliasLabel(f.Alias) == label }
}

// showEarly shows the requests that came before the notice that their alias is online. If the notice says
// that the alias has ended for good, these requests are dropped.
func (t *tunnel) showEarly(notice *Message) {
	label := cli.AliasLabel(notice.Alias)
	early := t.early[label]
	delete(t.early, label)
	if notice.Type != relay.NoticeOnline {
		return
	}
	for _, m := range early {
		t.up.Show(m)
	}
}

// serveOffer serves a channel that the relay opens, in a goroutine of the connection.
func (t *tunnel) serveOffer(ctx context.Context, offer *link.Offer) {
	var open channelOpen
	forwards := *t.up.active.Load()
	forwarded := func(f Forward) bool { return f.Alias == open.Bind }
	switch {
	case offer.Type() != "forwarded-tcpip":
		_ = offer.Reject(link.UnknownType, "this is a client of forwards")
	case link.Unmarshal(offer.Payload(), &open) != nil:
		_ = offer.Reject(link.ConnectFailed, "malformed forwarded-tcpip")
	case !slices.ContainsFunc(forwards, forwarded):
		_ = offer.Reject(link.Prohibited, "nothing is forwarded for "+open.Bind)
	case t.open.Add(1) > maxChannels:
		t.open.Add(-1)
		_ = offer.Reject(link.ResourceShortage, fmt.Sprintf("more than %d connections at a time", maxChannels))
	default:
		f := forwards[slices.IndexFunc(forwards, forwarded)]
		if !t.conn.Go("forwarded channel", func() {
			defer t.open.Add(-1)
			t.serveChannel(ctx, offer, f)
		}) {
			t.open.Add(-1)
		}
	}
}

// shutDown cancels the forwards, waits up to shutDownTimeout for requests in progress,
// and closes the connection.
func (t *tunnel) shutDown() {
	late, cancel := context.WithTimeout(context.Background(), shutDownTimeout)
	defer cancel()
	for _, f := range *t.up.active.Load() {
		_ = t.tell(late, "cancel-tcpip-forward", forwardRequest{f.Alias, forwardPort})
	}
	for t.busy.Load() > 0 {
		if !cli.Wait(late, 10*time.Millisecond) {
			break
		}
	}
	t.conn.CloseSent(link.Unneeded)
}
