package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"relay"
)

// The ways in which a site handles a request or a connection.
const (
	siteAnswers  = "answers"
	siteSlow     = "slow"
	siteRefuses  = "refuses" // refuses connections
	siteHangs    = "hangs"
	siteBreaks   = "breaks"
	siteShortens = "shortens" // ends the connection within its answer
	siteGarbage  = "garbage"
	siteUpgrades = "upgrades"
	siteEarly    = "early" // answers before it has read the body
)

// visits holds what a site saw of one event.
type visits struct {
	times int            // number of heads that the site got
	did   map[string]int // how often the site reacted in each way
}

// site is the local server of a model: it outlives tunnels and relays, and records its requests.
type site struct {
	mu   sync.Mutex
	mode string
	seen map[int]*visits
}

func newSite() *site { return &site{mode: siteAnswers, seen: map[int]*visits{}} }

func (s *site) set(mode string) { s.mu.Lock(); s.mode = mode; s.mu.Unlock() }

func (s *site) now() string { s.mu.Lock(); defer s.mu.Unlock(); return s.mode }

// of returns a copy of the visits of an event.
func (s *site) of(number int) visits {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.seen[number]
	if v == nil {
		return visits{}
	}
	c := visits{times: v.times, did: map[string]int{}}
	for k, n := range v.did {
		c.did[k] = n
	}
	return c
}

// come counts a request, and returns how the site reacts to it.
func (s *site) come(number int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.seen[number]
	if v == nil {
		v = &visits{did: map[string]int{}}
		s.seen[number] = v
	}
	v.times++
	v.did[s.mode]++
	return s.mode
}

// numbers reads the number of the event and the length of the body from a head.
func numbers(head string) (number, length int) {
	_, rest, _ := strings.Cut(head, " /e/")
	text, _, _ := strings.Cut(rest, " ")
	number, _ = strconv.Atoi(text)
	_, rest, _ = strings.Cut(head, "Content-Length: ")
	text, _, _ = strings.Cut(rest, "\r\n")
	length, _ = strconv.Atoi(text)
	return number, length
}

// serve handles one connection.
func (s *site) serve(l *local) {
	for l.until("\r\n\r\n") {
		end := strings.Index(string(l.got), "\r\n\r\n") + 4
		head := string(l.got[:end])
		number, length := numbers(head)
		did := s.come(number)
		if did == siteEarly {
			l.Write(ok)
		}
		if !l.n(end + length) {
			return
		}
		l.got = l.got[end+length:]
		switch did {
		case siteEarly:
			continue
		case siteSlow:
			time.Sleep(time.Second)
		case siteHangs:
			l.ended()
			return
		case siteBreaks:
			return
		case siteShortens:
			l.Write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok")
			return
		case siteGarbage:
			l.Write("what?\r\n\r\n")
			return
		case siteUpgrades:
			if !strings.Contains(head, "Upgrade") {
				break
			}
			l.Write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
			l.ended()
			return
		}
		if !l.Write(ok) {
			return
		}
	}
}

// link is a tunnel of a model, with the behaviour of the SSH server.
type link struct {
	*memTunnel
	site *site
	w    *model
	hold relay.Attachment

	state   sync.Mutex
	cut     bool
	frozen  time.Time // when the client became silent; zero = it is not silent
	refused map[*memChannel]bool
}

// pipe is a channel of a link.
type pipe struct {
	*memChannel
	l *link
}

func newLink(w *model, lazy bool) *link {
	l := &link{site: w.site, w: w, refused: map[*memChannel]bool{}}
	l.memTunnel = &memTunnel{lazy: lazy, serve: l.serve}
	return l
}

// serve passes the connection to the site, or ends it if the site refuses connections. If the tunnel is lazy,
// like one of relay up, it first waits for a byte of the request.
func (l *link) serve(end *local) {
	if l.lazy {
		if b := make([]byte, 1<<10); end.peek(b) != nil {
			return
		}
		if l.site.now() == siteRefuses {
			l.state.Lock()
			l.refused[end.c] = true
			l.state.Unlock()
			return
		}
	}
	l.site.serve(end)
}

// peek waits for the first bytes of the request and adds them to got.
func (l *local) peek(b []byte) error {
	n, err := l.c.up.read(b, 0)
	l.got = append(l.got, b[:n]...)
	return err
}

func (l *link) gone() bool { l.state.Lock(); defer l.state.Unlock(); return l.cut }

func (l *link) Open(ctx context.Context, origin netip.AddrPort) (relay.Conn, error) {
	if l.gone() {
		return nil, relay.ErrNotSent
	}
	l.state.Lock()
	frozen := !l.frozen.IsZero()
	l.state.Unlock()
	switch {
	case frozen:
		<-ctx.Done()
		return nil, relay.ErrNotSent
	case !l.lazy && l.site.now() == siteRefuses:
		return nil, relay.Errorf(relay.CodeLocalRefused, "refused")
	}
	ch, err := l.memTunnel.Open(ctx, origin)
	if err != nil {
		return nil, err
	}
	p := &pipe{ch.(*memChannel), l}
	if l.gone() {
		// The tunnel was cut during the open.
		p.lose()
	}
	return p, nil
}

func (l *link) Heard() time.Duration {
	l.state.Lock()
	defer l.state.Unlock()
	if l.frozen.IsZero() {
		return 0
	}
	return time.Since(l.frozen)
}

func (l *link) Info() relay.TunnelInfo { return relay.TunnelInfo{User: "alice"} }

// Close ends the attachment at once. It ends the connection 10 s later, or when the relay ends.
func (l *link) Close(string) {
	l.hold.Detach(true)
	select {
	case <-time.After(10 * time.Second):
	case <-l.w.ended:
	}
	l.lose()
}

// lose ends the connection without a notice to the relay, as when the network of the client fails.
func (l *link) lose() {
	l.state.Lock()
	l.cut = true
	l.state.Unlock()
	l.mu.Lock()
	list := l.channels
	l.mu.Unlock()
	for _, c := range list {
		(&pipe{c, l}).lose()
	}
}

var errLost = errors.New("the tunnel was lost")

func (p *pipe) lose() {
	p.up.finish(errLost)
	p.down.finish(errLost)
}

func (p *pipe) Write(b []byte) (int, error) {
	if p.l.gone() {
		return 0, errLost
	}
	return p.memChannel.Write(b)
}

func (p *pipe) End(time.Duration) (end relay.ConnEnd) {
	p.l.state.Lock()
	defer p.l.state.Unlock()
	if p.l.refused[p.memChannel] {
		end.Refusal = relay.Errorf(relay.CodeLocalRefused, "refused")
	}
	return end
}

// request returns the raw request of an event. Every third event asks for an upgrade of its connection.
func request(number, size int) string {
	var more string
	if number%3 == 0 {
		more = "Connection: Upgrade\r\nUpgrade: echo\r\n"
	}
	return fmt.Sprintf("POST /e/%d HTTP/1.1\r\nHost: h\r\n%sContent-Length: %d\r\n\r\n%s", number, more, size, strings.Repeat("x", size))
}
