package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"relay/record"
)

const (
	// maxKnownEvents is the number of events that a follower remembers after it has passed them to emit.
	maxKnownEvents = 1024
	// catchUp is the number of events that are listed after a gap in the stream.
	catchUp = pageLimit
	// notFoundPause is the least pause before a stream that ended with not-found is
	// requested again.
	notFoundPause = time.Second
)

// Follow passes the last n events that match a query of GET /events to emit, oldest first, and then new
// events as they arrive. When the connection is lost, Follow reconnects and passes the events that have
// arrived in between. It returns when ctx ends, when the relay refuses for good, when emit fails, or when the
// first connection cannot be made. The function say gets messages about lost connections, not yet safe to
// print. The argument of emit is valid during the call only.
func (a *API) Follow(ctx context.Context, query url.Values, n int, say func(string), emit func(json.RawMessage) error) error {
	f := &follower{api: a, query: query, n: n, say: say, emit: emit, known: map[string]seen{}}
	return f.run(ctx)
}

// run follows the stream until ctx ends or an error is final.
func (f *follower) run(ctx context.Context) error {
	var tries Backoff
	for {
		f.began = time.Time{}
		err := f.once(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !f.began.IsZero() {
			f.askedAgain = false
			if time.Since(f.began) > HealthyAfter {
				tries.Reset()
			}
		}
		if !f.retryable(err) {
			return err
		}
		next := tries.Next(0)
		if f.askedAgain {
			next = max(next, notFoundPause)
		}
		if !f.lossReported {
			f.lossReported = true
			in := "now"
			if next >= time.Second {
				in = fmt.Sprintf("in %d s", int(next.Seconds()+0.5))
			}
			f.say(err.Error() + "; connecting again " + in)
		}
		if !Wait(ctx, next) {
			return ctx.Err()
		}
	}
}

// follower is the state of a Follow, over all its connections. Here, to write an event means to pass it to emit.
type follower struct {
	api   *API
	query url.Values
	n     int // number of events in the first list
	say   func(string)
	emit  func(json.RawMessage) error

	known  map[string]seen // the last written events
	order  []string        // ids of known, oldest first
	newest string          // highest written id; ids are in order of arrival
	listed bool            // the first list has been written
	base   string          // newest id when the first list was written
	since  string          // time filter of the lists after the first one; "" = none
	after  string          // id of the last item of the stream

	connectedOnce bool      // a stream has been open
	began         time.Time // when the current stream began; zero = none is open
	lossReported  bool      // the loss of the connection was reported, and no new one has been made
	askedAgain    bool      // the stream was requested again after it had ended with not-found
}

// seen is the state of an event when it was written.
type seen struct {
	state, at string
	attempts  int
}

// once opens the stream before it requests the list, because otherwise an event that arrives between the two
// would be missed. If f.after names the last item of an earlier stream, no list is needed: the relay
// continues after that item, or sends resync.
func (f *follower) once(ctx context.Context) error {
	return f.api.Stream(ctx, "?"+f.query.Encode(), f.after, func() error {
		f.began = time.Now()
		if f.lossReported {
			f.say("connected to the relay again")
		}
		f.connectedOnce, f.lossReported = true, false
		if f.after == "" {
			return f.missed(ctx)
		}
		return nil
	}, func(id, name string, data []byte) error {
		defer func() { f.after = id }()
		switch name {
		case "resync":
			return f.missed(ctx)
		case "event":
			var e record.Summary
			_ = json.Unmarshal(data, &e) // the printer reports invalid JSON
			return f.take(data, &e, false)
		}
		return nil
	})
}

// retryable reports whether a new connection may help.
func (f *follower) retryable(err error) bool {
	var e *Error
	switch {
	case !f.connectedOnce || !errors.As(err, &e): // errors.As fails for an error of emit, which is no *Error
		return false
	case e.Exit == ExitNotFound && !f.askedAgain: // a stream of a stopping relay ends with not-found, too, so not-found is retried once
		f.askedAgain = true
		return true
	}
	return mayPass(err)
}

// mayPass reports whether the same request may succeed if it is repeated soon.
func mayPass(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && (e.Transient || e.Exit == ExitUnreachable)
}

// take writes an event, except for a second notice of the same state, and for an event of a later list that
// is older than the newest event of the first list.
func (f *follower) take(line []byte, e *record.Summary, fromList bool) error {
	now := seen{e.State, e.ReceivedAt.String(), e.AttemptCount}
	before, known := f.known[e.ID]
	if fromList && f.listed && !known && e.ID <= f.base || known && before == now && (fromList || e.State != "") {
		return nil
	}
	if e.ID != "" {
		f.newest = max(f.newest, e.ID)
		f.known[e.ID] = now
		if !known {
			f.order = append(f.order, e.ID)
		}
		if len(f.order) > maxKnownEvents {
			delete(f.known, f.order[0])
			f.order = slices.Delete(f.order, 0, 1)
		}
	}
	return f.emit(line)
}

// missed requests the list of the latest events and writes those that were not written yet, oldest first.
func (f *follower) missed(ctx context.Context) error {
	n, query := f.n, f.query
	if f.listed {
		n = catchUp
		if f.since != "" {
			query = maps.Clone(query)
			query.Set("since", f.since)
		}
	}
	defer f.api.forget(f.api.held) // releases the memory of this list, because a follower requests a list after each gap
	all, err := f.api.list(ctx, query, n)
	if err != nil {
		return err
	}
	if f.listed && len(all.Data) >= n && idOf(all.Data[len(all.Data)-1]) > f.newest {
		f.say("more events came meanwhile than are shown here; the dashboard has them all")
	}
	for _, data := range slices.Backward(all.Data) {
		var e record.Summary
		_ = json.Unmarshal(data, &e)
		if err := f.take(data, &e, true); err != nil {
			return err
		}
	}
	if !f.listed {
		f.listed, f.base = true, f.newest
	}
	return nil
}

func idOf(data []byte) string {
	var e struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(data, &e)
	return e.ID
}
