package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"relay/record"
)

const (
	// maxKnownEvents is how many written events are remembered.
	maxKnownEvents = 1024
	// catchUp is how many events are listed when some may have been missed.
	catchUp = pageLimit
	// quietStream is how long a stream of the API may be silent; the relay sends a
	// comment every 15 s.
	quietStream = 45 * time.Second
	// notFoundPause is the least pause before a feed that ended with not-found is
	// requested again.
	notFoundPause = time.Second
)

// followSource follows events over one connection per call. It calls f.begin when the
// connection is established.
type followSource interface {
	followOnce(ctx context.Context, c Command, f *followState) error
}

// follow writes the last events, oldest first, and then new ones, one object per line.
// It reconnects when the connection is lost and then writes what was missed. It ends
// with ctx, with a final refusal, with an error of out, or when the first connection
// cannot be made.
func follow(ctx context.Context, from followSource, c Command, out io.Writer) error {
	if c.N == 0 {
		c.N = defaultEvents
	}
	f := &followState{out: out, say: c.Say, known: map[string]seen{}}
	if f.say == nil {
		f.say = func(string) {}
	}
	var tries backoff
	askedAgain := false // after a feed that ended with not-found
	for {
		f.since, f.part, f.feedSeen = time.Time{}, nil, false
		err := from.followOnce(ctx, c, f)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if f.feedShown() {
			askedAgain = false
		}
		if !f.since.IsZero() && time.Since(f.since) > healthyAfter {
			tries.reset()
		}
		if !f.retryable(err, &askedAgain) {
			return err
		}
		next := tries.next()
		if askedAgain {
			next = max(next, notFoundPause)
		}
		f.lost(err, next)
		if !wait(ctx, next) {
			return ctx.Err()
		}
		c.N = catchUp
	}
}

// followState is what was written so far, over all connections.
type followState struct {
	out io.Writer
	say func(string)

	known  map[string]seen // the events that were written last
	order  []string        // their ids, the oldest first
	newest string          // id; ids are in order of arrival
	after  string          // id of the last item of the API's stream

	connectedOnce bool // there was a connection
	since         time.Time
	feedSeen      bool // over this connection the relay has shown that there is a feed
	lossReported  bool // a loss was reported, and its end not yet
	failed        error

	part   []byte // of a line
	listed string // the last id of a list that is being caught up with; "" = none is
}

// seen is the state of an event when it was written.
type seen struct {
	state, at string
	attempts  int
}

// begin is called when a connection is established.
func (f *followState) begin() {
	f.since, f.listed = time.Now(), ""
	if f.connectedOnce {
		f.listed = "-" // less than any id: the first lines are a list
	}
	if f.lossReported {
		f.say("connected to the relay again")
	}
	f.connectedOnce, f.lossReported = true, false
}

func (f *followState) lost(err error, next time.Duration) {
	if f.lossReported {
		return
	}
	f.lossReported = true
	in := "now"
	if next >= time.Second {
		in = fmt.Sprintf("in %d s", int(next.Seconds()+0.5))
	}
	why := "the relay has ended the stream"
	if err != nil {
		why = err.Error()
	}
	f.say(why + "; connecting again " + in)
}

// retryable reports whether a new connection may help.
func (f *followState) retryable(err error, askedAgain *bool) bool {
	if !f.connectedOnce || f.failed != nil {
		return false
	}
	var e *Error
	switch {
	case err == nil:
		return true
	case !errors.As(err, &e):
		return false
	case e.Exit == ExitNotFound && !*askedAgain && f.hadFeed(): // a stopping relay ends a feed like this
		*askedAgain = true
		return true
	}
	return e.transient || e.Exit == ExitUnreachable
}

// hadFeed reports whether there was a feed at all: over SSH a session starts even for
// an alias that does not exist.
func (f *followState) hadFeed() bool { return f.newest != "" || f.feedShown() }

// feedShown reports whether this connection had a feed. How long the connection lasted
// proves nothing unless it is longer than any refusal takes.
func (f *followState) feedShown() bool {
	return f.feedSeen || !f.since.IsZero() && time.Since(f.since) > quietStream
}

// Write gets the output of the command events -f over SSH: on each connection a list,
// oldest first, and then changes.
func (f *followState) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		line, rest, whole := bytes.Cut(p, []byte("\n"))
		if len(f.part)+len(line) > maxLine {
			f.failed = errLongLine
			return 0, f.failed
		}
		f.part, p = append(f.part, line...), rest
		if !whole {
			break
		}
		if err := f.line(bytes.TrimSpace(f.part)); err != nil {
			return 0, err
		}
		f.part = f.part[:0]
	}
	return n, nil
}

// line handles one line over SSH. The list that a reconnect begins with is in the order
// of ids and reaches the newest known id; a line out of that order is a change.
func (f *followState) line(line []byte) error {
	if len(line) == 0 {
		return nil
	}
	var e record.Summary
	_ = json.Unmarshal(line, &e) // the printer reports invalid JSON
	old := f.listed != "" && e.ID > f.listed && e.ID <= f.newest
	if f.listed = e.ID; !old || e.ID == f.newest {
		f.listed = ""
	}
	return f.take(line, &e, old)
}

// take writes an event unless it says nothing new: an event of a list that was written
// before, or a second notice of the same state.
func (f *followState) take(line []byte, e *record.Summary, old bool) error {
	now := seen{e.State, e.ReceivedAt.String(), e.AttemptCount}
	f.feedSeen = true
	before, known := f.known[e.ID]
	if old && !known || known && before == now && (old || e.State != "") {
		return nil
	}
	if e.ID != "" {
		f.remember(e.ID, now, known)
	}
	if f.failed = writeLine(f.out, line); f.failed != nil {
		return f.failed
	}
	return nil
}

func (f *followState) remember(id string, now seen, known bool) {
	f.newest = max(f.newest, id)
	f.known[id] = now
	if known {
		return
	}
	if f.order = append(f.order, id); len(f.order) > maxKnownEvents {
		delete(f.known, f.order[0])
		f.order = slices.Delete(f.order, 0, 1)
	}
}

func (s SSH) followOnce(ctx context.Context, c Command, f *followState) error {
	err := s.run(ctx, c, f, f.begin)
	if f.failed != nil {
		return f.failed
	}
	return err
}

// followOnce opens the stream before it asks for the list, so that no event falls
// between them. With the id of the last item no list is needed: the relay continues
// after it, or sends resync.
func (a *API) followOnce(ctx context.Context, c Command, f *followState) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := a.requestAfter(ctx, http.MethodGet, "/stream?"+url.Values{"alias": {c.Arg}}.Encode(), nil, f.after)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	f.begin()
	f.feedSeen = true
	if f.after == "" {
		if err := a.missed(ctx, c, f); err != nil {
			return err
		}
	}
	quiet := time.AfterFunc(quietStream, cancel)
	err = readStream(&silenceReader{resp.Body, quiet}, func(id, name string, data []byte) error {
		defer func() { f.after = id }()
		switch name {
		case "event":
			var e record.Summary
			_ = json.Unmarshal(data, &e)
			return f.take(data, &e, false)
		case "resync":
			return a.missed(ctx, c, f)
		}
		return nil
	})
	switch ended := quiet.Stop(); {
	case f.failed != nil:
		return f.failed
	case !ended:
		return Errorf(ExitUnreachable, "the relay has been silent for %d s", int(quietStream.Seconds()))
	}
	return err
}

// missed writes the events of the latest list that were not written yet, oldest first.
func (a *API) missed(ctx context.Context, c Command, f *followState) error {
	n := c.N
	if f.newest != "" {
		n = catchUp
	}
	all, err := a.list(ctx, c.Arg, n)
	if err != nil {
		return err
	}
	for _, data := range slices.Backward(all.Data) {
		var e record.Summary
		_ = json.Unmarshal(data, &e)
		if err := f.take(data, &e, e.ID <= f.newest); err != nil {
			return err
		}
	}
	return nil
}

// silenceReader restarts a timer at each read.
type silenceReader struct {
	io.Reader
	quiet *time.Timer
}

// Read reads on.
func (h *silenceReader) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	if n > 0 {
		h.quiet.Reset(quietStream)
	}
	return n, err
}

func idOf(data []byte) string {
	var e struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(data, &e)
	return e.ID
}

func writeLine(out io.Writer, data []byte) error {
	var line bytes.Buffer
	if err := json.Compact(&line, data); err != nil {
		return err
	}
	line.WriteByte('\n')
	_, err := out.Write(line.Bytes())
	return err
}
