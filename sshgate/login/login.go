// Package login authenticates users by their SSH key: the callbacks of the handshake, the enrolment of a key
// that waits for approval, the greeting, and the result of each login.
//
// The identity of a connection comes only from the permissions that are set after a signature was verified.
package login

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/crypto/ssh"
	"golang.org/x/sync/semaphore"

	"relay"
	"relay/admission"
	"relay/link"
)

// Accounts finds the accounts of keys and tokens, registers keys, and records logins. Package store implements it.
type Accounts interface {
	// Aliases returns the aliases that the actor may use.
	Aliases(ctx context.Context, who relay.Actor) ([]relay.Alias, error)
	// KeyOwner returns the actor (kind ssh) of a registered key; ErrNotFound for an unknown key.
	KeyOwner(ctx context.Context, fingerprint string) (relay.Actor, error)
	// NoteLogin records a login with a proven key from the address remote in the audit log. It never
	// blocks.
	NoteLogin(who relay.Actor, remote string)
	// NoteRefusedLogin records refused keys, by their fingerprints, in the audit log. It never blocks.
	NoteRefusedLogin(keys, detail string)
	// StillValid returns nil while the actor's credential is valid.
	StillValid(ctx context.Context, who relay.Actor) error
	// AddKey registers a public key, one authorized_keys line, for the account user ("" = the actor's own). The
	// error has the code conflict if any account has the key.
	AddKey(ctx context.Context, who relay.Actor, user, name, authorizedKey string) (relay.Key, error)
	// AddEnrolment makes a proven key wait until a user approves it with link and code.
	AddEnrolment(ctx context.Context, e relay.Enrolment) (link, code string, err error)
	// EndEnrolment ends an enrolment, unless how is "" or the enrolment has ended. It returns the result; ""
	// = the enrolment still waits.
	EndEnrolment(ctx context.Context, link, how string) (ended string, err error)
	// TokenOwner returns the actor of an API token; ErrNotFound for an unknown or expired token.
	TokenOwner(ctx context.Context, secret string) (relay.Actor, error)
}

// Options configure Logins. All fields are required.
type Options struct {
	Accounts Accounts
	// Status returns the states and queues of aliases.
	Status func(ctx context.Context, aliases []relay.Alias) ([]relay.AliasStatus, error)
	// Create counts a key that the actor registers for its account. It returns an error with the code
	// rate-limited if the account has reached its limit.
	Create  func(who relay.Actor) error
	Site    relay.Site
	NoClaim bool // the forward of a name that is no alias yet is refused
	// HandshakeTimeout bounds handshake and login together, EnrolTime the wait for a user.
	HandshakeTimeout, EnrolTime time.Duration
	// RightsVersion returns the number of published changes of rights.
	RightsVersion func() int64
	Enrolled      func(how string) // counts the result of an enrolment
	Log           *slog.Logger
}

// Logins holds the state that the logins of all connections share.
type Logins struct {
	o        Options
	lookups  *semaphore.Weighted // a login holds it during a store query, see BeginLookup
	waiting  atomic.Int64        // logins that wait for lookups
	failures *failures
	commands *lru.Cache[visitor, time.Time] // time of the last session with a command, by account and source
}

// visitor is an account at a source address.
type visitor struct {
	account int64
	source  netip.Addr
}

// maxVisitors is the largest number of visitors whose last command is remembered.
const maxVisitors = 1000

// New returns Logins with the given options.
func New(o Options) *Logins {
	commands, err := lru.New[visitor, time.Time](maxVisitors)
	if err != nil {
		panic(err) // only a size below 1 is an error
	}
	return &Logins{o: o, lookups: semaphore.NewWeighted(maxLookups), failures: newFailures(), commands: commands}
}

// Waiting returns the number of logins that wait for their turn to query the store.
func (l *Logins) Waiting() int64 { return l.waiting.Load() }

// Slot counts a connection against the limits of connections.
type Slot interface {
	// ReserveAccount counts the connection for an account; false if the account has too many connections.
	ReserveAccount(account int64) bool
	// BeginPrompt notes that the login waits for a user; false if too many logins wait.
	BeginPrompt() bool
	// EndPrompt notes that the login no longer waits for a user.
	EndPrompt()
	// LoggedIn is called once, when the login has succeeded.
	LoggedIn()
}

// Login is the login of one connection.
type Login struct {
	all    *Logins
	o      *Options
	conn   *link.Conn
	slot   Slot
	remote netip.AddrPort
	peer   context.Context // ends when a read of the connection has failed, or the connection has ended

	version       string                    // version line of the peer; set before the handshake
	ciphers       []string                  // AES-GCM ciphers that the peer offers; nil = none, or unknown
	rightsVersion int64                     // Options.RightsVersion before the lookup of the key's owner
	evicted       chan struct{}             // closed when this login is evicted while it waits for its user (an approval or a token)
	lookups       atomic.Int64              // number of store queries without an answer yet
	enrolment     atomic.Pointer[enrolment] // the enrolment that the login waits for

	mu       sync.Mutex
	timer    *time.Timer // nil before Begin
	deadline time.Time   // end of the time for the login
	over     bool        // the login succeeded, or the connection has ended
	loggedIn bool
	result   Result  // why the login has not succeeded
	tried    refusal // attempts so far, for the log
}

// Login returns the login of a connection. peer ends when a read of the connection has failed.
func (l *Logins) Login(conn *link.Conn, slot Slot, remote netip.AddrPort, peer context.Context) *Login {
	return &Login{all: l, o: &l.o, conn: conn, slot: slot, remote: remote, peer: peer, evicted: make(chan struct{})}
}

// Began notes that a session of the account begins, and whether it runs a command. After a command, the next
// greetings are short.
func (g *Login) Began(who relay.Actor, command bool) {
	if v := (visitor{who.Account, g.remote.Addr()}); command {
		g.all.commands.Add(v, time.Now())
	} else {
		g.all.commands.Remove(v)
	}
}

// Begin starts the time limit of the login.
func (g *Login) Begin(limit time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.deadline = time.Now().Add(limit)
	g.timer = time.AfterFunc(limit, g.timedOut)
}

// Extend sets the time limit for the rest of the login. A login may take at most EnrolTime plus
// HandshakeTimeout in total.
func (g *Login) Extend(d time.Duration) {
	d = min(d, g.o.EnrolTime+g.o.HandshakeTimeout-g.conn.Sock.Age())
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.over {
		g.deadline = time.Now().Add(d)
		g.timer.Reset(d)
	}
}

// SetVersion notes the version line of the peer, the first line that it has sent.
func (g *Login) SetVersion(sent string) {
	line, _, _ := strings.Cut(sent, "\n")
	g.version = strings.TrimSuffix(line, "\r")
}

// SetCiphers notes the AES-GCM ciphers that the peer offers; nil = none, or unknown.
func (g *Login) SetCiphers(list []string) { g.ciphers = list }

// RightsVersion returns the value of Options.RightsVersion before the lookup of the key's owner.
func (g *Login) RightsVersion() int64 { return g.rightsVersion }

// loginProgress is the longest silence of a client at which its login still counts as making progress.
const loginProgress = 2 * time.Second

// Silent returns the time since the last byte of the peer, or 0 while the login waits for the store.
func (g *Login) Silent() time.Duration {
	if g.lookups.Load() > 0 {
		return 0
	}
	return g.conn.Sock.SilentFor()
}

// timedOut closes the connection of a login that takes too long. If the client was still sending, or the
// store has not answered, the reason is a slow node or line, so the source gets no penalty.
func (g *Login) timedOut() {
	g.mu.Lock()
	late := !g.over && !time.Now().Before(g.deadline)
	refused := g.result == ResultRefused
	g.mu.Unlock()
	if !late {
		return
	}
	switch {
	case refused: // after refused keys, a timeout must not add less to the penalty than a refusal
	case g.Silent() < loginProgress:
		g.SetResult(ResultUnavailable)
	default:
		g.SetResult(ResultTimeout)
	}
	g.conn.Close(link.LoginTimeout)
}

// Flooded notes that the peer has sent too many bytes before its login.
func (g *Login) Flooded() { g.SetResult(ResultRefused) }

// SetResult notes the current reason why the login has not succeeded. The last call counts, unless an earlier reason
// was ResultUnavailable.
func (g *Login) SetResult(r Result) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.result != ResultUnavailable && !g.loggedIn {
		g.result = r
	}
}

// Succeed notes that the login succeeded, and stops its time limit.
func (g *Login) Succeed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.loggedIn = true
	g.end()
}

// End is called when the connection has ended.
func (g *Login) End() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end()
}

func (g *Login) end() {
	g.over = true
	if g.timer != nil {
		g.timer.Stop()
	}
}

// succeeded is called when a key has been accepted.
func (g *Login) succeeded() {
	g.Succeed()
	g.conn.Sock.LoggedIn()
	g.slot.LoggedIn()
}

// Outcome returns the result of the login of an ended connection, and logs a refused login.
func (g *Login) Outcome() (loggedIn bool, result Result) {
	g.mu.Lock()
	loggedIn, result, tried := g.loggedIn, g.result, g.tried
	g.mu.Unlock()
	if !loggedIn && (result == ResultRefused || result == ResultTimeout) && tried.err != "" {
		g.tell(tried)
	}
	return loggedIn, result
}

// EvictPrompt ends the login while it waits for a user, to make way for another login.
func (g *Login) EvictPrompt() {
	close(g.evicted)
	if g.enrolment.Load() == nil { // a prompt for a token cannot be interrupted
		g.conn.Close(link.Evicted)
	}
}

// Enrolling reports whether a proven key waits for approval.
func (g *Login) Enrolling() bool { return g.enrolment.Load() != nil }

// Nudge makes a login that waits for the approval of a key ask the store again; "" = any key.
func (g *Login) Nudge(fingerprint string) {
	if w := g.enrolment.Load(); w != nil && (fingerprint == "" || w.Fingerprint == fingerprint) {
		w.nudge()
	}
}

// Identity returns the actor that has logged in. For a connection that only registers a key, enrolled has the
// messages about the key. ok is false if no signature was verified.
func Identity(p *ssh.Permissions) (who relay.Actor, enrolled []string, ok bool) {
	if p == nil {
		return who, nil, false
	}
	who, ok = p.ExtraData[actorKey{}].(relay.Actor)
	enrolled, _ = p.ExtraData[enrolledKey{}].([]string)
	return who, enrolled, ok
}

// Result is the reason why a connection has not logged in.
type Result int

// The results of connections without a login.
const (
	ResultSilent      Result = iota // the peer sent nothing, as health checks do
	ResultNoAttempt                 // the peer sent something, but did not try to log in
	ResultUnapproved                // a proven key was not approved
	ResultUnavailable               // the store could not answer, a limit was reached, or the node was too busy
	ResultRefused                   // relayd refused the login
	ResultTimeout                   // the time for the login ended
)

// results holds the name of each result in the metrics, and its penalty for the source.
var results = [...]struct {
	name    string
	penalty time.Duration
}{
	ResultSilent:      {"none", 0},
	ResultNoAttempt:   {"none", admission.PenaltyNothing},
	ResultUnapproved:  {"unapproved", admission.PenaltyNothing},
	ResultUnavailable: {"unavailable", 0},
	ResultRefused:     {"refused", admission.PenaltyRefused},
	ResultTimeout:     {"timeout", admission.PenaltySlow},
}

// Name returns the label of the result in the metrics.
func (r Result) Name() string { return results[r].name }

// Penalty returns the time that the result adds to the penalty of the source.
func (r Result) Penalty() time.Duration { return results[r].penalty }

// Names lists the names of all results.
func Names() (names []string) {
	for _, r := range results {
		names = append(names, r.name)
	}
	return names
}
