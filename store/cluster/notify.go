package cluster

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lib/pq"

	"relay"
	"relay/store/db"
)

// Bounds of the messages between nodes by NOTIFY.
const (
	noticePause   = 20 * time.Millisecond // time between two notices of a node
	noticeChanges = 150                   // largest number of changes in one notice, because Postgres accepts no notice of 8,000 bytes or more
	noticeProbe   = 5 * time.Second       // time between two checks whether notices arrive
	pollMissed    = 400 * time.Millisecond
)

// notices tell the other nodes which events, attempts and queues have changed, and receive such notices. NOTIFY
// runs outside of the transactions, because transactions with NOTIFY have to wait for each other's commits. If a
// node receives no notices, for example behind a pooler that shares sessions, its viewers get a resync at
// intervals instead.
type notices struct {
	mu      sync.Mutex
	words   []string // words of the next notice, one for each change
	all     bool     // more has changed than a notice can hold
	revised bool     // revisions were written since the last notice
	wake    chan struct{}

	echo      chan struct{} // gets a signal when a notice of this node came back
	poll      chan struct{} // gets a signal when another node has written revisions
	listening atomic.Bool
}

const (
	allChanged = "*" // word of a notice: more has changed than the notice says, so viewers have to read again
	revised    = "r" // first word of a notice: revisions were written, or connections of accounts have changed
)

func (n *notices) init() {
	n.wake, n.echo, n.poll = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
}

// tell queues changes for the other nodes. Changes of aliases, accounts and tunnels are not sent:
// nodes read them from revisions, which tellRevised announces.
func (n *notices) tell(changes []relay.Change) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range changes {
		word := ""
		switch c.Kind {
		case relay.ChangeEvent, relay.ChangeAttempt:
			word = fmt.Sprintf("%c%d/%s/%d", c.Kind[0], c.Alias, c.Event, c.N)
		case relay.ChangeQueue:
			word = fmt.Sprintf("%c%d", c.Kind[0], c.Alias)
		case relay.ChangeMissed:
			n.all = true
		}
		if n.all {
			break
		}
		if word != "" && !slices.Contains(n.words, word) {
			n.words = append(n.words, word)
			n.all = len(n.words) > noticeChanges
		}
	}
	if n.all || len(n.words) > 0 {
		db.Signal(n.wake)
	}
}

// tellRevised makes the other nodes read revisions at once, instead of with their next poll.
func (n *notices) tellRevised() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.revised = true
	db.Signal(n.wake)
}

// take returns the text of the next notice; "" = none.
func (n *notices) take() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	words := n.words
	if n.all {
		words = []string{allChanged}
	}
	if n.revised {
		words = slices.Insert(words, 0, revised)
	}
	n.words, n.all, n.revised = nil, false, false
	return strings.Join(words, " ")
}

func parseChange(word string) (c relay.Change, ok bool) {
	for _, kind := range []relay.ChangeKind{relay.ChangeEvent, relay.ChangeAttempt, relay.ChangeQueue} {
		if word[0] == kind[0] {
			c.Kind = kind
		}
	}
	alias, rest, _ := strings.Cut(word[1:], "/")
	var err error
	if c.Alias, err = strconv.ParseInt(alias, 10, 64); err != nil || c.Kind == "" {
		return c, false
	}
	if c.Kind == relay.ChangeQueue {
		return c, rest == ""
	}
	id, number, _ := strings.Cut(rest, "/")
	if c.Event, err = relay.ParseID(id); err != nil {
		return c, false
	}
	c.N, err = strconv.Atoi(number)
	return c, err == nil
}

// tellNodes notifies the other nodes of changes that were committed here.
func (s *Store) tellNodes(changes []relay.Change) {
	if s.HasOtherNodes() {
		s.notices.tell(changes)
	}
}

// noticeLoop sends at most one notice in noticePause.
func (s *Store) noticeLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.notices.wake:
		}
		if text := s.notices.take(); text != "" && s.sendNotice(ctx, text) != nil {
			s.notices.tell([]relay.Change{{Kind: relay.ChangeMissed}}) // the next notice makes the viewers of all nodes read again
		}
		if db.Pause(ctx, noticePause) != nil {
			return
		}
	}
}

// sendNotice sends a notice on the channel of the schema. It begins with the id of this node.
func (s *Store) sendNotice(ctx context.Context, text string) error {
	if err := s.db.Away(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, db.OpTimeout)
	defer cancel()
	_, err := s.db.Write.ExecContext(ctx, `SELECT pg_notify($1, $2)`, s.noticeChannel, s.NodeID()+" "+text)
	return err
}

// listenLoop receives the notices of all nodes. Every noticeProbe it sends a notice to this node alone, in
// order to detect a connection that died silently.
func (s *Store) listenLoop(ctx context.Context, address string) {
	l := pq.NewDialListener(listenDialer{ctx}, address, 100*time.Millisecond, 5*time.Second, func(event pq.ListenerEventType, err error) {
		if event == pq.ListenerEventDisconnected {
			s.notices.listening.Store(false)
		}
	})
	defer func() {
		_ = l.Close()
		go func() { // reading goes on until the listener has ended, because the listener waits until its notices are read
			for range l.Notify {
			}
		}()
	}()
	// Listen waits for the connection. If its statement fails, no notices are received, which the
	// probe detects.
	go func() {
		if l.Listen(s.noticeChannel) == nil {
			_ = s.sendNotice(ctx, "")
		}
	}()
	probe := time.NewTicker(noticeProbe)
	defer probe.Stop()
	poll := time.NewTicker(pollMissed)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-l.Notify:
			s.hearNotice(ctx, n)
		case <-probe.C:
			if s.notices.listening.Load() && !s.HasOtherNodes() {
				continue
			}
			select {
			case <-s.notices.echo:
			default:
				s.notices.listening.Store(false)
			}
			_ = s.sendNotice(ctx, "") // if this notice does not come back, the next probe detects that
		case <-poll.C:
			if !s.notices.listening.Load() && s.HasOtherNodes() {
				s.outbox.put([]relay.Change{{Kind: relay.ChangeMissed}})
			}
		}
	}
}

// listenDialer opens connections that end with ctx. Otherwise a listener could not be closed while it
// connects, or while it waits for an answer, for example of a frozen host.
type listenDialer struct{ ctx context.Context }

// Dial implements pq.Dialer.
func (d listenDialer) Dial(network, address string) (net.Conn, error) {
	return d.DialTimeout(network, address, 0)
}

// DialTimeout implements pq.Dialer.
func (d listenDialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: timeout}).DialContext(d.ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &listenConn{c, context.AfterFunc(d.ctx, func() { _ = c.Close() })}, nil
}

type listenConn struct {
	net.Conn
	stop func() bool
}

// Close is called by the driver.
func (c *listenConn) Close() error {
	c.stop()
	return c.Conn.Close()
}

// hearNotice publishes the changes in another node's notice. If n is nil, the connection was reopened, and
// notices were missed.
func (s *Store) hearNotice(ctx context.Context, n *pq.Notification) {
	if n == nil {
		_ = s.sendNotice(ctx, "")
		db.Signal(s.notices.poll)
		s.outbox.put([]relay.Change{{Kind: relay.ChangeMissed}})
		return
	}
	sender, text, _ := strings.Cut(n.Extra, " ")
	if sender == s.NodeID() {
		s.notices.listening.Store(true)
		db.Signal(s.notices.echo)
		return
	}
	text, found := strings.CutPrefix(text, revised)
	if found {
		db.Signal(s.notices.poll)
		db.Signal(s.membership.early)
	}
	var changes []relay.Change
	for word := range strings.FieldsSeq(text) {
		c, ok := parseChange(word)
		if !ok { // a word of a later version: viewers read again
			changes = []relay.Change{{Kind: relay.ChangeMissed}}
			break
		}
		changes = append(changes, c)
	}
	s.outbox.put(changes)
}

// StartNotices starts the goroutines of notices, which end with ctx.
func (s *Store) StartNotices(ctx context.Context) error {
	if !s.db.Dialect.SeveralNodes() {
		return nil
	}
	var schema string
	if err := s.db.Write.GetContext(ctx, &schema, `SELECT current_schema()`); err != nil {
		return s.db.Fault("start notices", err)
	}
	s.noticeChannel = "relay_" + schema
	if len(s.noticeChannel) > 63 { // an identifier has at most 63 bytes
		s.noticeChannel = fmt.Sprintf("relay_%x", schema)[:63]
	}
	address, err := s.db.ListenAddress()
	if err != nil {
		return err
	}
	s.opt.Go(func() { s.noticeLoop(ctx) })
	s.opt.Go(func() { s.listenLoop(ctx, address) })
	return nil
}
