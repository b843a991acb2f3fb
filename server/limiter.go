package server

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	maxConnsDefault = 20000
	reservedFiles   = 512  // descriptors for tunnels, the database and logs
	minPerSource    = 2000 // so many requests in flight are promised to an alias, and one source may send them all
)

// The bounds at which a connection is refused, or an idle one evicted, as the metrics
// name them.
const (
	boundTotal  = "total"  // MaxConns is reached
	boundSource = "source" // MaxConnsPerSource is reached
	boundFiles  = "files"  // the system has no descriptors or memory left
)

// connLimiter bounds the open connections, in all and by source. A source is an IPv4
// address or an IPv6 /64; connections from loopback belong to no source. At a bound
// the connection that has been idle longest is evicted; the new connection is refused
// only if none is idle. Safe for concurrent use.
type connLimiter struct {
	max, maxPerSource int // 0 = no bound

	mu         sync.Mutex
	open       int
	handedOver int   // connections among open that net/http owns
	refused    int64 // since the start
	evicted    int64 // since the start
	sources    map[netip.Addr]*source
	idle       lruList
}

// source counts the connections of one source. It is in connLimiter.sources as long
// as it has any.
type source struct {
	addr netip.Addr
	open int
	idle lruList
}

// newConnLimiter takes the bounds of Options: 0 = the default, negative = none.
func newConnLimiter(limit, limitPerSource int) *connLimiter {
	if limit == 0 {
		limit = defaultConns(fileLimit())
	}
	if limitPerSource == 0 {
		limitPerSource = maxConnsDefault / 4
		if limit > 0 {
			limitPerSource = min(limit, max(limit/4, minPerSource))
		}
	}
	return &connLimiter{
		max: max(limit, 0), maxPerSource: max(limitPerSource, 0),
		sources: map[netip.Addr]*source{},
	}
}

// defaultConns leaves descriptors for other uses. files is the process' limit of open
// files, 0 = unknown.
func defaultConns(files int) int {
	if files <= 0 {
		return maxConnsDefault
	}
	return min(max(files-reservedFiles, files/2), maxConnsDefault)
}

// connSlot is the share that one connection has of a connLimiter, from accept to
// close. The methods of the zero value do nothing.
type connSlot struct {
	limiter    *connLimiter
	socket     net.Conn
	source     *source // nil = counts for none
	state      slotState
	handedOver bool
	links      [2]lruLink // in connLimiter.idle and source.idle
}

type slotState uint8

const (
	slotReleased slotState = iota
	slotIdle               // no request has begun, so the connection may be evicted
	slotBusy
)

// acquire gives s a slot, idle at first. bound is empty if there was a free slot.
// Otherwise it names the bound that was reached, and evicted is the idle connection
// whose slot s has taken; the caller closes it. If evicted is nil then, s has no slot.
func (l *connLimiter) acquire(s *connSlot, socket net.Conn, from netip.Addr) (evicted net.Conn, bound string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	src, victim := l.source(from), (*connSlot)(nil)
	switch {
	case src != nil && l.maxPerSource > 0 && src.open >= l.maxPerSource:
		victim, bound = src.idle.first, boundSource
	case l.max > 0 && l.open >= l.max:
		victim, bound = l.idle.first, boundTotal
	}
	if bound != "" && victim == nil {
		l.refused++
		return nil, bound
	}
	if victim != nil {
		l.evicted++
		evicted = victim.socket
		l.remove(victim)
	}
	s.limiter, s.socket, s.source, s.state = l, socket, src, slotIdle
	l.open++
	if src != nil {
		src.open++
		l.sources[src.addr] = src
	}
	l.addIdle(s)
	return evicted, bound
}

// source returns the source that an address belongs to, nil for loopback and
// addresses that are not IP.
func (l *connLimiter) source(a netip.Addr) *source {
	a = a.Unmap()
	if !a.IsValid() || a.IsLoopback() {
		return nil
	}
	if a.Is6() {
		p, err := a.WithZone("").Prefix(64)
		if err != nil {
			return nil
		}
		a = p.Addr()
	}
	if src := l.sources[a]; src != nil {
		return src
	}
	return &source{addr: a, idle: lruList{index: 1}}
}

// remove releases a slot. The caller holds l.mu.
func (l *connLimiter) remove(s *connSlot) {
	if s.state == slotIdle {
		l.removeIdle(s)
	}
	s.state = slotReleased
	l.open--
	if s.handedOver {
		l.handedOver--
	}
	if s.source != nil {
		if s.source.open--; s.source.open == 0 {
			delete(l.sources, s.source.addr)
		}
	}
}

// addIdle puts s at the end of the idle lists. The caller holds l.mu.
func (l *connLimiter) addIdle(s *connSlot) {
	l.idle.pushBack(s)
	if s.source != nil {
		s.source.idle.pushBack(s)
	}
}

// removeIdle takes s out of the idle lists. The caller holds l.mu.
func (l *connLimiter) removeIdle(s *connSlot) {
	l.idle.remove(s)
	if s.source != nil {
		s.source.idle.remove(s)
	}
}

// evict releases the slots of up to n connections, those that have been idle longest
// first, and returns the connections for the caller to close.
func (l *connLimiter) evict(n int) (evicted []net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ; n > 0 && l.idle.first != nil; n-- {
		l.evicted++
		evicted = append(evicted, l.idle.first.socket)
		l.remove(l.idle.first)
	}
	return evicted
}

// counts returns the number of open connections, and of those that net/http owns.
func (l *connLimiter) counts() (open, handedOver int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open, l.handedOver
}

// ConnStats are the connections of the HTTP and TLS listeners, for /debug/stats.
type ConnStats struct {
	Connections  int   `json:"connections"`
	Base         int   `json:"base"`         // connections that net/http serves the base site on
	Sources      int   `json:"sources"`      // without loopback
	Max          int   `json:"max"`          // 0 = no bound
	MaxPerSource int   `json:"maxPerSource"` // 0 = no bound
	Refused      int64 `json:"refused"`      // since the start
	Evicted      int64 `json:"evicted"`      // since the start: closed while idle to make way for others
}

// Stats counts the connections.
func (s *Server) Stats() ConnStats {
	l := s.connLimit
	l.mu.Lock()
	defer l.mu.Unlock()
	return ConnStats{
		Connections: l.open, Base: l.handedOver, Sources: len(l.sources), Max: l.max, MaxPerSource: l.maxPerSource,
		Refused: l.refused, Evicted: l.evicted,
	}
}

// setIdle makes the connection one that may be evicted.
func (s *connSlot) setIdle() {
	if s.limiter == nil {
		return
	}
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	if s.state == slotBusy {
		s.state = slotIdle
		s.limiter.addIdle(s)
	}
}

// setBusy protects the connection from eviction; false when it was evicted already.
func (s *connSlot) setBusy() bool {
	if s.limiter == nil {
		return true
	}
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	if s.state == slotIdle {
		s.limiter.removeIdle(s)
		s.state = slotBusy
	}
	return s.state == slotBusy
}

// setHandedOver notes that net/http owns the connection from now on.
func (s *connSlot) setHandedOver() {
	if s.limiter == nil {
		return
	}
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	if s.state != slotReleased && !s.handedOver {
		s.handedOver = true
		s.limiter.handedOver++
	}
}

// release gives the slot back. It may be called more than once.
func (s *connSlot) release() {
	if s.limiter == nil {
		return
	}
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	if s.state != slotReleased {
		s.limiter.remove(s)
	}
}

// lruList is a list of idle slots, the one that has been idle longest first. It is
// linked through the slots, so that it allocates nothing.
type lruList struct {
	index       int // in connSlot.links
	first, last *connSlot
}

type lruLink struct{ prev, next *connSlot }

func (l *lruList) pushBack(s *connSlot) {
	s.links[l.index] = lruLink{prev: l.last}
	if l.last != nil {
		l.last.links[l.index].next = s
	} else {
		l.first = s
	}
	l.last = s
}

func (l *lruList) remove(s *connSlot) {
	k := s.links[l.index]
	if k.prev != nil {
		k.prev.links[l.index].next = k.next
	} else {
		l.first = k.next
	}
	if k.next != nil {
		k.next.links[l.index].prev = k.prev
	} else {
		l.last = k.prev
	}
	s.links[l.index] = lruLink{}
}

// Bounds of log lines of one kind. A flood of requests or connections must not become
// a flood of lines, because every request would wait for the log.
const (
	logPerSecond = 20               // relay-made answers at level info
	logInterval  = 10 * time.Second // between lines of any other limited kind
)

// logLimiter allows a number of log lines of one kind within an interval, and counts
// the suppressed ones. Safe for concurrent use.
type logLimiter struct {
	limit    int
	interval time.Duration

	mu         sync.Mutex
	since      time.Time
	n          int
	suppressed int
}

// allow tells whether a line may be written now, and how many were suppressed since
// the last one.
func (l *logLimiter) allow(now time.Time) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.since) >= l.interval {
		l.since, l.n = now, 0
	}
	if l.n++; l.n > l.limit {
		l.suppressed++
		return 0, false
	}
	suppressed, l.suppressed = l.suppressed, 0
	return suppressed, true
}
