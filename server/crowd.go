package server

import (
	"net"
	"net/netip"
	"sync"
)

// Bounds of the crowd that follow from other figures.
const (
	mostConns  = 20000
	spareFiles = 512  // for tunnels, the database and logs
	leastFrom  = 2000 // so many requests in flight are promised to an alias, and may have one source
)

// Why there was no place.
const (
	forTotal  = "total"  // as many connections as there may be
	forSource = "source" // as many as one source may have
	forFiles  = "files"  // the system has no more descriptors or memory
)

// crowd bounds how many connections there are at once, in all and from one source:
// an IPv4 address or an IPv6 /64; loopback counts for no source. Where there is no
// place, whoever has waited longest without asking for anything has to go, and only
// where everybody is busy is the newcomer refused. Safe for concurrent use.
type crowd struct {
	most, mostFrom int // 0 = no bound

	mu      sync.Mutex
	here    int
	handed  int   // of these, how many net/http owns
	refused int64 // since the start
	let     int64 // since the start: lost their place while idle
	sources map[netip.Addr]*source
	idle    line
}

// source is what one source has; it exists as long as it has something.
type source struct {
	addr netip.Addr
	here int
	idle line
}

// newCrowd makes a crowd of the bounds in Options: 0 = the default, less = none.
func newCrowd(most, mostFrom int) *crowd {
	if most == 0 {
		most = defaultConns(fileLimit())
	}
	if mostFrom == 0 {
		mostFrom = mostConns / 4
		if most > 0 {
			mostFrom = min(most, max(most/4, leastFrom))
		}
	}
	return &crowd{
		most: max(most, 0), mostFrom: max(mostFrom, 0),
		sources: map[netip.Addr]*source{},
	}
}

// defaultConns leaves room for what else needs descriptors; files is how many the
// process may have, 0 = unknown.
func defaultConns(files int) int {
	if files <= 0 {
		return mostConns
	}
	return min(max(files-spareFiles, files/2), mostConns)
}

// seat is the place of one connection, from its accept to its close. The zero value
// belongs to no crowd.
type seat struct {
	crowd  *crowd
	socket net.Conn
	from   *source // nil = counts for none
	state  seatState
	handed bool
	links  [2]link // in the lines of all and of its source
}

type seatState uint8

const (
	seatGone    seatState = iota
	seatWaiting           // in line: nothing was asked yet, or nothing more
	seatBusy
)

// join gives s a place, in line until work. why, if not empty, is why there was no
// free one. Then let is the connection that has lost its place to this one, for the
// asker to close; where it is nil, s has no place.
func (c *crowd) join(s *seat, socket net.Conn, from netip.Addr) (let net.Conn, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	src, loser := c.source(from), (*seat)(nil)
	switch {
	case src != nil && c.mostFrom > 0 && src.here >= c.mostFrom:
		loser, why = src.idle.first, forSource
	case c.most > 0 && c.here >= c.most:
		loser, why = c.idle.first, forTotal
	}
	if why != "" && loser == nil {
		c.refused++
		return nil, why
	}
	if loser != nil {
		c.let++
		let = loser.socket
		c.remove(loser)
	}
	s.crowd, s.socket, s.from, s.state = c, socket, src, seatWaiting
	c.here++
	if src != nil {
		src.here++
		c.sources[src.addr] = src
		src.idle.add(s)
	}
	c.idle.add(s)
	return let, why
}

// source finds what an address belongs to; nil = no source that counts.
func (c *crowd) source(a netip.Addr) *source {
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
	if src := c.sources[a]; src != nil {
		return src
	}
	return &source{addr: a, idle: line{of: 1}}
}

// remove takes a seat away; c.mu is held.
func (c *crowd) remove(s *seat) {
	if s.state == seatWaiting {
		c.unline(s)
	}
	s.state = seatGone
	c.here--
	if s.handed {
		c.handed--
	}
	if s.from != nil {
		if s.from.here--; s.from.here == 0 {
			delete(c.sources, s.from.addr)
		}
	}
}

func (c *crowd) unline(s *seat) {
	c.idle.drop(s)
	if s.from != nil {
		s.from.idle.drop(s)
	}
}

// shed takes the places of up to n connections that have waited longest and gives
// these to be closed.
func (c *crowd) shed(n int) (let []net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; n > 0 && c.idle.first != nil; n-- {
		c.let++
		let = append(let, c.idle.first.socket)
		c.remove(c.idle.first)
	}
	return let
}

// count gives how many connections there are, and how many of them net/http owns.
func (c *crowd) count() (here, handed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.here, c.handed
}

// CrowdStats are the connections of the HTTP and TLS listeners as they stand.
type CrowdStats struct {
	Connections   int   `json:"connections"`   // all
	Base          int   `json:"base"`          // of these, how many are with the base site
	Sources       int   `json:"sources"`       // that count: loopback does not
	Most          int   `json:"most"`          // connections that there may be; 0 = no bound
	MostPerSource int   `json:"mostPerSource"` // 0 = no bound
	Refused       int64 `json:"refused"`       // since the start
	Shed          int64 `json:"shed"`          // idle ones closed for the sake of others, since the start
}

// Stats counts connections for /debug/stats.
func (s *Server) Stats() CrowdStats {
	c := s.crowd
	c.mu.Lock()
	defer c.mu.Unlock()
	return CrowdStats{
		Connections: c.here, Base: c.handed, Sources: len(c.sources), Most: c.most, MostPerSource: c.mostFrom,
		Refused: c.refused, Shed: c.let,
	}
}

// wait puts the connection in line: it asks for nothing at the moment.
func (s *seat) wait() {
	if s.crowd == nil {
		return
	}
	s.crowd.mu.Lock()
	defer s.crowd.mu.Unlock()
	if s.state != seatBusy {
		return
	}
	s.state = seatWaiting
	s.crowd.idle.add(s)
	if s.from != nil {
		s.from.idle.add(s)
	}
}

// work takes the connection out of the line; false when it had to go already.
func (s *seat) work() bool {
	if s.crowd == nil {
		return true
	}
	s.crowd.mu.Lock()
	defer s.crowd.mu.Unlock()
	if s.state == seatWaiting {
		s.crowd.unline(s)
		s.state = seatBusy
	}
	return s.state == seatBusy
}

// hand notes that net/http owns the connection from now on.
func (s *seat) hand() {
	if s.crowd == nil {
		return
	}
	s.crowd.mu.Lock()
	defer s.crowd.mu.Unlock()
	if s.state != seatGone && !s.handed {
		s.handed = true
		s.crowd.handed++
	}
}

// leave gives the place back; more than one call is fine.
func (s *seat) leave() {
	if s.crowd == nil {
		return
	}
	s.crowd.mu.Lock()
	defer s.crowd.mu.Unlock()
	if s.state != seatGone {
		s.crowd.remove(s)
	}
}

// line is a queue of seats, the longest waiting first, linked through the seats so
// that it allocates nothing.
type line struct {
	of          int // which of a seat's links
	first, last *seat
}

type link struct{ before, after *seat }

func (l *line) add(s *seat) {
	s.links[l.of] = link{before: l.last}
	if l.last != nil {
		l.last.links[l.of].after = s
	} else {
		l.first = s
	}
	l.last = s
}

func (l *line) drop(s *seat) {
	k := s.links[l.of]
	if k.before != nil {
		k.before.links[l.of].after = k.after
	} else {
		l.first = k.after
	}
	if k.after != nil {
		k.after.links[l.of].before = k.before
	} else {
		l.last = k.before
	}
	s.links[l.of] = link{}
}
