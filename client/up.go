package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"relay"
)

// firstTries is how often an unreachable relay is tried before the first
// connection; once there was one, tries go on for ever.
const firstTries = 4

// Forward is one alias and where its requests go.
type Forward struct {
	Alias  string
	Target Target
}

// Up keeps aliases online: connects, forwards, and comes back after every loss that
// is not final.
type Up struct {
	Dialer   *Dialer
	Forwards []Forward
	// Show takes what the relay says, in order, one at a time.
	Show func(*Message)
	// Ready is called when every alias of a new connection is online or refused for
	// good; again tells of one after the first.
	Ready func(again bool)
	// Lost tells of a loss, or of a first connection that could not be made, and
	// when the next try is.
	Lost func(err error, next time.Duration)
	// Local tells what is odd about local servers, once each; nil = nobody cares. It
	// may be called by several goroutines.
	Local func(LocalNews)

	// sense tells of changed networks and sleeps; tests replace it.
	sense   func(ctx context.Context, tell func(*Error))
	changed chan *Error // why the way to the relay may be another one now
	locals  *locals

	mu      sync.Mutex
	live    []Forward // those not dropped for good
	tunnel  *tunnel   // the one that has a session
	final   *Error    // why the last alias was dropped
	reached bool      // an alias has been online
	told    bool      // Ready has been called
}

// NormalAlias is an alias name as typed, in lower case and without a trailing dot;
// the relay also takes it with its domain.
func NormalAlias(name string) string {
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// Run works until ctx ends, which is a clean disconnect and no error, or until
// trying on cannot help: then it gives an *Error. It waits for all that it started.
func (u *Up) Run(ctx context.Context) error {
	if len(u.Forwards) == 0 {
		return Errorf(ExitUsage, "no alias is named")
	}
	ctx, cancel := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer cancel()
	u.live = slices.Clone(u.Forwards)
	u.changed = make(chan *Error, 1)
	u.locals = newLocals(u.Local)
	defer u.locals.close()
	defer u.Dialer.drop()
	if u.sense == nil {
		u.sense = sense
	}
	watchers.Go(func() {
		u.sense(ctx, func(why *Error) {
			select {
			case u.changed <- why:
			default: // one waits already
			}
		})
	})
	return u.keepOn(ctx)
}

// keepOn connects again and again.
func (u *Up) keepOn(ctx context.Context) error {
	var tries backoff
	var doubts int
	for {
		begun := time.Now()
		held, pause, err := u.connect(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if held > 0 {
			doubts, begun = 0, time.Now()
		}
		var refused bool
		if refused, doubts = u.doubt(err, doubts); !refused && !retryable(err) {
			return err
		}
		if held >= healthyAfter {
			tries.reset()
		} else if held >= fairAfter {
			tries.tries = min(tries.tries, 1)
		}
		// The first of tries.next is 0: a loss is answered by a try at once. What a try
		// took counts as waiting.
		next := max(pause, tries.next()-time.Since(begun))
		if refused {
			next = max(next, doubtPause)
		}
		if !u.reached && tries.tries > firstTries {
			return err
		}
		if u.reached || tries.tries > 1 {
			u.Lost(err, next)
		}
		if !u.pause(ctx, next, pause, err, &tries) {
			return nil
		}
	}
}

// Older relays whose store is away refuse logins that they would take a moment later,
// so one that let us in before is asked again before its refusal is believed.
const (
	doubtTimes = 3
	doubtPause = time.Second
)

// doubt tells whether err is a refused login that is not believed yet.
func (u *Up) doubt(err error, before int) (bool, int) {
	var e *Error
	if !u.reached || !errors.As(err, &e) || !e.login || before >= doubtTimes {
		return false, before
	}
	return true, before + 1
}

// pause waits before the next try. It ends early when the way to the relay has
// changed, but not before atLeast, which a stopping relay asked for. It gives false
// at the end of ctx.
func (u *Up) pause(ctx context.Context, d, atLeast time.Duration, why error, tries *backoff) bool {
	if !wait(ctx, atLeast) {
		return false
	}
	timer := time.NewTimer(d - atLeast)
	defer timer.Stop()
	var knock <-chan time.Time
	if u.reached && errors.Is(why, syscall.ECONNREFUSED) {
		ticker := time.NewTicker(knockEvery - rand.N(knockEvery/4))
		defer ticker.Stop()
		knock = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-u.changed:
			tries.reset()
			return true
		case <-knock:
			if u.Dialer.knock(ctx) {
				return true
			}
		}
	}
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

// connect makes one connection and keeps it. held is how long all was well, pause
// what a stopping relay asked for.
func (u *Up) connect(ctx context.Context) (held, pause time.Duration, err error) {
	conn, err := u.Dialer.Dial(ctx)
	if err != nil {
		return 0, 0, err
	}
	select {
	case <-u.changed: // this connection was made after that
	default:
	}
	begun := time.Now()
	t := &tunnel{up: u, conn: conn}
	err = t.run(ctx)
	return max(1, time.Since(begun)), max(0, time.Until(t.leaveFor)), err
}

// ready tells that a connection stands. From now on nobody is asked anything: the
// host is known, the keys are open, and the keyboard is used for something else.
func (u *Up) ready() {
	again := u.told
	u.told = true
	u.Dialer.Ask = nil
	u.Dialer.again = true
	u.Ready(again)
}

// Release asks the relay to send the queued events of an alias. It fails while
// there is no connection. Safe for concurrent use.
func (u *Up) Release(alias string) error {
	t, err := u.connected()
	if err != nil {
		return err
	}
	return t.release(alias)
}

// Ask runs a command in a session of its own on the connection that carries the
// tunnel, and writes the JSON answer to out. Errors are *Error or those of ctx. Safe
// for concurrent use; the relay takes three at a time.
func (u *Up) Ask(ctx context.Context, c Command, out io.Writer) error {
	t, err := u.connected()
	if err != nil {
		return err
	}
	session, err := t.conn.NewSession()
	if err != nil {
		return t.lost(err)
	}
	defer session.Close()
	defer context.AfterFunc(ctx, func() { session.Close() })()
	var said bytes.Buffer
	session.Stdout, session.Stderr = out, &bounded{out: &said, left: maxSaid}
	if err = session.Run(c.line()); err != nil {
		err = sessionError(err, said.Bytes())
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// connected is the tunnel that has a session.
func (u *Up) connected() (*tunnel, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.tunnel == nil {
		return nil, Errorf(ExitUnreachable, "there is no connection to the relay just now")
	}
	return u.tunnel, nil
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
	return slices.Clone(u.live)
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

// drop forgets an alias that was taken over or is not ours.
func (u *Up) drop(m *Message) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.live = slices.DeleteFunc(u.live, func(f Forward) bool { return AliasLabel(f.Alias) == AliasLabel(m.Alias) })
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
	case relay.CodeConflict: // the account has as many aliases as it may
		exit = ExitFailure
	}
	u.final = Errorf(exit, "alias %s was refused: %s", m.Alias, m.Message)
}

// gone is why there is nothing left to do.
func (u *Up) gone() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.final
}

// SameAlias tells whether two names, with or without their domain, mean one alias.
func SameAlias(a, b string) bool { return AliasLabel(a) == AliasLabel(b) }
