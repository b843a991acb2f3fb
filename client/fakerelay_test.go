package client

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/ssh"

	"relay"
)

// fakeRelay imitates a relay for a client.
type fakeRelay struct {
	t      testing.TB
	config *ssh.ServerConfig
	conns  chan *fakeConn
	// refuse maps an alias to the code and the message with which it is refused.
	refuse map[string][2]string
	// notices, if set, is called after the first forward of a connection, and sends the notices in place of the
	// fake relay.
	notices func(c *fakeConn)
	// api serves the API on the subsystem. Without a handler for the stream, the stream is empty.
	api   *http.ServeMux
	noAPI bool // whether the subsystem is refused

	auths atomic.Int64 // offered credentials, including the method "none"
	wg    sync.WaitGroup
	mu    sync.Mutex
	open  []io.Closer
}

// fakeConn is one connection to a fakeRelay.
type fakeConn struct {
	*ssh.ServerConn
	mu       sync.Mutex // guards hello, targets and forwards
	hello    relay.Hello
	targets  map[string]relay.Target
	forwards []string
	canceled chan string
}

func newFakeRelay(t testing.TB, keys ...ssh.Signer) *fakeRelay {
	d := &fakeRelay{t: t, conns: make(chan *fakeConn, 16), refuse: map[string][2]string{}, api: http.NewServeMux()}
	d.api.HandleFunc("GET /api/v1/ssh", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"addr":"relay.test:2222","baseUrl":"https://relay.test","hostKeys":[]}`)
	})
	d.api.HandleFunc("GET /api/v1/aliases/{alias}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("alias")
		_, _ = fmt.Fprintf(w, `{"name":%q,"url":"https://%s.relay.test","queuedEvents":3,"settings":{"paused":true}}`, name, name)
	})
	d.api.HandleFunc("POST /api/v1/aliases/{alias}/replay-queued", func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, `{"alias":%q,"released":3}`, r.PathValue("alias"))
	})
	d.config = &ssh.ServerConfig{
		PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) { return nil, nil },
		AuthLogCallback:   func(ssh.ConnMetadata, string, error) { d.auths.Add(1) },
		ServerVersion:     "SSH-2.0-relayd_test",
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
		c := &fakeConn{ServerConn: conn, targets: map[string]relay.Target{}, canceled: make(chan string, 16)}
		d.wg.Go(func() { d.requests(c, requests) })
		for offer := range channels {
			d.session(offer)
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
		c.forwards = append(c.forwards, f.Bind)
		switch why, no := d.refuse[f.Bind]; {
		case d.notices != nil:
			if len(c.forwards) == 1 {
				d.wg.Go(func() { d.notices(c) })
			}
		case no:
			c.notify(relay.Notice{Kind: relay.NoticeRefused, Alias: f.Bind, Code: why[0], Message: why[1]})
		default:
			c.notify(relay.Notice{Kind: relay.NoticeOnline, Alias: f.Bind})
		}
		if len(c.forwards) == 1 {
			d.conns <- c
		}
		return true
	case "cancel-tcpip-forward":
		_ = ssh.Unmarshal(r.Payload, &f)
		c.canceled <- f.Bind
	}
	return false
}

// notify sends notices to the client.
func (c *fakeConn) notify(notices ...relay.Notice) {
	for _, n := range notices {
		_, _, _ = c.SendRequest(relay.NoticeRequest, false, ssh.Marshal(n))
	}
}

// onlineNotice is the notice that stripe-dev is online.
var onlineNotice = relay.Notice{Kind: relay.NoticeOnline, Alias: "stripe-dev"}

// granted lists the forwards that were granted so far.
func (c *fakeConn) granted() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.forwards)
}

// session accepts a channel, and serves the API on it when the client requests the subsystem of the API.
func (d *fakeRelay) session(offer ssh.NewChannel) {
	ch, requests, err := offer.Accept()
	if err != nil {
		return
	}
	d.wg.Go(func() {
		for r := range requests {
			var subsystem struct{ Name string }
			ok := !d.noAPI && r.Type == "subsystem" && ssh.Unmarshal(r.Payload, &subsystem) == nil && subsystem.Name == apiSubsystem
			_ = r.Reply(ok, nil)
			if ok {
				d.wg.Go(func() { d.serveAPI(ch) })
			}
		}
	})
}

// serveAPI serves the API on one channel, through a pipe, because net/http needs deadlines.
func (d *fakeRelay) serveAPI(ch ssh.Channel) {
	near, far := net.Pipe()
	var copies sync.WaitGroup
	copies.Go(func() {
		_, _ = io.Copy(far, ch)
		far.Close()
	})
	copies.Go(func() {
		_, _ = io.Copy(ch, far)
		ch.Close()
	})
	served := make(chan struct{})
	srv := &http.Server{Handler: http.HandlerFunc(d.answer), ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed {
			close(served)
		}
	}}
	_ = srv.Serve(&oneConn{near})
	<-served
	copies.Wait()
}

// answer answers with d.api, or with an empty event stream if d.api has no handler for the stream.
func (d *fakeRelay) answer(w http.ResponseWriter, r *http.Request) {
	if _, pattern := d.api.Handler(r); pattern == "" && r.URL.Path == "/api/v1/stream" {
		_, _ = io.WriteString(w, ": connected\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	d.api.ServeHTTP(w, r)
}

// oneConn is a listener that accepts one connection.
type oneConn struct{ conn net.Conn }

func (l *oneConn) Accept() (net.Conn, error) {
	conn := l.conn
	if l.conn = nil; conn == nil {
		return nil, io.EOF
	}
	return conn, nil
}
func (*oneConn) Close() error   { return nil }
func (*oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// channel opens a channel as the relay does for a request.
func (c *fakeConn) channel(bind string) (ssh.Channel, <-chan *ssh.Request, error) {
	return c.OpenChannel("forwarded-tcpip", ssh.Marshal(channelOpen{Bind: bind, Port: 80, Origin: "203.0.113.9", OriginPort: 5000}))
}
