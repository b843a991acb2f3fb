package relay

import (
	"strings"
	"time"
)

// Account is a person or team that owns aliases.
type Account struct {
	ID        int64
	Name      string
	Admin     bool
	CreatedAt time.Time
	// MaxStorage bounds the stored bytes of all aliases of the account: nil = the server's default, 0 =
	// no limit.
	MaxStorage *int64
	// MaxQueue bounds the queued attempts of all aliases of the account: nil = the server's default, 0
	// = no limit.
	MaxQueue *int64
}

// ActorKind is the way in which an actor was authenticated.
type ActorKind string

// The kinds of actor.
const (
	ActorUser   ActorKind = "user"   // dashboard session
	ActorToken  ActorKind = "token"  // API
	ActorShare  ActorKind = "share"  // holder of a share token
	ActorSSH    ActorKind = "ssh"    // verified public key
	ActorQueue  ActorKind = "queue"  // the relay itself, when it queues an interrupted delivery again
	ActorSystem ActorKind = "system" // operator commands and the server itself; may see everything
)

// Actor is the user or program on whose behalf an operation is done. Every store query names the
// account of its actor in the WHERE clause: even if a check is missing, the query finds no rows of
// other accounts.
type Actor struct {
	Account     int64
	AccountName string
	Admin       bool
	Kind        ActorKind
	Name        string // shown to users: the name of the account or of the token, or the id of the share
	Scopes      Scope
	Alias       int64 // 0 = all aliases of the account
	AliasName   string
	Credential  string    // id of the token, session, key or share that authenticated the actor
	ExpiresAt   time.Time // time at which the credential expires; zero = never
	LoggedInAt  time.Time // start of the dashboard session; zero for every other credential
	Via         string    // program that acts for the actor, such as "mcp claude-code 2.1"; the program gives this name itself. "" = none
	Shared      ID        // the only event that an ActorShare may see
}

// System returns the actor of operator commands.
func System() Actor { return Actor{Kind: ActorSystem, Name: "system", Admin: true, Scopes: AllScopes} }

// BufferAccount returns the account against whose limit the bytes count that the relay buffers for the actor. It
// is 0 for the holder of a share, who has no account.
func (a Actor) BufferAccount() int64 {
	if a.Kind == ActorShare {
		return 0
	}
	return a.Account
}

// String returns the name by which attempts and audit entries show the actor.
func (a Actor) String() string {
	switch a.Kind {
	case ActorShare, ActorQueue, ActorSystem:
		return string(a.Kind)
	default:
		return string(a.Kind) + ":" + a.Name
	}
}

// Scope is a set of permissions.
type Scope uint32

// The scopes.
const (
	ScopeEventsRead Scope = 1 << iota
	ScopeEventsReplay
	ScopeEventsWrite
	ScopeEventsShare
	ScopeAliasesRead
	ScopeAliasesWrite
	ScopeAccount
	ScopeEventsSend       // the bits are stored in tokens, so a new scope must come last
	AllScopes       Scope = 1<<iota - 1
)

var scopeNames = []struct {
	scope Scope
	name  string
}{
	{ScopeEventsRead, "events:read"},
	{ScopeEventsReplay, "events:replay"},
	{ScopeEventsSend, "events:send"},
	{ScopeEventsWrite, "events:write"},
	{ScopeEventsShare, "events:share"},
	{ScopeAliasesRead, "aliases:read"},
	{ScopeAliasesWrite, "aliases:write"},
	{ScopeAccount, "account"},
}

// Has reports whether s contains every scope of the set want.
func (s Scope) Has(want Scope) bool { return s&want == want }

// Names lists the scopes in the order of scopeNames.
func (s Scope) Names() []string {
	names := []string{}
	for _, known := range scopeNames {
		if s.Has(known.scope) {
			names = append(names, known.name)
		}
	}
	return names
}

// ParseScopes parses scope names. An empty list means every scope.
func ParseScopes(names []string) (Scope, error) {
	var s Scope
next:
	for _, n := range names {
		for _, known := range scopeNames {
			if n == known.name {
				s |= known.scope
				continue next
			}
		}
		return 0, Errorf(CodeValidationFailed, "unknown scope %q; scopes are %s", n, strings.Join(AllScopes.Names(), " "))
	}
	if len(names) == 0 {
		s = AllScopes
	}
	return s, nil
}

// Key is a registered SSH public key.
type Key struct {
	ID            string // key_…
	Account       int64
	AccountName   string
	Name          string
	Fingerprint   string // SHA256:…
	Type          string // key type, such as ssh-ed25519
	AuthorizedKey string // the line of authorized_keys, without its comment
	CreatedAt     time.Time
	LastUsedAt    time.Time
}

// Right is a permission on which an SSH connection depends: a registered key of an account or, with Alias,
// the permission of the account to have a tunnel of that alias. When the right is revoked, the connection
// ends.
type Right struct {
	Account int64
	Key     string // id of the key; "" if Alias is set
	Alias   int64  // id of the alias; 0 if Key is set
}

// Enrolment is a request to register an SSH key. The client has proven that it holds the private key, and
// waits until a logged-in user approves the request. To approve, the user types a code. An Enrolment does not
// contain that code, because only the client may see it.
type Enrolment struct {
	Link        string // last part of the URL of the page on which a user approves the enrolment
	Fingerprint string // SHA256:…
	KeyType     string // key type, such as ssh-ed25519
	Remote      string // address of the client
	Client      string // version text of the SSH client
	RequestedAt time.Time
	ExpiresAt   time.Time

	AuthorizedKey string // the key as a line of authorized_keys
}

// The ways in which an enrolment ends.
const (
	EnrolmentApproved = "approved"
	EnrolmentExpired  = "expired"
	EnrolmentMistyped = "mistyped" // too many wrong codes
	EnrolmentReplaced = "replaced" // the same key has started a new enrolment
	EnrolmentLeft     = "left"     // the client has disconnected
)

// Token is an API token; its secret is shown once and stored as a hash.
type Token struct {
	ID          string // tok_…
	Account     int64
	AccountName string
	Name        string
	Scopes      Scope
	Alias       string // "" = all aliases of the account
	CreatedAt   time.Time
	ExpiresAt   time.Time // zero = never
	LastUsedAt  time.Time
	// Renewal is the time from a use of the token to its expiry; 0 means that a use
	// does not change ExpiresAt. It is set when the token is made.
	Renewal time.Duration
}

// Share is a link with a token that lets its holder replay one event.
type Share struct {
	ID        string // shr_…
	Event     ID
	View      bool // the holder may also see headers and body, with secrets masked
	OneUse    bool // the first replay ends the share
	CreatedAt time.Time
	ExpiresAt time.Time // zero = never
	Uses      int

	Alias, Owner string // name of the alias of the event, and of the account that owns it
}

// Session is a dashboard login.
type Session struct {
	ID         string // ses_…
	Account    int64
	CreatedAt  time.Time
	LastUsedAt time.Time
	ExpiresAt  time.Time
	Remote     string
	UserAgent  string
}

// AuditEntry records one action of an actor.
type AuditEntry struct {
	ID     int64
	At     time.Time
	Actor  string
	Via    string // Actor.Via of the actor
	Action string // name of the action, such as token.add
	Target string
	Detail string
}
