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
}

// ActorKind says how an actor was authenticated.
type ActorKind string

// The kinds of actors.
const (
	ActorUser   ActorKind = "user"   // dashboard session
	ActorToken  ActorKind = "token"  // API
	ActorShare  ActorKind = "share"  // holder of a share token
	ActorSSH    ActorKind = "ssh"    // verified public key
	ActorQueue  ActorKind = "queue"  // automatic requeue
	ActorSystem ActorKind = "system" // operator commands and the server itself; sees everything
)

// Actor is the one on whose behalf something is done. Every store query has its account
// in the WHERE clause, so that a forgotten check returns nothing.
type Actor struct {
	Account     int64
	AccountName string
	Admin       bool
	Kind        ActorKind
	Name        string // shown: account name, token name or id
	Scopes      Scope
	Alias       int64 // 0 = all of the account
	AliasName   string
	Credential  string    // id of the token, session, key or share that proved it
	ExpiresAt   time.Time // of the credential; zero = never
	LoggedInAt  time.Time // of a dashboard session: when it began; zero for every other credential
	Shared      ID        // of ActorShare: the one event
}

// System is the actor of operator commands.
func System() Actor { return Actor{Kind: ActorSystem, Name: "system", Admin: true, Scopes: AllScopes} }

// String is how an attempt or audit row names the actor.
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
	AllScopes Scope = 1<<iota - 1
)

var scopeNames = []string{
	"events:read", "events:replay", "events:write", "events:share",
	"aliases:read", "aliases:write", "account",
}

// Has tells whether every scope of want is in s.
func (s Scope) Has(want Scope) bool { return s&want == want }

// Names lists the scopes in their fixed order.
func (s Scope) Names() []string {
	names := []string{}
	for i, n := range scopeNames {
		if s&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return names
}

// ParseScopes reads scope names; none at all mean every scope.
func ParseScopes(names []string) (Scope, error) {
	var s Scope
next:
	for _, n := range names {
		for i, known := range scopeNames {
			if n == known {
				s |= 1 << i
				continue next
			}
		}
		return 0, Errorf(CodeValidationFailed, "unknown scope %q; scopes are %s", n, strings.Join(scopeNames, " "))
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
	Type          string // such as ssh-ed25519
	AuthorizedKey string // without comment
	CreatedAt     time.Time
	LastUsedAt    time.Time
}

// Right is what an SSH connection goes on by: a registered key of an account, or, with
// Alias, the permission of the account to have a tunnel of that alias.
type Right struct {
	Account int64
	Key     string // id; "" with Alias
	Alias   int64  // id; 0 with Key
}

// Enrolment is a key whose holder has proven it and waits for the approval of somebody
// who is signed in. It does not have the code, which only the holder of the key sees.
type Enrolment struct {
	Link        string // last part of the page's address
	Fingerprint string // SHA256:…
	KeyType     string // such as ssh-ed25519
	Remote      string // source address
	Client      string // version text of the SSH client
	RequestedAt time.Time
	ExpiresAt   time.Time
}

// Token is an API token; its secret is shown once and stored as a hash.
type Token struct {
	ID          string // tok_…
	Account     int64
	AccountName string
	Name        string
	Scopes      Scope
	Alias       string // "" = all of the account
	CreatedAt   time.Time
	ExpiresAt   time.Time // zero = never
	LastUsedAt  time.Time
	// Renewal is how long after each use the token expires; 0 means that use does not
	// change ExpiresAt. It is set when the token is made.
	Renewal time.Duration
}

// Share is a link with a token that lets its holder replay one event.
type Share struct {
	ID        string // shr_…
	Event     ID
	View      bool // the holder may also see headers and body, secrets masked
	OneUse    bool // the first replay ends the share
	CreatedAt time.Time
	ExpiresAt time.Time // zero = never
	Uses      int
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

// AuditEntry says who did what when.
type AuditEntry struct {
	ID     int64
	At     time.Time
	Actor  string
	Action string // such as token.add
	Target string
	Detail string
}
