package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"relay/cli"
	"relay/record"
)

// firstTries is the number of tries to reach a relay for the first connection. After a first connection the
// number of tries is not limited.
const firstTries = 4

// Forward is one alias and the local server that gets its requests.
type Forward struct {
	Alias  string
	Target Target

	SecretEnv map[string]string // environment variables with the secrets of senders, by sender
}

// Up keeps aliases online: it connects, requests the forwards, and reconnects after every loss, unless another
// try cannot help.
type Up struct {
	Dialer   *Dialer
	Forwards []Forward
	// Show is called with each message of the relay, in order, from one goroutine at a time.
	Show func(*Message)
	// Ready is called when every alias of a new connection is online or finally
	// refused; again is true for a reconnect.
	Ready func(again bool)
	// Lost reports a lost connection, or a first connection that could not be made, and
	// the time until the next try.
	Lost func(err error, next time.Duration)
	// Local reports problems with local servers, each once; nil = no reports. Several goroutines call it.
	Local func(TargetEvent)

	monitor  *targetMonitor
	log      cli.RequestLog
	lastItem string         // id of the last item of the event stream of the API
	heard    time.Time      // time of the last item, by the clock of the relay
	followed time.Time      // start of the first event stream, by the clock of the relay
	leaving  sync.WaitGroup // connections to former nodes, which still serve their last requests

	active atomic.Pointer[[]Forward] // the forwards, without those that were removed for good
	tunnel atomic.Pointer[tunnel]    // the connected tunnel, or nil

	// Only the goroutine of Run uses the fields below.
	reached     bool          // an alias has been online
	lossSpread  time.Duration // after a loss, the relay asks for a random wait up to this
	readyCalled bool          // Ready has been called
}

// SameAlias reports whether two names, with or without their domain, mean the same
// alias.
func SameAlias(a, b string) bool { return cli.AliasLabel(a) == cli.AliasLabel(b) }

// Run keeps the aliases online. It returns nil when ctx ends, and an *cli.Error when another try cannot help.
// It waits for the goroutines that it started, for some seconds at most.
func (u *Up) Run(ctx context.Context) error {
	if len(u.Forwards) == 0 {
		return cli.Errorf(cli.ExitUsage, "no alias is named")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer u.leaving.Wait()
	defer cancel()
	u.active.Store(&u.Forwards)
	u.monitor = newTargetMonitor(u.Local)
	var tries cli.Backoff
	for {
		begun := time.Now()
		held, pause, err := u.connect(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case !retryable(err):
			return err
		case u.reached && held >= cli.HealthyAfter, errors.Is(err, errMoving):
			tries.Reset()
		}
		next := pause
		if !errors.Is(err, errMoving) {
			if held > 0 {
				begun = time.Now()
			}
			// The duration of a try counts as waiting.
			next = max(pause, tries.Next(u.lossSpread)-time.Since(begun))
			if !u.reached && tries.Tries > firstTries {
				return err
			}
			if u.reached || tries.Tries > 1 {
				u.Lost(err, next)
			}
		}
		if !cli.Wait(ctx, next) {
			return nil
		}
	}
}

func retryable(err error) bool {
	e, ok := errors.AsType[*cli.Error](err)
	return !ok || e.Exit == cli.ExitUnreachable
}

// connect makes one connection and keeps it until it is lost. The result held is the duration of the connection,
// and the result pause is the wait that a stopping relay asked for.
func (u *Up) connect(ctx context.Context) (held, pause time.Duration, err error) {
	conn, err := u.Dialer.Dial(ctx)
	if err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	t := &tunnel{
		up: u, conn: conn, api: cli.NewSSHAPI(u.Dialer.Version, conn.Addr, conn.openAPI, nil),
		online:   map[string]bool{},
		messages: make(chan *Message, 64), attached: make(chan struct{}), logged: make(chan struct{}), announced: make(chan struct{}),
	}
	err = t.run(ctx)
	return max(1, time.Since(begun)), max(0, time.Until(t.noRetryBefore)), err
}

// Release delivers the events that were queued while an alias was offline, and returns their number. It fails
// while there is no connection. It is safe for concurrent use.
func (u *Up) Release(ctx context.Context, alias string) (*record.Released, error) {
	t := u.tunnel.Load()
	if t == nil {
		return nil, cli.Errorf(cli.ExitUnreachable, "not connected to the relay at the moment")
	}
	released := &record.Released{}
	path := "/aliases/" + url.PathEscape(cli.AliasLabel(alias)) + "/replay-queued"
	return released, t.api.Decode(ctx, http.MethodPost, path, nil, released)
}

// remove removes an alias that was taken over or refused for good, and returns the number of the remaining
// aliases.
func (u *Up) remove(alias string) (left int) {
	active := slices.DeleteFunc(slices.Clone(*u.active.Load()), func(f Forward) bool { return SameAlias(f.Alias, alias) })
	u.active.Store(&active)
	return len(active)
}
