package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"relay"
	"relay/record"
)

// firstTries is how often an unreachable relay is tried before the first connection.
// After a first connection the tries do not end.
const firstTries = 4

// Forward is one alias and where its requests go.
type Forward struct {
	Alias  string
	Target Target
}

// Up keeps aliases online: it connects, forwards, and reconnects after every loss that
// is not final.
type Up struct {
	Dialer   *Dialer
	Forwards []Forward
	// Show gets the messages of the relay, in order, from one goroutine at a time.
	Show func(*Message)
	// Ready is called when every alias of a new connection is online or finally
	// refused; again is true for a reconnect.
	Ready func(again bool)
	// Lost reports a lost connection, or a first connection that could not be made, and
	// the time until the next try.
	Lost func(err error, next time.Duration)
	// Local reports problems with local servers, each once. It may be nil, and is
	// called by several goroutines.
	Local func(TargetEvent)

	// watchNetwork reports changes of this machine's network; tests replace it.
	watchNetwork   func(ctx context.Context, changed func())
	networkChanged chan struct{} // capacity 1
	monitor        *targetMonitor
	log            *requestLog

	leaving sync.WaitGroup // connections to nodes that this program has left, with their last requests

	mu          sync.Mutex
	active      []Forward     // without those removed for good
	tunnel      *tunnel       // the connected one, or nil
	final       *Error        // why the last alias was removed
	reached     bool          // an alias has been online
	lossSpread  time.Duration // the relay asks to wait a random part of it after a loss
	readyCalled bool          // Ready has been called
}

// NormalAlias returns an alias name in lower case and without a trailing dot. The name
// may include the alias domain.
func NormalAlias(name string) string {
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// Run keeps the aliases online until ctx ends, which is no error, or until another try
// cannot help: then it returns an *Error. It waits for all goroutines that it started.
func (u *Up) Run(ctx context.Context) error {
	if len(u.Forwards) == 0 {
		return Errorf(ExitUsage, "no alias is named")
	}
	ctx, cancel := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer cancel()
	u.active = slices.Clone(u.Forwards)
	u.networkChanged = make(chan struct{}, 1)
	u.monitor = newTargetMonitor(u.Local)
	u.log = newRequestLog()
	if u.watchNetwork == nil {
		u.watchNetwork = watchNetwork
	}
	watcher.Go(func() {
		u.watchNetwork(ctx, func() {
			select {
			case u.networkChanged <- struct{}{}:
			default: // a change waits to be handled
			}
		})
	})
	defer u.leaving.Wait()
	defer cancel()
	return u.reconnect(ctx)
}

// reconnect connects again and again until ctx ends or an error is final.
func (u *Up) reconnect(ctx context.Context) error {
	var tries backoff
	for {
		begun := time.Now()
		held, pause, err := u.connect(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if !retryable(err) {
			return err
		}
		if errors.Is(err, errMoving) {
			tries.reset()
			if !wait(ctx, pause) {
				return nil
			}
			continue
		}
		if held > 0 {
			begun = time.Now()
		}
		if held >= healthyAfter {
			tries.reset()
		}
		// The first of tries.next is 0, or at most lossSpread. The time that a try took
		// counts as waiting.
		tries.first = u.lossSpread
		next := max(pause, tries.next()-time.Since(begun))
		if !u.reached && tries.tries > firstTries {
			return err
		}
		if u.reached || tries.tries > 1 {
			u.Lost(err, next)
		}
		if !u.pause(ctx, next, pause, &tries) {
			return nil
		}
	}
}

// pause waits before the next try. It ends early when this machine's network has
// changed, but not before atLeast, which a stopping relay asked for. It returns false
// at the end of ctx.
func (u *Up) pause(ctx context.Context, d, atLeast time.Duration, tries *backoff) bool {
	if !wait(ctx, atLeast) {
		return false
	}
	timer := time.NewTimer(d - atLeast)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-u.networkChanged:
		tries.reset()
	}
	return true
}

func retryable(err error) bool {
	var e *Error
	return !errors.As(err, &e) || e.Exit == ExitUnreachable
}

func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// connect makes one connection and keeps it until it is lost. held is how long it
// lasted, pause how long a stopping relay asked to wait.
func (u *Up) connect(ctx context.Context) (held, pause time.Duration, err error) {
	conn, err := u.Dialer.Dial(ctx)
	if err != nil {
		return 0, 0, err
	}
	select {
	case <-u.networkChanged: // this connection was made after the change
	default:
	}
	begun := time.Now()
	t := newTunnel(u, conn)
	err = t.run(ctx)
	return max(1, time.Since(begun)), max(0, time.Until(t.noRetryBefore)), err
}

// ready tells that a connection stands. From now on nobody is asked anything: the
// host is known, the keys are open, and the keyboard is used for something else.
func (u *Up) ready() {
	again := u.readyCalled
	u.readyCalled = true
	u.Dialer.Prompter = nil
	u.Ready(again)
}

// Release delivers the events of an alias that were queued while it was offline and returns
// their number. It fails while there is no connection. It is safe for concurrent use.
func (u *Up) Release(ctx context.Context, alias string) (*record.Released, error) {
	u.mu.Lock()
	t := u.tunnel
	u.mu.Unlock()
	if t == nil {
		return nil, Errorf(ExitUnreachable, "there is no connection to the relay just now")
	}
	released := &record.Released{}
	path := "/aliases/" + url.PathEscape(AliasLabel(alias)) + "/replay-queued"
	return released, t.api.decode(ctx, http.MethodPost, path, nil, released)
}

func (u *Up) attach(t *tunnel) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.tunnel = t
}

func (u *Up) detach() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.tunnel = nil
}

func (u *Up) forwards() []Forward {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.active)
}

func (u *Up) names() []string {
	var names []string
	for _, f := range u.forwards() {
		names = append(names, f.Alias)
	}
	return names
}

func (u *Up) forward(bind string) (Forward, bool) {
	for _, f := range u.forwards() {
		if f.Alias == bind {
			return f, true
		}
	}
	return Forward{}, false
}

// removeForward removes an alias that was taken over or refused for good.
func (u *Up) removeForward(m *Message) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.active = slices.DeleteFunc(u.active, func(f Forward) bool { return AliasLabel(f.Alias) == AliasLabel(m.Alias) })
	if m.Type == TypeSuperseded {
		u.final = Errorf(ExitTaken, "alias %s was taken over by a newer connection", m.Alias).
			WithHint("another relay up or ssh forwards it now; run this one again to take it back")
		return
	}
	if m.Type == TypeRevoked {
		u.final = Errorf(ExitTaken, "%s", m.Message)
		return
	}
	exit := ExitTaken
	switch m.Code {
	case relay.CodeValidationFailed:
		exit = ExitUsage
	case relay.CodeConflict: // the account has reached its limit of aliases
		exit = ExitFailure
	}
	u.final = Errorf(exit, "alias %s was refused: %s", m.Alias, m.Message)
}

// finalError returns why no alias is left.
func (u *Up) finalError() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.final
}

// SameAlias reports whether two names, with or without their domain, mean the same
// alias.
func SameAlias(a, b string) bool { return AliasLabel(a) == AliasLabel(b) }
