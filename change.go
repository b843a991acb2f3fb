package relay

import "context"

// ChangeKind is the kind of thing that changed.
type ChangeKind string

// The kinds of change.
const (
	ChangeEvent   ChangeKind = "event"   // an event was captured or its summary changed
	ChangeAttempt ChangeKind = "attempt" // attempt N of Event was added or changed; it implies ChangeEvent
	ChangeQueue   ChangeKind = "queue"   // the queue of Alias changed: attempts were released, canceled, deleted or claimed
	ChangeAlias   ChangeKind = "alias"   // Alias was made or removed, or its settings, owner or members changed; read the alias again. Alias 0 = any alias may have changed
	ChangeMissed  ChangeKind = "missed"  // changes of events, attempts and queues were missed: read again what is shown
	ChangeTunnel  ChangeKind = "tunnel"  // at another node, the tunnel of Alias was attached or lost, or changed its state; Alias 0 = tunnels of many aliases
	ChangeAccount ChangeKind = "account" // a key, token or session of Account, or the account itself, was revoked; check open connections again. Account 0 = any account may have changed

	ChangeEnrolment ChangeKind = "enrolment" // an enrolment of the key with the fingerprint Credential has ended
)

// Change describes a committed change. The store publishes batches of changes after
// their commit, in commit order. The store polls for changes by other
// processes and publishes them within two seconds.
type Change struct {
	Kind       ChangeKind
	Alias      int64
	Event      ID
	N          int
	Account    int64
	Credential string // in a ChangeAccount, the id of the revoked credential; "" = any credential of Account may be revoked. In a ChangeEnrolment, the fingerprint of the key

	// Snapshot returns the event and attempt N after the change, without bodies. A nil result means that the
	// event or attempt is not in memory and must be read from the store. Snapshot itself may be nil. A
	// receiver of changes may call it only until the receiver's method Publish returns.
	Snapshot func() (*Event, *Attempt)
}

// FeedItem is one message to the viewers of the live feed. It is encoded once for all of them.
type FeedItem struct {
	ID    string // browsers send it back in Last-Event-ID
	Name  string // event, attempt, tunnel, resync
	Alias int64
	Data  []byte // one JSON object without line breaks
	SSE   []byte // the item as a server-sent event
}

// Subscription is one viewer of the live feed.
type Subscription interface {
	// Start returns the id with which a viewer can resume if it loses its connection before the first item;
	// "" if the viewer gave an id when it subscribed.
	Start() string
	// Next waits for at least one item and returns all pending items, at most 20
	// times a second. A viewer that is too slow gets one resync item instead of the
	// items that it missed. Next fails when ctx ends, when the access of the actor is
	// revoked (ErrNotFound), or when the server stops.
	Next(ctx context.Context) ([]FeedItem, error)
	// Close ends the subscription.
	Close()
}
