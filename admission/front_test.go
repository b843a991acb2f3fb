package admission

import (
	"net/netip"
	"testing"
	"time"

	"relay/sockets"
)

// peer is a fake connection whose peer has been silent for a while.
type peer struct {
	silent  time.Duration
	evicted []string // reasons of the evictions
}

func (p *peer) Evicted(reason string) { p.evicted = append(p.evicted, reason) }

// slot returns a slot for a connection from addr that has no place yet.
func (p *peer) slot(addr netip.Addr) *Slot {
	s := &Slot{Conn: p, Silent: func() time.Duration { return p.silent }, Shared: addr.IsLoopback()}
	if addr.IsValid() {
		s.Source = sockets.SourceOf(addr)
	}
	return s
}

// ssh returns the front for logins of a new limiter, which has no other front.
func ssh(limits Limits) *Front { return NewLimiter(0).Front(limits) }

// silentSlots acquires slots for n connections whose peers have been silent, the first
// one for the longest time.
func silentSlots(l *Front, addr string, n int) (list []*Slot) {
	a := netip.MustParseAddr(addr)
	for i := range n {
		s := (&peer{silent: time.Hour - time.Duration(i)*time.Minute}).slot(a)
		l.Acquire(s, Unknown)
		list = append(list, s)
	}
	return list
}

// TestBusiestSourceIsEvicted: new connections replace those of the source with the most silent sockets, the
// one that has been silent for longest first, even if another source came before.
func TestBusiestSourceIsEvicted(t *testing.T) {
	t.Parallel()
	l := ssh(Limits{Unknown: 10})
	few := silentSlots(l, "203.0.113.1", 2)
	many := silentSlots(l, "203.0.113.2", 8)
	for n := range 6 {
		s := (&peer{}).slot(netip.AddrFrom4([4]byte{203, 0, 113, byte(100 + n)}))
		evicted, reason := l.Acquire(s, Unknown)
		if reason != ReasonUnauthenticated || evicted == nil || evicted == few[0] || evicted == few[1] {
			t.Fatalf("%d: evicted %v for %q", n, evicted, reason)
		}
		if evicted != many[n] {
			t.Errorf("%d: the evicted connection was not the most silent one", n)
		}
	}
	if got := l.Counts()[Unknown]; got != 10 {
		t.Errorf("%d unauthenticated", got)
	}
}

// TestWorkingLoginsAreNotEvicted: if all logins wait for a response of relayd, a new connection is refused. A
// login that waits for its peer is evicted.
func TestWorkingLoginsAreNotEvicted(t *testing.T) {
	t.Parallel()
	l := ssh(Limits{Unknown: 5})
	list := silentSlots(l, "203.0.113.1", 5)
	for _, s := range list {
		s.Conn.(*peer).silent = 0
	}
	late := (&peer{}).slot(list[0].Source.Addr())
	if evicted, reason := l.Acquire(late, Unknown); evicted != nil || reason != ReasonUnauthenticated {
		t.Errorf("evicted %v for %q", evicted, reason)
	}
	list[3].Conn.(*peer).silent = time.Minute
	if evicted, _ := l.Acquire(late, Unknown); evicted != list[3] {
		t.Errorf("evicted %v, not the only one that waits for its peer", evicted)
	}
}

func TestTotalLimit(t *testing.T) {
	t.Parallel()
	l := ssh(Limits{Total: 3})
	list := silentSlots(l, "127.0.0.1", 3)
	list[0].SetClass(LoggedIn)
	list[1].SetClass(LoggedIn)
	s := (&peer{}).slot(list[0].Source.Addr())
	if evicted, reason := l.Acquire(s, Unknown); reason != ReasonTotal || evicted != list[2] {
		t.Error("the silent connection did not lose its slot")
	}
	s.SetClass(LoggedIn)
	if evicted, reason := l.Acquire((&peer{}).slot(list[0].Source.Addr()), Unknown); reason != ReasonTotal || evicted != nil {
		t.Error("a logged-in connection was evicted, or there were too many")
	}
	if got := l.Counts(); got.All() != 3 {
		t.Errorf("%v", got)
	}
}

// TestPromptsOfOneSource: eight logins of one source may wait for a user. For a source that many
// users share, only the total limit applies.
func TestPromptsOfOneSource(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]int{"203.0.113.1": maxPromptsPerSource, "127.0.0.1": 20} {
		l := ssh(Limits{Prompts: 20})
		var got int
		for _, s := range silentSlots(l, addr, 30) {
			l.BeginPrompt(s)
		}
		got = l.Counts()[Prompting]
		if got != want {
			t.Errorf("%s: %d logins wait for a person, want %d", addr, got, want)
		}
	}
}

// TestPromptsOfManySources: attackers take all places for logins that wait for a user, and reconnect
// at once when evicted. They neither block nor evict other users.
func TestPromptsOfManySources(t *testing.T) {
	t.Parallel()
	v4 := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}) }
	far := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{100, byte(i), 0, 1}) }
	v6 := func(i int) netip.Addr {
		a := netip.MustParseAddr("2001:db8:1::1").As16()
		a[6], a[7] = byte(i>>8), byte(i)
		return netip.AddrFrom16(a)
	}
	for name, x := range map[string]struct {
		sources, each int
		addr          func(i int) netip.Addr
	}{
		"32 addresses of one network": {32, 8, v4}, "32 networks": {32, 8, far}, "a /48 of IPv6": {256, 1, v6},
	} {
		l := ssh(Limits{})
		wait := func(a netip.Addr) (s, evicted *Slot, ok bool) {
			s = (&peer{}).slot(a)
			l.Acquire(s, Unknown)
			evicted, ok = l.BeginPrompt(s)
			return s, evicted, ok
		}
		for i := range x.sources * x.each {
			wait(x.addr(i / x.each))
		}
		if got := l.Counts()[Prompting]; got != 256 {
			t.Fatalf("%s: %d wait", name, got)
		}
		person, evicted, ok := wait(netip.MustParseAddr("203.0.113.5"))
		if !ok || evicted == nil {
			t.Errorf("%s: a person was refused", name)
		}
		for i := range 1000 {
			if s, evicted, ok := wait(x.addr(i % x.sources)); evicted == person {
				t.Fatalf("%s: the person has lost the place to try %d", name, i)
			} else if !ok {
				s.Release()
			}
		}
	}
}

// TestPlacesOfNodes: connections of nodes, and connections that claim to be of nodes, do not count
// as clients. Few connections without proof are allowed, and proven nodes can evict them.
func TestPlacesOfNodes(t *testing.T) {
	t.Parallel()
	l := ssh(Limits{Total: 2, Unknown: 2})
	for _, s := range silentSlots(l, "127.0.0.1", 2) {
		s.SetClass(LoggedIn)
	}
	stranger := func(i int) *Slot {
		return (&peer{}).slot(netip.AddrFrom4([4]byte{100, byte(i), 0, 1}))
	}
	if evicted, reason := l.Acquire(stranger(0), Unknown); evicted != nil || reason != ReasonTotal {
		t.Fatal("there is a place among the clients")
	}
	for i := range 2 * maxNodeLogins {
		l.AcquireForNode(stranger(i), true)
	}
	if got := l.Counts(); got[NodeLogin] != maxNodeLogins || got.All() != 2 {
		t.Errorf("%v", got)
	}
	node := &Slot{Conn: &peer{}, Source: netip.MustParsePrefix("203.0.113.9/32"), OfNode: true, Shared: true}
	if evicted, ok := l.AcquireForNode(node, true); !ok || evicted == nil || evicted.OfNode {
		t.Error("a node was refused")
	}
	for i := range 2 * maxNodeLogins {
		if evicted, _ := l.AcquireForNode(stranger(i), true); evicted == node {
			t.Fatal("a stranger has taken the place of a node")
		}
	}
	node.SetClass(Node)
	if got := l.Counts(); got[Node] != 1 || got.All() != 2 {
		t.Errorf("%v", got)
	}
	l, refused := ssh(Limits{}), 0
	for range 3 * maxNodeLoginsPerSource {
		if _, ok := l.AcquireForNode(stranger(0), true); !ok {
			refused++
		}
	}
	if got := l.Counts()[NodeLogin]; got != maxNodeLoginsPerSource || refused != 2*maxNodeLoginsPerSource {
		t.Errorf("one stranger has %d places, %d tries were refused", got, refused)
	}
}

// TestLimiterForgets: connections that have ended leave no entries in the limiter, however they
// ended.
func TestLimiterForgets(t *testing.T) {
	t.Parallel()
	l := ssh(Limits{Total: 40, PerSource: 4, Unknown: 6})
	var all []*Slot
	for i := range 50 {
		s := (&peer{silent: time.Minute}).slot(netip.AddrFrom4([4]byte{203, 0, 113, byte(i % 7)}))
		all = append(all, s)
		l.Acquire(s, Unknown)
		if i%3 == 0 {
			if l.BeginPrompt(s); i%6 == 0 {
				s.SetClass(Unknown)
			}
		}
		if i%4 == 1 {
			l.AcquireForNode(s, false)
		}
		if i%5 == 0 {
			l.ReserveAccount(s, int64(i%3+1))
			s.SetClass(LoggedIn)
		}
	}
	for _, s := range all {
		s.Release()
		s.Release()
	}
	if l.Counts() != (Counts{}) || len(l.sources) != 0 || len(l.accounts) != 0 || l.all.list.Len() != 1 || len(l.prompting)+len(l.nodeLogins) != 0 || l.limiter.open != 0 {
		t.Errorf("left: %v, %d sources, %d accounts, %d listed", l.Counts(), len(l.sources), len(l.accounts), l.all.list.Len()-1)
	}
}

// TestAccountLimitOfAllNodes: connections at other nodes count too. AccountsToTell returns the accounts with
// at least 1/64 of the limit.
func TestAccountLimitOfAllNodes(t *testing.T) {
	t.Parallel()
	elsewhere := 126
	l := ssh(Limits{PerAccount: 128, Elsewhere: func(account int64) int { return map[int64]int{1: elsewhere}[account] }})
	reserve := func(account int64) bool {
		s := (&peer{}).slot(netip.MustParseAddr("127.0.0.1"))
		l.Acquire(s, Unknown)
		return l.ReserveAccount(s, account)
	}
	if !reserve(1) || len(l.AccountsToTell()) != 0 {
		t.Errorf("the first one of 127: refused, or told: %v", l.AccountsToTell())
	}
	if !reserve(1) || reserve(1) {
		t.Error("the limit of 128 connections at all nodes does not hold")
	}
	if told := l.AccountsToTell(); len(told) != 1 || told[1] != 2 {
		t.Errorf("told: %v", told)
	}
	if elsewhere--; !reserve(1) || !reserve(2) {
		t.Error("refused with a connection less elsewhere, or for another account")
	}
	l = ssh(Limits{PerAccount: 2})
	if reserve(1); l.AccountsToTell()[1] != 1 {
		t.Errorf("of a low limit is told: %v", l.AccountsToTell())
	}
}
