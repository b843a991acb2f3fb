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

// Change is told after the commit that made it, in commit order. The store gives
// batches of them to the feed; changes by other processes arrive by a poll within
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

// Subscription is one viewer's place in the live feed.
type Subscription interface {
	// Next waits for at least one item and gives all that wait, at most 20 times
	// a second. A viewer who fell behind gets one resync item in place of what it
	// missed. It fails when ctx ends, when the actor's access was revoked
	// (ErrNotFound), or when the server stops.
	Next(ctx context.Context) ([]FeedItem, error)
	// Close gives the place up.
	Close()
}
