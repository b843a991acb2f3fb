// Package shell is the text interface of an SSH session: the commands of ssh HOST COMMAND,
// and the live view of a session that comes with a forward. It knows nothing of SSH but the
// requests about terminals.
package shell

import (
	"context"
	"io"
	"log/slog"
	"time"

	"relay"
)

// Exit codes of sessions and commands; those of the command relay.
const (
	ExitOK          = 0
	ExitFailure     = 1
	ExitUsage       = 2
	ExitRefused     = 3
	ExitNotFound    = 4
	ExitTaken       = 5
	ExitUnreachable = 69
	ExitInterrupted = 130
)

const (
	// askTime bounds one call of the store or of delivery.
	askTime = 5 * time.Second
	// endTimeout is how long the end of the output waits for a peer that does not read.
	endTimeout = time.Second
)

// Accounts is what accounts own. store satisfies it.
type Accounts interface {
	Aliases(ctx context.Context, who relay.Actor) ([]relay.Alias, error)
	Keys(ctx context.Context, who relay.Actor, user string) ([]relay.Key, error)
	CreateLoginLink(ctx context.Context, who relay.Actor, user string, ttl time.Duration) (secret string, err error)
	CreateShare(ctx context.Context, who relay.Actor, id relay.ID, want relay.Share) (relay.Share, string, error)
	// MarkEvent changes what the owner of its alias noted about an event.
	MarkEvent(ctx context.Context, who relay.Actor, id relay.ID, change func(*relay.Mark)) error
	// CreateToken makes an API token of the actor's account with t's Name; without
	// scopes it may do what the actor may. The secret is given once.
	CreateToken(ctx context.Context, who relay.Actor, t relay.Token) (made relay.Token, secret string, err error)
	// StillValid is nil while the actor's credential stands, ErrNotFound when it was removed.
	StillValid(ctx context.Context, who relay.Actor) error
}

// Tunnels tells what happens to aliases. delivery satisfies it.
type Tunnels interface {
	// Status tells state, tunnel and queue of aliases, in their order.
	Status(ctx context.Context, aliases []relay.Alias) ([]relay.AliasStatus, error)
	// Subscribe opens the live feed for the actor; alias 0 = all it may see.
	Subscribe(ctx context.Context, who relay.Actor, alias int64, lastID string) (relay.Subscription, error)
}

// Reader reads events. store satisfies it.
type Reader interface {
	Events(ctx context.Context, who relay.Actor, f relay.Filter) (relay.Page, error)
	// Matches reports whether the filter selects one event; it reads bodies where needed.
	Matches(ctx context.Context, who relay.Actor, id relay.ID, f relay.Filter) (bool, error)
	Event(ctx context.Context, who relay.Actor, id relay.ID, maxBody int) (*relay.Event, error)
	// BodyPart reads part i of the request body (n = 0) or of the response body of
	// attempt n. Only after Event let the actor in.
	BodyPart(ctx context.Context, id relay.ID, n, i int) ([]byte, error)
}

// Replayer sends events again. delivery satisfies it.
type Replayer interface {
	// Replay asks for a new attempt and waits up to wait for its end. The event is
	// as it stands then; n is the number of the new attempt.
	Replay(ctx context.Context, who relay.Actor, id relay.ID, wait time.Duration) (e *relay.Event, n int, err error)
	// Release lets the inbound events queued while offline go out; says how many.
	Release(ctx context.Context, who relay.Actor, alias string) (int, error)
}

// Limits count what people do, together with the other fronts. Both give rate-limited
// when there was too much of it lately. api's satisfies it.
type Limits interface {
	// Create counts a login, share, token or key that the actor's account makes.
	Create(who relay.Actor) error
	// Replay counts a replay or release by the actor's credential.
	Replay(who relay.Actor) error
}

// Config is what the sessions of a server have in common.
type Config struct {
	Accounts Accounts
	Tunnels  Tunnels
	Read     Reader
	Replay   Replayer
	Limits   Limits
	Site     relay.Site
	Version  string // shown by the command version
	NoClaim  bool   // forwarding a free name does not claim it

	// FirstForward is how long a session waits for a forward: the two come through
	// different goroutines of x/crypto. FeedRetry is how long a session without the live feed
	// waits until it asks for it.
	FirstForward, FeedRetry time.Duration
}

// Session is the SSH session that a Shell runs in. Its methods are safe for concurrent use.
type Session interface {
	// Go runs f in a goroutine that the end of the connection waits for.
	Go(where string, f func())
	// Stop asks the session to end with an exit code.
	Stop(code int)
	// Exit returns the code that the session was asked to end with, or otherwise.
	Exit(otherwise int) int
	// Stopping reports whether the server is about to stop.
	Stopping() bool
	// RequestsPending reports whether a global request of the connection waits or runs.
	RequestsPending() bool
	// SubscribeNotices opens Shell.Notices, and returns what was said before: what is online
	// and what was refused.
	SubscribeNotices() (online, refused []Notice)
	// Attached returns the names of the aliases that the connection has attached.
	Attached() []string
	// Holds reports whether the connection attaches, or is about to attach, an alias.
	Holds(alias int64) bool
}

// Shell runs one command line, or the live view.
type Shell struct {
	*Config
	Session        Session
	Ctx            context.Context // ends with the session
	Who            relay.Actor
	Log            *slog.Logger
	Stdout, Stderr io.Writer
	Screen         *Screen
	Keys           <-chan string // what ReadKeys has read
	Notices        *Queue[Notice]

	// OutputStuck says, after Run, that a write to Stdout still waits for the peer.
	OutputStuck bool
}

// Run runs a command line, "" = the live view, and returns the exit code.
func (s *Shell) Run(command string) int {
	s.Stdout, s.Stderr = s.Screen.Writer(s.Stdout), s.Screen.Writer(s.Stderr)
	k := &call{s: s, flags: map[string]string{}, filterFlags: map[string][]string{}}
	words, err := splitWords(command)
	switch {
	case err != nil:
		return k.fail(usage(err.Error()))
	case len(words) == 0:
		return (&live{Shell: s, out: newOutput(), shown: map[string]bool{}}).run()
	}
	return k.dispatch(words)
}

// ask returns the context of one call of the store or of delivery.
func (s *Shell) ask() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.Ctx, askTime)
}
