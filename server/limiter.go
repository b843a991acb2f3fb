package server

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"relay/sockets"
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

	mu      sync.Mutex
	refused int64 // since the start
	evicted int64 // since the start
	all     *connList
	sources map[netip.Prefix]*connList // without empty ones
}

// connList lists connections: first those that are busy, then mark, then those that are
// idle, longest idle first. To move one allocates nothing.
type connList struct {
	list.List
	mark *list.Element
}

func newConnList() *connList {
	l := &connList{}
	l.mark = l.PushBack(nil)
	return l
}

func (l *connList) open() int { return l.Len() - 1 }

// longestIdle returns the connection that has been idle longest, nil if none is idle.
func (l *connList) longestIdle() *connSlot {
	if e := l.mark.Next(); e != nil {
		return e.Value.(*connSlot)
	}
	return nil
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
		all: newConnList(), sources: map[netip.Prefix]*connList{},
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
	limiter  *connLimiter
	socket   net.Conn
	source   netip.Prefix // the zero value counts for none
	places   []place      // in connLimiter.all, and in the list of the source if there is one
	idle     bool
	released bool
}

// place is an element of a connList.
type place struct {
	in *connList
	at *list.Element
}

// enter adds s to a list, as one that is idle.
func (s *connSlot) enter(l *connList) { s.places = append(s.places, place{l, l.PushBack(s)}) }

// acquire gives s a slot, idle at first. bound is empty if there was a free slot.
// Otherwise it names the bound that was reached, and evicted is the idle connection
// whose slot s has taken; the caller closes it. If evicted is nil then, s has no slot.
func (l *connLimiter) acquire(s *connSlot, socket net.Conn, from netip.Addr) (evicted net.Conn, bound string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var source netip.Prefix
	if !from.IsLoopback() {
		source = sockets.SourceOf(from)
	}
	full, own := (*connList)(nil), l.sources[source]
	switch {
	case own != nil && l.maxPerSource > 0 && own.open() >= l.maxPerSource:
		full, bound = own, boundSource
	case l.max > 0 && l.all.open() >= l.max:
		full, bound = l.all, boundTotal
	}
	if full != nil {
		victim := full.longestIdle()
		if victim == nil {
			l.refused++
			return nil, bound
		}
		l.evicted++
		evicted = victim.socket
		l.remove(victim)
	}
	*s = connSlot{limiter: l, socket: socket, source: source, idle: true}
	s.enter(l.all)
	if source.IsValid() {
		if l.sources[source] == nil {
			l.sources[source] = newConnList()
		}
		s.enter(l.sources[source])
	}
	return evicted, bound
}

// remove releases a slot. The caller holds l.mu.
func (l *connLimiter) remove(s *connSlot) {
	s.released = true
	for _, p := range s.places {
		p.in.Remove(p.at)
	}
	if own := l.sources[s.source]; own != nil && own.open() == 0 {
		delete(l.sources, s.source)
	}
}

// evict releases the slots of up to n connections, those that have been idle longest
// first, and returns the connections for the caller to close.
func (l *connLimiter) evict(n int) (evicted []net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := l.all.longestIdle(); s != nil && len(evicted) < n; s = l.all.longestIdle() {
		l.evicted++
		evicted = append(evicted, s.socket)
		l.remove(s)
	}
	return evicted
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
		Connections: l.all.open(), Base: int(s.baseConns.Load()), Sources: len(l.sources), Max: l.max, MaxPerSource: l.maxPerSource,
		Refused: l.refused, Evicted: l.evicted,
	}
}

// update changes the slot of a connection; false when the connection has lost it.
func (s *connSlot) update(change func()) (held bool) {
	if s.limiter == nil {
		return true
	}
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	if s.released {
		return false
	}
	change()
	return true
}

// setIdle makes the connection one that may be evicted, from the time on when it was busy
// last.
func (s *connSlot) setIdle() {
	s.update(func() {
		if s.idle {
			return
		}
		s.idle = true
		for _, p := range s.places {
			p.in.MoveToBack(p.at)
		}
	})
}

// setBusy protects the connection from eviction; false when it was evicted already.
func (s *connSlot) setBusy() bool {
	return s.update(func() {
		s.idle = false
		for _, p := range s.places {
			p.in.MoveBefore(p.at, p.in.mark)
		}
	})
}

// release gives the slot back. It may be called more than once.
func (s *connSlot) release() { s.update(func() { s.limiter.remove(s) }) }

// Bounds of log lines of one kind. A flood of requests or connections must not become
// a flood of lines, because every request would wait for the log.
const (
	logPerSecond = 20               // relay-made answers at level info
	logInterval  = 10 * time.Second // between lines of any other limited kind
)

// logLimiter allows a number of log lines of one kind within an interval, and counts
// the suppressed ones. Safe for concurrent use.
type logLimiter struct {
	rate       *rate.Limiter
	suppressed atomic.Int64
}

func newLogLimiter(lines int, interval time.Duration) *logLimiter {
	return &logLimiter{rate: rate.NewLimiter(rate.Every(interval/time.Duration(lines)), lines)}
}

// allow tells whether a line may be written now, and how many were suppressed since
// the last one.
func (l *logLimiter) allow() (suppressed int64, ok bool) {
	if !l.rate.Allow() {
		l.suppressed.Add(1)
		return 0, false
	}
	return l.suppressed.Swap(0), true
}
