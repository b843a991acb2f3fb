package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"relay"
	"relay/grant"
	"relay/record"
)

// replayWait is the default time that a replay waits for the end of its attempt.
const replayWait = 30 * time.Second

func (s *server) addReplayRoutes() {
	wait := &huma.Param{Name: "wait", In: "query", Description: "how long to wait for the end of the attempt, 0s to 60s; default 30s", Schema: textSchema}
	once := &huma.Param{Name: "Idempotency-Key", In: "header", Description: "for 24 h, the same key and target return the stored answer", Schema: textSchema}
	results := func(v any) map[string]*huma.Response {
		return map[string]*huma.Response{
			"200": answer("The attempt ended, with any result", "application/json", s.schema(v)),
			"202": answer("The attempt is queued or in progress", "application/json", s.schema(v)),
		}
	}
	s.registerRaw(route{
		tag: "events", scope: relay.ScopeEventsReplay, resolve: s.resolveRequest, query: []*huma.Param{wait, once}, answers: results(record.Event{}),
	}.on("POST /events/{id}/replay", "replay-event", "Replay an event with exactly the bytes received; a request body is ignored", 409), s.replay)
	s.registerRaw(route{
		tag: "aliases", scope: relay.ScopeEventsReplay, resolve: s.resolveAlias, query: []*huma.Param{once},
		answers: map[string]*huma.Response{"202": answer("How many were released", "application/json", s.schema(record.Released{}))},
	}.on("POST /aliases/{alias}/replay-queued", "replay-queued", "Release the inbound events that were queued while offline; a request body is ignored", 409),
		func(w http.ResponseWriter, r *http.Request, c *requestInfo) error {
			return s.runIdempotent(w, r, c, idempotent{run: func(ctx context.Context) (int, any, error) {
				n, err := s.Deliver.Release(ctx, c.who, c.alias.Name)
				if err != nil {
					return 0, nil, err
				}
				return http.StatusAccepted, record.Released{Alias: c.alias.Name, Released: n}, nil
			}})
		})
	s.registerRaw(route{
		tag: "shares", public: true, resolve: s.sharedEvent, query: []*huma.Param{wait}, answers: results(record.SharedReplay{}),
	}.on("POST /events/shared/{token}/replay", "replay-shared", "Replay a shared event; a request body is ignored", 409), s.replayShared)
}

func (s *server) replay(w http.ResponseWriter, r *http.Request, c *requestInfo) error {
	wait, err := parseWait(r.URL.Query().Get("wait"), replayWait)
	if err != nil {
		return err
	}
	if refused := grant.Replayable(c.event); refused != nil {
		return refused
	}
	c.waited = true
	return s.runIdempotent(w, r, c, idempotent{run: func(ctx context.Context) (int, any, error) {
		e, n, err := s.replayAs(ctx, c.who, c.event.ID, wait)
		if err != nil {
			return begunStatus(e, err), nil, err
		}
		told, full := withoutBodies(e), s.replayed(ctx, c, e, n)
		status := replayStatus(full, n)
		rec, err := s.eventRecord(c, full, nil)
		if err != nil { // the replay was made, so the answer is a success without bodies
			rec = record.Of(told, s.Site, time.Now())
		}
		return status, rec, nil
	}, again: func(ctx context.Context, _ []byte) (any, error) {
		e, err := s.Events.Event(ctx, c.who, c.event.ID, record.MaxBody)
		return s.eventRecord(c, e, err)
	}})
}

func (s *server) replayShared(w http.ResponseWriter, r *http.Request, c *requestInfo) error {
	wait, err := parseWait(r.URL.Query().Get("wait"), replayWait)
	if err != nil {
		return err
	}
	e, n, err := s.grants().ReplayShared(r.Context(), c.held, func(ctx context.Context, who relay.Actor, id relay.ID) (*relay.Event, int, error) {
		c.waited = true
		return s.replayAs(ctx, who, id, wait)
	})
	if err != nil {
		return err
	}
	return writeJSON(w, replayStatus(e, n), record.OfSharedReplay(e, n))
}

// credentialCheckInterval is the interval at which a waiting call checks that its credential is still
// valid.
const credentialCheckInterval = time.Second

// errCredentialEnded is the error of a waiting call whose credential has ended.
var errCredentialEnded = relay.Errorf(relay.CodeUnauthorized, "this credential ended while the call waited; make a new one")

// replayAs replays an event and waits for the end of the attempt while the actor's credential is valid. If
// the wait ends early, the attempt continues. If an attempt was begun, e is set even when replayAs returns an
// error.
func (s *server) replayAs(ctx context.Context, who relay.Actor, id relay.ID, wait time.Duration) (e *relay.Event, n int, err error) {
	err = s.whileValid(ctx, who, func(ctx context.Context) (err error) {
		e, n, err = s.Deliver.Replay(ctx, who, id, wait)
		return err
	})
	return e, n, err
}

// begunStatus returns the status to store for a replay or send that failed with err: 202 if e is the event of
// a begun attempt, 500 if err says that an attempt may have begun, and else 0.
func begunStatus(e *relay.Event, err error) int {
	switch {
	case e != nil:
		return http.StatusAccepted
	case relay.MayBeDone(err):
		return http.StatusInternalServerError
	}
	return 0
}

// whileValid calls run with a context that ends when the actor's credential ends.
func (s *server) whileValid(ctx context.Context, who relay.Actor, run func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		tick := time.NewTicker(credentialCheckInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if errors.Is(s.Accounts.StillValid(ctx, who), relay.ErrNotFound) { // a store that does not respond ends no wait
				cancel(errCredentialEnded)
			}
		}
	})
	defer func() {
		cancel(nil)
		watch.Wait()
	}()
	err := run(ctx)
	switch {
	case context.Cause(ctx) != errCredentialEnded:
		return err
	case who.Kind == relay.ActorShare: // the same error as for a call that begins after the end of the share
		return relay.ErrNotFound
	}
	return errCredentialEnded
}

// withoutBodies returns a copy of an event without bodies.
func withoutBodies(e *relay.Event) *relay.Event {
	out := *e
	out.Request.Body.Data, out.Attempts = nil, slices.Clone(e.Attempts)
	for i := range out.Attempts {
		out.Attempts[i].Response.Body.Data = nil
	}
	return &out
}

// replayed reads the event of a replay with its page of attempts. If attempt n is not on that page, because
// newer ones exist, replayed takes the attempt from e. If the event cannot be read, it returns e, because the
// replay was made.
func (s *server) replayed(ctx context.Context, c *requestInfo, e *relay.Event, n int) *relay.Event {
	full, err := s.Events.Event(ctx, c.who, c.event.ID, record.MaxBody)
	if err != nil {
		return e
	}
	if made := e.Attempt(n); made != nil && full.Attempt(n) == nil {
		at, _ := slices.BinarySearchFunc(full.Attempts, n, func(a relay.Attempt, n int) int { return cmp.Compare(a.N, n) })
		full.Attempts = slices.Insert(full.Attempts, at, *made)
	}
	return full
}

func replayStatus(e *relay.Event, n int) int {
	if a := e.Attempt(n); a == nil || a.State == relay.StateQueued || a.State == relay.StateDelivering {
		return http.StatusAccepted
	}
	return http.StatusOK
}

// Bounds of an Idempotency-Key, and of the answer that is stored for it, in bytes. Answers are kept for a
// day, and large ones could fill a disk. Of an answer beyond maxStoredAnswer, only the status and a reference
// are stored, from which the answer is rebuilt.
const (
	maxIdempotencyKey = 255
	maxStoredAnswer   = 64 << 10
)

// idempotent is a call that runs at most once for one Idempotency-Key.
type idempotent struct {
	target string                      // name of the call: its key is refused for a call with another name; "" = method and path
	check  func(context.Context) error // refuses a call before it is counted; nil = no check
	counts bool                        // check has counted the call, so that it is not counted again
	// run returns a status beside an error if the call must not be repeated.
	run func(context.Context) (int, any, error)
	// again rebuilds an answer that was too large to be stored, from the bytes that reference returned. again
	// is nil where answers are always small; reference may be nil.
	again     func(ctx context.Context, stored []byte) (any, error)
	reference func() []byte
}

// runIdempotent counts the call against the replay limit and runs it. With an
// Idempotency-Key, a call that was answered before gets the stored answer and is not run
// again.
func (s *server) runIdempotent(w http.ResponseWriter, r *http.Request, c *requestInfo, call idempotent) error {
	key := r.Header.Get("Idempotency-Key")
	if len(key) > maxIdempotencyKey || !utf8.ValidString(key) || len(r.Header["Idempotency-Key"]) > 1 {
		return invalid("header.Idempotency-Key", "expected one line of at most 255 bytes of UTF-8", nil)
	}
	var status int
	var answer []byte
	var err error
	if key != "" {
		status, answer, err = s.Accounts.BeginIdempotent(r.Context(), c.who, key, cmp.Or(call.target, r.Method+" "+r.URL.Path))
	}
	switch {
	case err != nil:
		return err
	case status != 0 && string(answer) == brokenOff:
		return relay.Errorf(relay.CodeInternal, "a fault of the relay ended this call after it had begun; look at the events of the alias before you send again")
	case status != 0 && call.again != nil && !bytes.HasPrefix(answer, []byte("{")): // only the reference to the answer is stored
		v, err := call.again(r.Context(), answer)
		if err != nil {
			return err
		}
		return writeJSON(w, status, v)
	case status != 0: // an earlier call with the key was answered, and its answer is sent again
	case key == "":
		status, answer, err = s.runCounted(r.Context(), c, call)
	default:
		status, answer, err = s.runOnce(r, c, key, call)
	}
	switch {
	case err != nil:
		return err
	case c.large != nil:
		return writeJSON(w, status, c.large)
	}
	writeRaw(w, status, "application/json", answer)
	return nil
}

// runOnce runs a call as runCounted does, and stores its answer under key, which BeginIdempotent has
// registered. Of a large answer it stores the status and the bytes that call.reference returns. A failure
// without a status frees the key, so a retry can succeed. If the outcome of a call is unknown, because
// call.run panicked or its commit was lost, the status 500 is stored: a retry gets an error and does not run
// the call.
func (s *server) runOnce(r *http.Request, c *requestInfo, key string, call idempotent) (status int, answer []byte, err error) {
	// The client may disconnect before the call has ended, but the result must be stored.
	ctx := context.WithoutCancel(r.Context())
	begun, ended, run := false, false, call.run
	call.run = func(ctx context.Context) (int, any, error) {
		begun = true
		return run(ctx)
	}
	defer func() {
		if begun && !ended || status == http.StatusInternalServerError {
			status, answer = http.StatusInternalServerError, []byte(brokenOff)
		}
		stored := answer
		if call.again != nil && (len(stored) == 0 || len(stored) > maxStoredAnswer) {
			if stored = nil; call.reference != nil && status != 0 {
				stored = call.reference()
			}
		}
		if failed := s.Accounts.EndIdempotent(ctx, c.who, key, status, stored); failed != nil { // the answer is stored later
			s.Log.Warn("cannot store the answer of a call yet", "request_id", c.id, "err", failed)
		}
	}()
	status, answer, err = s.runCounted(ctx, c, call)
	ended = true
	return status, answer, err
}

// brokenOff is the stored answer of a call whose outcome is unknown: a fault of relayd ended the call after
// it had begun, or its commit was lost.
const brokenOff = "broken off"

// runCounted counts the call against its limit, runs it and returns its answer as JSON. With an error there
// is no answer, but there may be a status; see idempotent. If the record is too large to be stored,
// runCounted returns no answer, and puts the record into c.large.
func (s *server) runCounted(ctx context.Context, c *requestInfo, call idempotent) (status int, answer []byte, err error) {
	if call.check != nil {
		if err := call.check(ctx); err != nil {
			return 0, nil, err
		}
	}
	if !call.counts {
		if err := s.Limits.Replay(c.who); err != nil {
			return 0, nil, err
		}
	}
	status, v, err := call.run(ctx)
	if rec, ok := v.(*record.Event); ok && rec.Weight() > maxStoredAnswer {
		c.large = rec
	} else if err == nil {
		answer, err = json.Marshal(v)
	}
	return status, answer, err
}
