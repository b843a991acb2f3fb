package client

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/ssh"

	"relay"
)

// fakeRelay is a relay as far as the client sees one.
type fakeRelay struct {
	t      testing.TB
	config *ssh.ServerConfig
	conns  chan *fakeConn
	// refuse gives code and message for an alias that is not granted.
	refuse map[string][2]string
	// exec answers a command; nil = there are none.
	exec func(command string) (stdout, stderr string, status int)
	// upSession replaces what a session of up says after hello.
	upSession func(c *fakeConn, say func(string))

	auths atomic.Int64 // offered credentials, the probe "none" included
	wg    sync.WaitGroup
	mu    sync.Mutex
	open  []io.Closer
}

// fakeConn is one connection to it.
type fakeConn struct {
	*ssh.ServerConn
	mu       sync.Mutex // hello, targets, forwards
	hello    relay.Hello
	targets  map[string]relay.Target
	forwards []string
	canceled chan string
	lines    chan string // stdin of the session
}

func newFakeRelay(t testing.TB, keys ...ssh.Signer) *fakeRelay {
	d := &fakeRelay{t: t, conns: make(chan *fakeConn, 16), refuse: map[string][2]string{}}
	d.config = &ssh.ServerConfig{
		PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) { return nil, nil },
		AuthLogCallback:   func(ssh.ConnMetadata, string, error) { d.auths.Add(1) },
	}
	if len(keys) == 0 {
		keys = []ssh.Signer{newSigner(t)}
	}
	for _, k := range keys {
		d.config.AddHostKey(k)
	}
	t.Cleanup(d.close)
	return d
}

// listen serves on a loopback port.
func (d *fakeRelay) listen() (addr string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		d.t.Fatal(err)
	}
	d.open = append(d.open, ln)
	d.wg.Go(func() {
		for {
			raw, err := ln.Accept()
			if err != nil {
				return
			}
			d.serve(raw)
		}
	})
	return ln.Addr().String()
}

func (d *fakeRelay) serve(raw net.Conn) {
	d.mu.Lock()
	d.open = append(d.open, raw)
	d.mu.Unlock()
	d.wg.Go(func() {
		conn, channels, requests, err := ssh.NewServerConn(raw, d.config)
		if err != nil {
			raw.Close()
			return
		}
		c := &fakeConn{ServerConn: conn, targets: map[string]relay.Target{}, canceled: make(chan string, 16), lines: make(chan string, 16)}
		d.wg.Go(func() { d.requests(c, requests) })
		for offer := range channels {
			d.session(c, offer)
		}
	})
}

func (d *fakeRelay) close() {
	d.mu.Lock()
	for _, c := range d.open {
		c.Close()
	}
	d.mu.Unlock()
	d.wg.Wait()
}

func (d *fakeRelay) requests(c *fakeConn, requests <-chan *ssh.Request) {
	for r := range requests {
		ok := d.request(c, r)
		if r.WantReply {
			_ = r.Reply(ok, nil)
		}
	}
}

func (d *fakeRelay) request(c *fakeConn, r *ssh.Request) (ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var f forwardRequest
	switch r.Type {
	case relay.HelloRequest:
		_ = ssh.Unmarshal(r.Payload, &c.hello)
	case relay.TargetRequest:
		var t relay.Target
		_ = ssh.Unmarshal(r.Payload, &t)
		c.targets[t.Bind] = t
	case "tcpip-forward":
		_ = ssh.Unmarshal(r.Payload, &f)
		if _, no := d.refuse[f.Bind]; no {
			return false
		}
		c.forwards = append(c.forwards, f.Bind)
		return true
	case "cancel-tcpip-forward":
		_ = ssh.Unmarshal(r.Payload, &f)
		c.canceled <- f.Bind
	}
	return false
}

// granted lists the forwards that were granted so far.
func (c *fakeConn) granted() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.forwards)
}

func (d *fakeRelay) session(c *fakeConn, offer ssh.NewChannel) {
	ch, requests, err := offer.Accept()
	if err != nil {
		return
	}
	d.wg.Go(func() {
		for r := range requests {
			var command struct{ Line string }
			_ = ssh.Unmarshal(r.Payload, &command)
			_ = r.Reply(r.Type == "exec", nil)
			switch {
			case r.Type != "exec":
			case command.Line == "up --json":
				d.wg.Go(func() { d.up(c, ch) })
			default:
				stdout, stderr, status := d.exec(command.Line)
				_, _ = io.WriteString(ch, stdout)
				_, _ = io.WriteString(ch.Stderr(), stderr)
				_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(status)}))
				ch.Close()
			}
		}
	})
}

// up is the session of relay up.
func (d *fakeRelay) up(c *fakeConn, ch ssh.Channel) {
	say := func(line string) { _, _ = io.WriteString(ch, line+"\n") }
	say(`{"type":"hello","host":"relay.test","baseUrl":"https://relay.test","user":"alice","version":"1"}`)
	if d.upSession != nil {
		d.upSession(c, say)
	} else {
		for _, alias := range c.granted() {
			say(fmt.Sprintf(`{"type":"online","alias":%q,"url":"https://%s.relay.test","queuedEvents":3}`, alias, alias))
		}
		for alias, why := range d.refuse {
			text, _ := json.Marshal(Message{Type: TypeRefused, Alias: alias, Code: why[0], Message: why[1]})
			say(string(text))
		}
	}
	d.conns <- c
	for lines := bufio.NewScanner(ch); lines.Scan(); {
		c.lines <- lines.Text()
	}
}

// channel opens a channel as for one request.
func (c *fakeConn) channel(bind string) (ssh.Channel, <-chan *ssh.Request, error) {
	return c.OpenChannel("forwarded-tcpip", ssh.Marshal(channelOpen{Bind: bind, Port: 80, Origin: "203.0.113.9", OriginPort: 5000}))
}
