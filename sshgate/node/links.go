package node

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sync/singleflight"

	"relay"
	"relay/link"
	"relay/record"
	"relay/sockets"
)

// nodeLink holds the connections that this node has made to another node: one for control messages, and up to
// maxData for channels.
type nodeLink struct {
	o    *Options
	node relay.Node
	ctx  context.Context
	end  context.CancelFunc

	control atomic.Pointer[link.Conn]  // nil while the node is unreachable
	addr    atomic.Pointer[netip.Addr] // the address that was dialed last or is dialed next
	header  atomic.Bool                // whether new connections begin with a PROXY header
	notes   chan note                  // messages that wait to be sent to the node

	dials singleflight.Group // lets concurrent calls of conn share one dial of a data connection
	mu    sync.Mutex
	data  []*link.Conn
}

// note is a queued message to another node: the type of a global request and its payload.
type note struct {
	kind    string
	payload []byte
}

// run keeps the control connection open: it dials again after each loss.
func (l *nodeLink) run() {
	log, reachable := l.o.Log.With("node", l.node.Name, "addr", l.node.PeerAddr), l.o.Reachable
	defer reachable(l.node.ID, false)
	// The first try may come before the other node knows this node, so only the second failure is reported.
	for failures := 0; l.ctx.Err() == nil; {
		begun := time.Now()
		pc, err := l.dial()
		if err == nil {
			l.control.Store(pc)
			log.Info("node reached")
			reachable(l.node.ID, true)
			failures = 1
			err = l.hold(pc)
			l.control.Store(nil)
			l.mu.Lock()
			for _, pc := range l.data {
				pc.Close(link.Unneeded)
			}
			l.data = nil
			l.mu.Unlock()
		}
		if l.ctx.Err() != nil {
			return
		}
		if failures++; failures == 2 {
			log.Warn("node cannot be reached; requests for its tunnels are queued", "err", record.SafeTextMax(err.Error(), 300))
			reachable(l.node.ID, false)
		}
		select {
		case <-time.After(max(0, redialEvery-time.Since(begun)) + rand.N(redialEvery/10)):
		case <-l.ctx.Done():
		}
	}
}

// hold pings the other node, and sends it the waiting messages, until the connection ends. It returns why the
// connection has ended.
func (l *nodeLink) hold(pc *link.Conn) error {
	pc.Go("notes", func() { // a write blocks if the socket is stuck
		for {
			select {
			case n := <-l.notes:
				_, _, _ = pc.SendRequest(pc.Context(), n.kind, false, n.payload)
			case <-pc.Context().Done():
				return
			}
		}
	})
	pc.Watch(l.ctx, pingEvery, pingEvery, int(silentAfter/pingEvery))
	pc.Close(link.Unneeded)
	return fmt.Errorf("connection ended: %s", pc.Cause())
}

// tell queues a message for the other node. It returns false if the other node cannot be reached.
func (l *nodeLink) tell(kind string, payload any) bool {
	if l.control.Load() == nil {
		return false
	}
	select {
	case l.notes <- note{kind, link.Marshal(payload)}:
		return true
	default:
		return false
	}
}

// conn returns the data connection with the fewest channels, or an error while the node cannot be reached. If
// all data connections are busy, conn opens another one for later calls. If there is none, conn opens the
// first one, and all concurrent calls wait for this connection.
func (l *nodeLink) conn(ctx context.Context) (*link.Conn, error) {
	if l.control.Load() == nil {
		return nil, relay.ErrNotSent
	}
	l.mu.Lock()
	l.data = slices.DeleteFunc(l.data, func(pc *link.Conn) bool { return pc.Context().Err() != nil })
	var best *link.Conn
	n := len(l.data)
	if n > 0 {
		best = slices.MinFunc(l.data, func(a, b *link.Conn) int { return cmp.Compare(a.InUse(), b.InUse()) })
	}
	l.mu.Unlock()
	if best == nil {
		select {
		case dialed := <-l.dials.DoChan("", l.addData):
			if dialed.Err != nil {
				return nil, dialed.Err
			}
			return dialed.Val.(*link.Conn), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if best.InUse() >= busyConn && n < maxData {
		l.dials.DoChan("", l.addData)
	}
	return best, nil
}

// addData opens one more data connection. Only one call runs at a time.
func (l *nodeLink) addData() (any, error) {
	pc, err := l.dial()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.control.Load() == nil || len(l.data) >= maxData {
		pc.Close(link.Unneeded)
		return nil, relay.ErrNotSent
	}
	l.data = append(l.data, pc)
	return pc, nil
}

// dial makes a connection and logs in. It accepts only the host key of the wanted node.
func (l *nodeLink) dial() (*link.Conn, error) {
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(l.node.PeerKey))
	if err != nil {
		return nil, fmt.Errorf("key of the node: %w", err)
	}
	ctx, cancel := context.WithTimeout(l.ctx, LoginTime)
	defer cancel()
	tcp, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.node.PeerAddr)
	if err != nil {
		return nil, err
	}
	addr := sockets.AddrOf(tcp.RemoteAddr()).Addr()
	l.addr.Store(&addr)
	if l.header.Load() {
		stop := context.AfterFunc(ctx, func() { _ = tcp.Close() })
		_, err := io.WriteString(tcp, "PROXY UNKNOWN\r\n")
		if stop(); err != nil {
			_ = tcp.Close()
			return nil, err
		}
	}
	pc := link.New(tcp, link.Options{Workers: l.o.Workers, Log: l.o.Log.With("node", l.node.Name), Stall: silentAfter, UserTimeout: silentAfter, Unbounded: true})
	err = pc.Connect(ctx, l.node.PeerAddr, &ssh.ClientConfig{
		User: l.o.Nodes.NodeID(), ClientVersion: ClientVersion,
		Auth:            []ssh.AuthMethod{ssh.PublicKeys(l.o.Key)},
		HostKeyCallback: ssh.FixedHostKey(key), HostKeyAlgorithms: []string{key.Type()},
		Config: ssh.Config{Ciphers: link.Ciphers(nil)},
	}, link.Handlers{})
	if err == nil {
		return pc, nil
	}
	switch {
	case pc.Sock.Heard() > 0:
		l.header.Store(false) // the node answered; if this dial has sent a header, the header may have caused the error
	case ctx.Err() == nil: // closed without an answer: the node may require a header from this address, or refuse one
		l.header.Store(!l.header.Load())
	}
	return nil, err
}
