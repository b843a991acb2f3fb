// Package shell is the text interface of an SSH session: the commands of ssh HOST COMMAND, and the live view
// of a session with a forward. Of the SSH protocol, it handles only the requests about terminals.
package shell

import (
	"context"
	"io"
	"log/slog"
	"net"
	"time"

	"relay"
	"relay/cli"
)

const (
	// askTime is the longest time for one call of the store or of delivery.
	askTime = 5 * time.Second
	// endTimeout is how long an ending session waits for its command, or until the peer has read the last lines of the
	// live view.
	endTimeout = time.Second
)

// Accounts makes login links for the dashboard. Package store implements it.
type Accounts interface {
	CreateLoginLink(ctx context.Context, who relay.Actor, user string, ttl time.Duration) (secret string, err error)
}

// Tunnels reports the state of aliases, and its changes. Package delivery implements it.
type Tunnels interface {
	// Status returns state, tunnel and queue of each alias, in the order of the parameter aliases.
	Status(ctx context.Context, aliases []relay.Alias) ([]relay.AliasStatus, error)
	// Subscribe opens the live feed for the actor; alias 0 = all aliases that it may see.
	Subscribe(ctx context.Context, who relay.Actor, alias int64, lastID string) (relay.Subscription, error)
}

// Limits count the actions of a user in sessions together with those through the API and the dashboard.
// api.Limits implements it.
type Limits interface {
	// Create counts a login, share, token or key that the actor's account makes. It returns an error with the
	// code rate-limited if the account made too many lately.
	Create(who relay.Actor) error
}

// Config is shared by the sessions of a server.
type Config struct {
	Accounts Accounts
	Tunnels  Tunnels
	Limits   Limits
	Site     relay.Site
	Version  string // the command version shows it
	NoClaim  bool   // the forward of a name that is no alias yet is refused

	// FirstForward is how long a session waits for a forward, because session and forward come through
	// different goroutines of x/crypto. FeedRetry is how long a session without a live feed waits before it
	// subscribes again.
	FirstForward, FeedRetry time.Duration
}

// Session is the SSH session that a Shell runs in. Its methods are safe for concurrent use.
type Session interface {
	// OpenAPI opens a connection to /api/v1. The API acts for the account of the session.
	OpenAPI() (net.Conn, error)
	// Go runs f in a goroutine that belongs to the session.
	Go(where string, f func())
	// Stop asks the session to end with an exit code.
	Stop(code int)
	// Exit returns the exit code of Stop, or the value of otherwise if Stop was not called.
	Exit(otherwise int) int
}

// Conn is the connection of a session. Its methods are safe for concurrent use.
type Conn interface {
	// RequestsPending reports whether a global request of the connection waits or is running.
	RequestsPending() bool
	// SubscribeNotices returns the earlier notices, about aliases that are online and refused forwards, and a
	// queue of later notices, until ctx ends.
	SubscribeNotices(ctx context.Context) (online, refused []Notice, further *Queue[Notice])
	// Attached returns the names of the aliases that the connection has attached.
	Attached() []string
	// Holds reports whether the connection attaches, or is about to attach, an alias.
	Holds(alias int64) bool
}

// Shell runs one command line, or the live view.
type Shell struct {
	*Config
	Session        Session
	Conn           Conn
	Ctx            context.Context // ends with the session
	Who            relay.Actor
	Log            *slog.Logger
	Stdout, Stderr io.Writer
	// Stdin is the input of a command that reads input, see ReadsInput; nil = none.
	Stdin  io.Reader
	Screen *Screen
	Keys   <-chan string // keys from ReadKeys
	// Hold reserves memory for the output of a command; see cli.API.
	Hold func(n int64) error

	printer *cli.Printer
}

// ReadsInput reports whether a command line may read standard input.
func ReadsInput(command string) bool {
	words, err := splitWords(command)
	return err == nil && len(words) > 0 && (words[0].text == "send" || words[0].text == "secret")
}

// Run runs a command line, "" = the live view, and returns the exit code.
func (s *Shell) Run(command string) int {
	s.Stdout, s.Stderr = s.Screen.Writer(s.Stdout), s.Screen.Writer(s.Stderr)
	s.printer = &cli.Printer{Out: s.Stdout, Terminal: s.Screen.terminal}
	words, err := splitWords(command)
	if err == nil && len(words) == 0 {
		return (&live{Shell: s, out: NewQueue[string](), shown: map[string]bool{}}).run()
	}
	ended := make(chan int, 1)
	s.Session.Go("session command", func() {
		if err != nil {
			ended <- s.front().Exit(s.Ctx, cli.Usage("%s", err))
			return
		}
		ended <- s.command(words)
	})
	for {
		select {
		case code := <-ended:
			return code
		case key := <-s.Keys:
			if key == "q" && s.Screen.HasPTY() {
				s.Session.Stop(cli.ExitInterrupted)
			}
		case <-s.Ctx.Done():
			select {
			case code := <-ended:
				return code
			case <-time.After(endTimeout):
				return s.Session.Exit(cli.ExitFailure)
			}
		}
	}
}

// ask returns the context of one call of the store or of delivery.
func (s *Shell) ask() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.Ctx, askTime)
}
