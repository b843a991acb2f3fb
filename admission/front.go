// Package admission decides which connections relayd accepts and keeps. One Limiter counts the
// connections of all listeners against the file descriptors of the process. Each Front, one for HTTP and
// one for SSH, counts its own connections in total, by source and by account, and chooses the connection
// that a new one replaces. Penalties reject sources of failed logins for a while.
package admission

import (
	"cmp"
	"errors"
	"math"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Class is the class of a connection. It decides whether a new connection may evict this one.
type Class int

// Classes of connections. Connections of the classes Unknown and Idle give way to new ones. The others
// do not, except logins while too many are in progress: see BeginPrompt and AcquireForNode.
const (
	// Unknown has not logged in. Among the connections of this class, the one whose peer has been silent
	// for longest is evicted first.
	Unknown Class = iota
	// Idle waits for a request of its peer. Among several, the connection that has waited longest is
	// evicted first.
	Idle
	// Busy carries a request.
	Busy
	// Prompting is a login that waits for a user.
	Prompting
	// LoggedIn has logged in.
	LoggedIn
	// NodeLogin is a connection that claims, or may be about to claim, to come from another node. Node is
	// a connection that has proven it. Neither counts in the limits of clients, so that nodes reach
	// each other however many clients there are.
	NodeLogin
	Node
	classes
)

// Reasons for which a connection is refused or evicted.
const (
	ReasonPenalty         = "penalty"
	ReasonTotal           = "total"           // Limits.Total is reached
	ReasonSource          = "source"          // Limits.PerSource is reached
	ReasonUnauthenticated = "unauthenticated" // Limits.Unknown is reached
	ReasonFiles           = "files"           // no file descriptors left for the process, or for this front
)

// Conn is a connection that has a slot.
type Conn interface {
	// Evicted ends the connection, because another one has taken its place for the given reason. It must
	// not block.
	Evicted(reason string)
}

// Slot is the place of one connection. The exported fields are set once, before Acquire. The methods of
// the zero value do nothing. The methods are safe for concurrent use.
type Slot struct {
	Conn Conn
	// Silent returns the time since the last byte from the peer; 0 while the peer waits for this server.
	// It may be nil for connections that are never Unknown.
	Silent func() time.Duration
	Source netip.Prefix // the zero value means that the source is unknown; Front.Sources does not count it
	// Shared marks loopback, trusted proxies and other nodes. Many users come from such a source, so no
	// limit per source applies.
	Shared bool
	// OfNode marks the known addresses of other nodes. Logins from them are not limited by source, and are
	// evicted only if there are no other logins.
	OfNode bool

	front   *Front // nil = the slot has no place
	class   Class
	since   uint64 // number that orders slots by the time at which their class was set
	places  [2]place
	account int64 // account that the connection is counted for; 0 = none yet
}

// Counts counts connections by class.
type Counts [classes]int

// All returns the number of connections, without those of other nodes.
func (n *Counts) All() int { return n[Unknown] + n[Idle] + n[Busy] + n[Prompting] + n[LoggedIn] }

// Limiter counts the connections of several fronts against the file descriptors of the process; each
// connection uses one. It is safe for concurrent use.
type Limiter struct {
	most, mostOfOne int // file descriptors for the clients of all fronts, and of one front

	mu     sync.Mutex
	fronts []*Front
	open   int // connections of clients, at all fronts
	moves  uint64
}

// NewLimiter makes a Limiter without fronts, for a process that may open the given number of files; 0 =
// unknown. A single front never gets the last eighth of the files, so that HTTP connections cannot
// prevent all logins, nor logins all HTTP connections.
func NewLimiter(files int) *Limiter {
	l := &Limiter{most: math.MaxInt, mostOfOne: math.MaxInt}
	if files > 0 {
		l.most = forClients(files)
		l.mostOfOne = l.most - l.most/8
	}
	return l
}

// MostOfOne returns the largest number of connections that one front may have; math.MaxInt = no limit.
func (l *Limiter) MostOfOne() int { return l.mostOfOne }

// reservedFiles is the number of file descriptors that clients may not use. They are for other nodes, the
// database, the spool and logs.
const reservedFiles = 512

// forClients returns the part of the given number of files that clients may use.
func forClients(files int) int { return max(files-reservedFiles, files/2) }

// Limits are the numbers of connections that a Front allows. 0 is no limit, unless the comment
// says otherwise.
type Limits struct {
	Total, PerSource, PerAccount int
	// Unknown is the maximum number of connections that have not logged in yet.
	Unknown int
	// Prompts is the maximum number of logins that may wait for a user; 0 = 256.
	Prompts int
	// Elsewhere returns the number of connections that an account has at other nodes; nil = there are no
	// other nodes.
	Elsewhere func(account int64) int
}

const (
	// maxPromptsPerSource is the maximum number of logins of one unshared source that may wait for a
	// user.
	maxPromptsPerSource = 8
	// maxNodeLogins bounds the connections that are logging in as other nodes. maxNodeLoginsPerSource
	// bounds the connections of this kind from one source that is not a known node.
	maxNodeLogins, maxNodeLoginsPerSource = 64, 8
)

// Front counts the connections of one protocol, in total, by source and by account. When no place is free, a
// new connection takes the place of a connection that is idle or has not logged in. Therefore silent sockets, however
// many, do not prevent logins; OpenSSH's MaxStartups drops at random for the same reason. A Front does not close
// connections: the code that uses it closes those that it returns. It is safe for concurrent use.
type Front struct {
	limiter *Limiter
	limits  Limits

	// The other fields are guarded by limiter.mu.
	all        *group
	sources    map[netip.Prefix]*group // the groups of sources that have connections
	accounts   map[int64]int
	prompting  map[*Slot]struct{}
	nodeLogins map[*Slot]struct{}
}

// Front adds a front with the given limits to the limiter.
func (l *Limiter) Front(limits Limits) *Front {
	for _, limit := range []*int{&limits.Total, &limits.PerSource, &limits.PerAccount, &limits.Unknown} {
		if *limit <= 0 {
			*limit = math.MaxInt
		}
	}
	limits.Prompts = cmp.Or(limits.Prompts, 256)
	f := &Front{
		limiter: l, limits: limits,
		all: newGroup(), sources: map[netip.Prefix]*group{}, accounts: map[int64]int{},
		prompting: map[*Slot]struct{}{}, nodeLogins: map[*Slot]struct{}{},
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fronts = append(l.fronts, f)
	return f
}

// Acquire takes a place for a new connection of class Unknown or Idle. reason is empty if a place was free.
// Otherwise evicted is the connection whose place the new one has taken, or nil if the new one gets no place. The
// code that called Acquire has to end evicted or, if evicted is nil, the new connection.
func (f *Front) Acquire(s *Slot, class Class) (evicted *Slot, reason string) {
	l := f.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	own := f.sources[s.Source]
	switch {
	case own != nil && !s.Shared && own.counts.All() >= f.limits.PerSource:
		reason, evicted = ReasonSource, own.firstToGo()
	case f.all.counts.All() >= f.limits.Total:
		reason, evicted = ReasonTotal, f.firstToGo()
	case f.all.counts[Unknown] >= f.limits.Unknown:
		reason, evicted = ReasonUnauthenticated, f.firstToGo()
	case l.open >= l.most, f.all.counts.All() >= l.mostOfOne:
		reason, evicted = ReasonFiles, f.firstToGo()
		if evicted == nil && l.open >= l.most && f.all.counts.All() < l.mostOfOne {
			evicted = l.firstToGo()
		}
	}
	if reason != "" {
		if evicted == nil {
			return nil, reason
		}
		evicted.remove()
	}
	s.enter(f, class)
	return evicted, reason
}

// firstToGo returns the connection of the front that a new connection evicts, or nil. Among connections
// without a login it chooses one from the source with the most of them.
func (f *Front) firstToGo() *Slot {
	from := f.all
	for s := range f.all.waiting() {
		if s.class == Idle {
			break // a front has either idle connections or logins
		}
		if own := s.places[1].in; from == f.all || own.counts[Unknown] > from.counts[Unknown] {
			from = own
		}
	}
	return from.firstToGo()
}

// firstToGo returns the connection of all fronts that a new connection evicts, or nil.
func (l *Limiter) firstToGo() *Slot {
	for _, f := range l.fronts {
		if s := f.firstToGo(); s != nil {
			return s
		}
	}
	return nil
}

// shedPerFailure is the number of connections that Shed ends after one failed accept.
const shedPerFailure = 16

// Shed ends up to shedPerFailure connections, those of this front first, if err, the error of a failed
// accept, reports a shortage of descriptors or memory. It returns the number of ended connections.
func (f *Front) Shed(err error) int {
	short := func(e error) bool { return errors.Is(err, e) }
	if !slices.ContainsFunc([]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}, short) {
		return 0
	}
	l := f.limiter
	var evicted []*Slot
	l.mu.Lock()
	for len(evicted) < shedPerFailure {
		s := cmp.Or(f.firstToGo(), l.firstToGo())
		if s == nil {
			break
		}
		s.remove()
		evicted = append(evicted, s)
	}
	l.mu.Unlock()
	for _, s := range evicted {
		s.Conn.Evicted(ReasonFiles)
	}
	return len(evicted)
}

// AcquireForNode takes a place for a connection that may come from another node. isNew is set if the connection
// has found no place as a client. Otherwise it has a place and has claimed to come from a node. If too many
// such connections are logging in, evicted is one of them, and the code that called AcquireForNode has to end
// it. ok is false if this connection gets no place.
func (f *Front) AcquireForNode(s *Slot, isNew bool) (evicted *Slot, ok bool) {
	f.limiter.mu.Lock()
	defer f.limiter.mu.Unlock()
	if own := f.sources[s.Source]; own != nil && !s.OfNode && !s.Shared && own.counts[NodeLogin] >= maxNodeLoginsPerSource {
		return nil, false
	}
	if len(f.nodeLogins) >= maxNodeLogins {
		if evicted = oldestOfBusiest(f.nodeLogins); evicted != nil {
			evicted.remove()
		}
	}
	if isNew {
		s.enter(f, NodeLogin)
		return evicted, true
	}
	return evicted, s.move(NodeLogin)
}

// BeginPrompt notes that the login waits for a user. ok is false if too many logins of its source wait. If too
// many wait in total, it evicts the oldest login from the network with the most of them, provided that the
// network of the new login has fewer. Otherwise waiting attackers could lock out all other users. The code that
// called BeginPrompt has to end the evicted login.
func (f *Front) BeginPrompt(s *Slot) (evicted *Slot, ok bool) {
	f.limiter.mu.Lock()
	defer f.limiter.mu.Unlock()
	if own := f.sources[s.Source]; own != nil && !s.Shared && own.counts[Prompting] >= maxPromptsPerSource {
		return nil, false
	}
	if len(f.prompting) >= f.limits.Prompts {
		if evicted = oldestOfBusiest(f.prompting); evicted == nil || count(f.prompting, evicted) <= count(f.prompting, s) {
			return nil, false
		}
		evicted.remove()
	}
	return evicted, s.move(Prompting)
}

// oldestOfBusiest returns the slot that has been in its class the longest, in the network with the most
// slots of this class. It chooses slots of known nodes last.
func oldestOfBusiest(slots map[*Slot]struct{}) (oldest *Slot) {
	counts := map[netip.Prefix]int{}
	for s := range slots {
		counts[network(s.Source)]++
	}
	busy := func(s *Slot) int {
		if s.OfNode {
			return 0
		}
		return counts[network(s.Source)]
	}
	for s := range slots {
		if oldest == nil || busy(s) > busy(oldest) || busy(s) == busy(oldest) && s.since < oldest.since {
			oldest = s
		}
	}
	return oldest
}

// count returns the number of slots in the network of s.
func count(slots map[*Slot]struct{}, s *Slot) (n int) {
	for other := range slots {
		if network(other.Source) == network(s.Source) {
			n++
		}
	}
	return n
}

// network returns the network of a source. It is as large as the largest network that providers give
// one customer, who can use each address in it as a source.
func network(source netip.Prefix) netip.Prefix {
	bits := 24
	if source.Addr().Is6() {
		bits = 48
	}
	p, _ := source.Addr().Prefix(bits)
	return p
}

// Counts returns the number of connections by class.
func (f *Front) Counts() Counts {
	f.limiter.mu.Lock()
	defer f.limiter.mu.Unlock()
	return f.all.counts
}

// Sources returns the number of different sources; connections without a source are not counted.
func (f *Front) Sources() int {
	f.limiter.mu.Lock()
	defer f.limiter.mu.Unlock()
	n := len(f.sources)
	if f.sources[netip.Prefix{}] != nil {
		n--
	}
	return n
}

// Limits returns the limit of all connections and the limit of one source; 0 = none.
func (f *Front) Limits() (total, perSource int) {
	number := func(limit int) int {
		if limit == math.MaxInt {
			return 0
		}
		return limit
	}
	return number(min(f.limits.Total, f.limiter.mostOfOne)), number(f.limits.PerSource)
}
