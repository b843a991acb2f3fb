package delivery_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"relay"
)

// memRemote is a tunnel of another node.
type memRemote struct {
	*memTunnel
	cut   bool // the node of the tunnel cannot be reached
	woken int
}

func (t *memRemote) Node() string { return "there" }

func (t *memRemote) Wake() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.cut {
		t.woken++
	}
	return !t.cut
}

// atOtherNode starts a fixture whose alias has its tunnel at another node.
func atOtherNode(t *testing.T, f func(b *fixture, remote *memRemote), options ...func(*fixture)) {
	remote := &memRemote{memTunnel: &memTunnel{serve: always("hello", ok), info: relay.TunnelInfo{ID: "tun_1"}}}
	run(t, nil, func(b *fixture) {
		defer remote.wg.Wait()
		defer remote.cutAll()
		b.elsewhere("tun_1", relay.TunnelOnline)
		f(b, remote)
	}, append([]func(*fixture){func(b *fixture) {
		b.opt.Remote = func(relay.TunnelRecord) relay.RemoteTunnel { return remote }
	}}, options...)...)
}

// elsewhere stores a tunnel of the other node, or removes it if id is "", and publishes the change.
func (b *fixture) elsewhere(id string, state relay.TunnelState) {
	b.s.mu.Lock()
	if id == "" {
		delete(b.s.tunnels, 7)
	} else {
		b.s.tunnels[7] = relay.TunnelRecord{TunnelInfo: relay.TunnelInfo{ID: id}, Alias: 7, Node: "there", State: state}
	}
	b.s.mu.Unlock()
	b.d.Publish([]relay.Change{{Kind: relay.ChangeTunnel, Alias: 7}})
	synctest.Wait()
}

func (b *fixture) state() relay.TunnelState {
	list, err := b.d.Status(b.t.Context(), []relay.Alias{*b.a})
	if err != nil {
		b.t.Fatal(err)
	}
	return list[0].State
}

// released reports whether attempt 1 of the newest event is released.
func (b *fixture) released() bool {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	return b.s.events[b.s.order[len(b.s.order)-1]].Attempts[0].Released
}

func TestRequestThroughAnotherNode(t *testing.T) {
	atOtherNode(t, func(b *fixture, remote *memRemote) {
		if b.state() != relay.TunnelOnline || b.d.Stats().Tunnels != 0 {
			t.Errorf("the alias is %s; %d tunnels here", b.state(), b.d.Stats().Tunnels)
		}
		if _, c := b.send(post); c.answer() != ok {
			t.Errorf("answered %q", c.answer())
		}
		time.Sleep(time.Second + time.Millisecond)
		b.s.mu.Lock()
		if b.s.requests["tun_1"] != 1 {
			t.Errorf("%d requests noted", b.s.requests["tun_1"])
		}
		b.s.mu.Unlock()
		b.elsewhere("tun_1", relay.TunnelStale)
		if out, _ := b.send(post); out.Answer == nil || out.Answer.Status != 202 || b.released() {
			t.Errorf("a silent tunnel: %+v, released %v", out.Answer, b.released())
		}
		b.elsewhere("", "")
		if b.state() != relay.TunnelOffline {
			t.Errorf("the alias without a tunnel is %s", b.state())
		}
	})
}

// TestMovedTunnelIsLookedUp: after ErrTunnelMoved, this node reads the new tunnel from the store, and sends
// the request through it.
func TestMovedTunnelIsLookedUp(t *testing.T) {
	next := &memRemote{memTunnel: &memTunnel{serve: always("hello", ok), info: relay.TunnelInfo{ID: "tun_2"}}}
	atOtherNode(t, func(b *fixture, remote *memRemote) {
		defer next.wg.Wait()
		defer next.cutAll()
		remote.mu.Lock()
		remote.openErr = relay.ErrTunnelMoved
		remote.mu.Unlock()
		b.s.mu.Lock()
		b.s.tunnels[7] = relay.TunnelRecord{TunnelInfo: relay.TunnelInfo{ID: "tun_2"}, Alias: 7, Node: "elsewhere", State: relay.TunnelOnline}
		b.s.mu.Unlock()
		out, _ := b.send(post)
		b.want("an answer of our own", code(out), "")
		b.want("channels of the next tunnel", next.count(), 1)
	}, func(b *fixture) {
		first := b.opt.Remote
		b.opt.Remote = func(r relay.TunnelRecord) relay.RemoteTunnel {
			if r.ID == "tun_2" {
				return next
			}
			return first(r)
		}
	})
}

// TestSilentNodeDeliversFromTheQueue: requests for a tunnel whose node does not answer are queued as
// released, and the alias is stale. It is online again when the node answers.
func TestSilentNodeDeliversFromTheQueue(t *testing.T) {
	atOtherNode(t, func(b *fixture, remote *memRemote) {
		silent := func(is bool, heard time.Duration) {
			remote.mu.Lock()
			defer remote.mu.Unlock()
			remote.hang, remote.heard = is, heard
		}
		silent(true, time.Minute)
		for _, when := range []string{"before", "after"} {
			out, _ := b.send(post)
			if out.Answer == nil || out.Answer.Status != 202 || !b.released() || b.state() != relay.TunnelStale {
				t.Errorf("%s its silence is known: %+v, released %v, the alias is %s", when, out.Answer, b.released(), b.state())
			}
		}
		silent(false, 0)
		time.Sleep(time.Second)
		if b.state() != relay.TunnelOnline {
			t.Errorf("the alias of a node that speaks again is %s", b.state())
		}
	})
}

// TestStoredFirstForUnreachableNode: if a request was stored before it was to be sent, and cannot be sent to the
// node of the tunnel, it is queued as released, and the queue of that node is woken.
func TestStoredFirstForUnreachableNode(t *testing.T) {
	first := false
	atOtherNode(t, func(b *fixture, remote *memRemote) {
		first = true
		remote.mu.Lock()
		remote.openErr = relay.ErrNotSent
		remote.mu.Unlock()
		if out, _ := b.send(post); out.Answer == nil || out.Answer.Status != 202 || !b.released() || remote.woken == 0 {
			t.Errorf("%+v, released %v, woken %d", out.Answer, b.released(), remote.woken)
		}
	}, func(b *fixture) { b.opt.StoreFirst = func() bool { return first } })
}

// TestSlowClientAtAnotherNode: after ErrTunnelSlow, a request is queued without a release, and the alias
// stays online.
func TestSlowClientAtAnotherNode(t *testing.T) {
	for _, storedFirst := range []bool{false, true} {
		first := false
		atOtherNode(t, func(b *fixture, remote *memRemote) {
			first = storedFirst
			remote.mu.Lock()
			remote.openErr = relay.ErrTunnelSlow
			remote.mu.Unlock()
			if out, _ := b.send(post); out.Answer == nil || out.Answer.Status != 202 || b.released() || b.state() != relay.TunnelOnline {
				t.Errorf("stored first %v: %+v, released %v, the alias is %s", storedFirst, out.Answer, b.released(), b.state())
			}
		}, func(b *fixture) { b.opt.StoreFirst = func() bool { return first } })
	}
}

// TestUnreachableNodeDeliversFromTheQueue: requests for a node that cannot be reached are queued as released.
// This node wakes the queue of the other node or, while that node is cut off, announces the queue in the store.
// The alias is stale until the node can be reached again.
func TestUnreachableNodeDeliversFromTheQueue(t *testing.T) {
	atOtherNode(t, func(b *fixture, remote *memRemote) {
		remote.mu.Lock()
		remote.openErr = relay.ErrNotSent
		remote.mu.Unlock()
		out, _ := b.send(post)
		if out.Answer == nil || out.Answer.Status != 202 || !b.released() || remote.woken == 0 {
			t.Errorf("%+v, released %v, woken %d", out.Answer, b.released(), remote.woken)
		}
		remote.mu.Lock()
		remote.cut = true
		remote.mu.Unlock()
		b.d.NodeReachable("there", false)
		if b.state() != relay.TunnelStale {
			t.Errorf("the alias is %s", b.state())
		}
		if out, _ := b.send(post); out.Answer == nil || out.Answer.Status != 202 || !b.released() {
			t.Errorf("%+v, released %v", out.Answer, b.released())
		}
		synctest.Wait()
		if !slices.Contains(b.s.announced, 7) {
			t.Error("the other node is not told of the queue")
		}
		b.d.NodeReachable("there", true)
		if b.state() != relay.TunnelOnline {
			t.Errorf("the alias of a node that is back is %s", b.state())
		}
	})
}

// TestTakeoverBetweenNodes: a new tunnel, here or at the other node, takes the alias, and the earlier tunnel
// is closed. The new tunnel gets the next request.
func TestTakeoverBetweenNodes(t *testing.T) {
	atOtherNode(t, func(b *fixture, remote *memRemote) {
		tun, _ := b.attach(always("hello", ok))
		synctest.Wait()
		if !slices.Contains(remote.closed, "taken over by a newer connection") || b.s.tunnels[7].Node != "here" {
			t.Errorf("the other node was told %q, the tunnel is %s", remote.closed, b.s.tunnels[7].Node)
		}
		if len(b.s.takeovers) == 0 {
			t.Error("the takeover is not noted")
		}
		b.elsewhere("tun_2", relay.TunnelOnline)
		if !slices.Contains(tun.closed, "taken over by a newer connection") {
			t.Errorf("the tunnel of this node was told %q", tun.closed)
		}
		before := remote.opened
		if _, c := b.send(post); c.answer() != ok || remote.opened != before+1 {
			t.Errorf("answered %q", c.answer())
		}
	})
}

// TestRecordsOfTunnelsOfThisNode: if the record of a tunnel was lost, it is written again. The record follows the
// state of the tunnel, and is removed when the tunnel ends. A record with the state closing closes the tunnel.
func TestRecordsOfTunnelsOfThisNode(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		synctest.Wait()
		b.elsewhere("", "")
		if b.s.tunnels[7].Node != "here" {
			t.Errorf("the record is %+v", b.s.tunnels[7])
		}
		b.hold.Stale()
		synctest.Wait()
		if s := b.s.tunnels[7].State; s != relay.TunnelStale {
			t.Errorf("a silent tunnel is stored as %s", s)
		}
		b.hold.Online()
		synctest.Wait()
		b.s.mu.Lock()
		r := b.s.tunnels[7]
		r.State = relay.TunnelClosing
		b.s.tunnels[7] = r
		b.s.mu.Unlock()
		b.d.Publish([]relay.Change{{Kind: relay.ChangeTunnel}})
		synctest.Wait()
		if len(b.tun.closed) != 1 {
			t.Errorf("told %q", b.tun.closed)
		}
		b.hold.Detach(true)
		synctest.Wait()
		if len(b.s.tunnels) != 0 {
			t.Errorf("left %+v", b.s.tunnels)
		}
	})
}

// TestAttachWhileTheStoreIsAway: a tunnel that is attached while the store is down serves requests, and is
// stored once the store works again.
func TestAttachWhileTheStoreIsAway(t *testing.T) {
	run(t, nil, func(b *fixture) {
		b.s.fail("tunnels", relay.Errorf(relay.CodeStoreUnavailable, "away"))
		b.attach(always("hello", ok))
		if _, c := b.send(post); c.answer() != ok {
			t.Errorf("answered %q", c.answer())
		}
		b.s.fail("tunnels", nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if b.s.tunnels[7].Node != "here" {
			t.Error("not stored")
		}
	})
}

// TestTunnelOfNodeThatRejoined: if a node has rejoined under a new id, this node finds its tunnel under that
// id after ReadTunnels.
func TestTunnelOfNodeThatRejoined(t *testing.T) {
	again := &memRemote{memTunnel: &memTunnel{serve: always("hello", ok), info: relay.TunnelInfo{ID: "tun_1"}}}
	atOtherNode(t, func(b *fixture, remote *memRemote) {
		defer again.wg.Wait()
		defer again.cutAll()
		// No node has the old id any more.
		remote.set(func() { remote.openErr = relay.ErrTunnelMoved })
		b.d.NodeReachable("there", false)
		b.s.mu.Lock()
		b.s.tunnels[7] = relay.TunnelRecord{TunnelInfo: relay.TunnelInfo{ID: "tun_1"}, Alias: 7, Node: "there again", State: relay.TunnelOnline}
		b.s.mu.Unlock()
		b.d.ReadTunnels()
		synctest.Wait()
		b.want("state", b.state(), relay.TunnelOnline)
		_, c := b.send(post)
		b.want("answer", c.answer(), ok)
	}, func(b *fixture) {
		first := b.opt.Remote
		b.opt.Remote = func(r relay.TunnelRecord) relay.RemoteTunnel {
			if r.Node == "there again" {
				return again
			}
			return first(r)
		}
	})
}

// TestRequestUnderWayWhenTheTunnelOfAnotherNodeGoes: a request in progress through another node gets its
// answer, although the record of the tunnel was removed.
func TestRequestUnderWayWhenTheTunnelOfAnotherNodeGoes(t *testing.T) {
	atOtherNode(t, func(b *fixture, remote *memRemote) {
		answer := make(chan struct{})
		remote.set(func() {
			remote.serve = func(l *local) {
				l.until("hello")
				<-answer
				l.Write(ok)
			}
		})
		c, done := b.begin(post)
		synctest.Wait()
		b.elsewhere("", "")
		b.want("state", b.state(), relay.TunnelOffline)
		close(answer)
		out := <-done
		b.want("an answer of our own", code(out), "")
		b.want("answer", c.answer(), ok)
	})
}

// askedRemote counts the calls of Heard.
type askedRemote struct {
	*memRemote
	asked int
}

func (t *askedRemote) Heard() time.Duration {
	t.set(func() { t.asked++ })
	return t.memRemote.Heard()
}

// TestNobodyWaitsForATunnelThatIsGone: after the record of a silent tunnel was removed, Heard is not called
// any more.
func TestNobodyWaitsForATunnelThatIsGone(t *testing.T) {
	var r *askedRemote
	atOtherNode(t, func(b *fixture, remote *memRemote) {
		remote.set(func() { remote.hang, remote.heard = true, time.Hour })
		b.send(post)
		b.want("state", b.state(), relay.TunnelStale)
		b.elsewhere("", "")
		time.Sleep(time.Second)
		before := r.asked
		time.Sleep(time.Minute)
		b.want("asked", r.asked-before, 0)
	}, func(b *fixture) {
		first := b.opt.Remote
		b.opt.Remote = func(rec relay.TunnelRecord) relay.RemoteTunnel {
			r = &askedRemote{memRemote: first(rec).(*memRemote)}
			return r
		}
	})
}

// movingStore is a store that calls the function in the field during, once, after it has claimed an attempt.
type movingStore struct {
	*memStore
	during func()
}

func (s *movingStore) Next(next relay.NextClaim) (*relay.Claim, error) {
	c, err := s.memStore.Next(next)
	if f := s.during; c != nil && f != nil {
		s.during = nil
		f()
	}
	return c, err
}

// TestQueueIsNotDeliveredThroughAnotherNode: if the alias gets a tunnel at another node during a claim, this
// node does not send the claimed attempt through that tunnel, but queues it again.
func TestQueueIsNotDeliveredThroughAnotherNode(t *testing.T) {
	s := &movingStore{}
	remote := &memRemote{memTunnel: &memTunnel{serve: always("hello", ok), info: relay.TunnelInfo{ID: "tun_2"}}}
	run(t, nil, func(b *fixture) {
		defer remote.wg.Wait()
		defer remote.cutAll()
		b.send(post)
		s.during = func() { b.elsewhere("tun_2", relay.TunnelOnline) }
		b.attach(always("hello", ok))
		synctest.Wait()
		b.s.change(7, func(s *relay.Settings) { s.AutoDeliver = true })
		time.Sleep(time.Second)
		synctest.Wait()
		b.want("claimed", s.during == nil, true)
		b.want("channels of the other node", remote.count(), 0)
		b.want("state", b.event().State, relay.StateQueued)
	}, func(b *fixture) {
		s.memStore, b.opt.Store = b.s, s
		b.opt.Remote = func(relay.TunnelRecord) relay.RemoteTunnel { return remote }
	})
}

// TestTunnelThatComesToUnreachableNodeIsNotOnline: a new tunnel at a node that cannot be reached makes the
// alias stale, and requests are queued as released. It is online once the node can be reached.
func TestTunnelThatComesToUnreachableNodeIsNotOnline(t *testing.T) {
	atOtherNode(t, func(b *fixture, remote *memRemote) {
		remote.set(func() { remote.cut, remote.heard, remote.openErr = true, time.Hour, relay.ErrNotSent })
		b.d.NodeReachable("there", false)
		b.elsewhere("tun_2", relay.TunnelOnline)
		b.want("state", b.state(), relay.TunnelStale)
		out, _ := b.send(post)
		b.want("code", code(out), "202")
		b.want("released", b.released(), true)
		remote.set(func() { remote.cut, remote.heard, remote.openErr = false, 0, nil })
		b.d.NodeReachable("there", true)
		b.want("state", b.state(), relay.TunnelOnline)
		_, c := b.send(post)
		b.want("answer", c.answer(), ok)
	})
}
