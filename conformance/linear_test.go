package conformance

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"golang.org/x/crypto/ssh"

	"relay/store/pgtest"
)

// tunnelOp is an operation of the history that porcupine checks: a tunnel attaches to an alias or detaches,
// or a request is answered by a tunnel. The checks of the nodes are separate, because a takeover may be known
// to some nodes earlier than to others.
type tunnelOp struct {
	kind   string // attach, detach or request
	alias  string
	node   int // index of the node to which a request was sent
	tunnel int // number of the tunnel; 0 = the request was queued
}

// tunnelRegister is the model for one node and one alias. Its state is the number of the tunnel that has the
// alias; 0 = none. A request may be queued at any time. If it is answered, then by the tunnel that has the
// alias.
var tunnelRegister = porcupine.Model{
	Init: func() any { return 0 },
	Step: func(state, input, _ any) (bool, any) {
		op := input.(tunnelOp)
		switch {
		case op.kind == "attach":
			return true, op.tunnel
		case op.kind == "detach" && state == op.tunnel:
			return true, 0
		case op.kind == "request":
			return op.tunnel == 0 || state == op.tunnel, state
		}
		return true, state
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
}

// history collects operations.
type history struct {
	mu    sync.Mutex
	begun time.Time
	ops   []porcupine.Operation
}

// add adds an operation that began at the time call and ended at the time end.
func (h *history) add(op tunnelOp, call, end time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{Input: op, Call: call.Sub(h.begun).Nanoseconds(), Return: end.Sub(h.begun).Nanoseconds()})
}

// of returns the operations on an alias that count for a node: its requests, and every attach and detach. A
// node may learn of an attach or detach late, at most the duration within after the operation has ended, so
// the end of the operation is moved by this duration.
func (h *history) of(alias string, node int, within time.Duration) (ops []porcupine.Operation) {
	for _, o := range h.ops {
		op := o.Input.(tunnelOp)
		if op.alias != alias || op.kind == "request" && op.node != node {
			continue
		}
		if op.kind != "request" {
			o.Return += within.Nanoseconds()
		}
		ops = append(ops, o)
	}
	return ops
}

// TestTunnelsAreLinearizable attaches, takes over and detaches tunnels at random nodes while requests arrive
// at all nodes. porcupine checks for each node that the answers fit one order of these operations, if each
// operation takes effect within 1 s.
func TestTunnelsAreLinearizable(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t, pgtest.URL(t))
	text, err := os.ReadFile(nodes[0].key)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(text)
	if err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	aliases := []string{"one", "two"}
	for _, alias := range aliases {
		nodes[0].alias(alias)
		for _, r := range nodes {
			r.waitFor(5*time.Second, "the alias to be known", func() bool { status, _, _ := r.call(alias, "/known", "x"); return status == 202 })
		}
	}
	h := &history{begun: time.Now()}
	end := h.begun.Add(size(6*time.Second, time.Minute))
	var answered sync.Map // the tunnels that have answered, by number
	var numbers atomic.Int64
	var work sync.WaitGroup
	for lane := range 4 {
		work.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(lane)))
			for alias := aliases[lane%2]; time.Now().Before(end); {
				h.hold(t, nodes[rnd.IntN(3)], signer, alias, int(numbers.Add(1)), time.Duration(rnd.IntN(1500))*time.Millisecond)
			}
		})
	}
	for i, r := range nodes {
		for _, alias := range aliases {
			work.Go(func() {
				client := callerTo(r.http, 30*time.Second)
				defer client.CloseIdleConnections()
				for time.Now().Before(end) {
					call := time.Now()
					res, err := client.Post("http://"+alias+".localhost/x", "text/plain", nil)
					if err != nil {
						t.Error(err)
						return
					}
					var n int
					_, _ = fmt.Sscan(res.Header.Get("Tunnel"), &n) // the header is absent if the request was queued or its tunnel was lost
					_ = drain(res)
					h.add(tunnelOp{"request", alias, i, n}, call, time.Now())
					answered.Store(n, true)
					<-time.After(5 * time.Millisecond)
				}
			})
		}
	}
	work.Wait()
	within := bound(time.Second)
	requests, seen := 0, 0
	answered.Range(func(any, any) bool { seen++; return true })
	for _, alias := range aliases {
		for i := range nodes {
			ops := h.of(alias, i, within)
			requests += len(ops)
			if result := porcupine.CheckOperationsTimeout(tunnelRegister, ops, 4*time.Minute); result != porcupine.Ok {
				t.Errorf("seed %d, node %d, alias %s: %s", seed, i, alias, result)
			}
		}
	}
	figure(t, "linearizable: %d tunnels of 2 aliases, of which %d answered; %d operations seen by 3 nodes", numbers.Load(), seen, requests)
	if seen < 5 {
		t.Errorf("only %d tunnels answered", seen)
	}
}

// hold attaches a tunnel whose answers have the number n in the header Tunnel. It keeps the tunnel for the
// duration keep or until a takeover, and detaches it.
func (h *history) hold(t *testing.T, r *relayServer, signer ssh.Signer, alias string, n int, keep time.Duration) {
	c, err := net.Dial("tcp", r.ssh)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	conn, channels, requests, err := ssh.NewClientConn(c, r.ssh, &ssh.ClientConfig{
		User: "relay", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		t.Error(err)
		return
	}
	go ssh.DiscardRequests(requests)
	go func() {
		for open := range channels {
			go answerChannel(open, fmt.Sprintf("HTTP/1.1 200 OK\r\nTunnel: %d\r\nContent-Length: 0\r\n\r\n", n))
		}
	}()
	call := time.Now()
	ok, _, err := conn.SendRequest("tcpip-forward", true, ssh.Marshal(struct {
		Bind string
		Port uint32
	}{alias, 80}))
	if err != nil || !ok {
		t.Errorf("forward %s: %v, %v", alias, ok, err)
		return
	}
	h.add(tunnelOp{kind: "attach", alias: alias, tunnel: n}, call, time.Now())
	taken := make(chan struct{})
	go func() { _ = conn.Wait(); close(taken) }()
	select {
	case <-taken:
	case <-time.After(keep):
	}
	call = time.Now()
	_ = conn.Close()
	h.add(tunnelOp{kind: "detach", alias: alias, tunnel: n}, call, time.Now())
}
