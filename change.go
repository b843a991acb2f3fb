package relay

import "context"

// ChangeKind says what a Change is about.
type ChangeKind string

// The kinds of change.
const (
	ChangeEvent   ChangeKind = "event"   // an event was captured or its summary changed
	ChangeAttempt ChangeKind = "attempt" // attempt N of Event was added or changed; implies ChangeEvent
	ChangeQueue   ChangeKind = "queue"   // queue counts of Alias changed (released, canceled, deleted, claimed)
	ChangeAlias   ChangeKind = "alias"   // Alias was made, its settings, owner or members changed, or it is gone: read again
	ChangeAccount ChangeKind = "account" // keys, tokens, sessions or the account itself were revoked: check again who may stay
)

// Change describes a committed change. The store publishes batches of changes after
// their commit, in commit order. Changes by other processes are found by a poll within
// two seconds.
type Change struct {
	Kind       ChangeKind
	Alias      int64
	Event      ID
	N          int
	Account    int64
	Credential string // of ChangeAccount: what was revoked; "" = anything of the account
}

// FeedItem is one message to a viewer, JSON encoded once for all of them.
type FeedItem struct {
	ID    string // for Last-Event-ID
	Name  string // event, attempt, tunnel, resync
	Alias int64
	Data  []byte // one JSON object without line breaks
}

// Subscription is one viewer of the live feed.
type Subscription interface {
	// Next waits for at least one item and returns all pending ones, at most 20 times
	// a second. A viewer that fell behind gets one resync item instead of the items
	// that it missed. Next fails when ctx ends, when the actor's access is revoked
	// (ErrNotFound), or when the server stops.
	Next(ctx context.Context) ([]FeedItem, error)
	// Close ends the subscription.
	Close()
}
