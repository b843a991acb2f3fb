package registry

import (
	"context"
	"time"

	"relay"
)

// Store reads aliases, counts queues, and shares the tunnel of each alias with all nodes. Its methods
// are safe for concurrent use.
type Store interface {
	// AllAliases reads every alias.
	AllAliases(ctx context.Context) ([]relay.Alias, error)
	// AliasByID reads one alias; ErrNotFound when it was removed.
	AliasByID(ctx context.Context, id int64) (*relay.Alias, error)
	// AllOpenSecrets reads and decrypts the secrets of the senders of every alias; OpenSecrets does so for
	// one alias.
	AllOpenSecrets(ctx context.Context) (map[int64]relay.OpenSecrets, error)
	OpenSecrets(ctx context.Context, alias int64) (relay.OpenSecrets, error)
	// NoteTakeover writes to the audit log that a tunnel took an alias from another tunnel. It never
	// blocks.
	NoteTakeover(alias *relay.Alias, from, by relay.TunnelInfo)
	// QueueStats counts the queued attempts of the given aliases. The result has an entry for each
	// alias.
	QueueStats(ctx context.Context, aliases []int64) (map[int64]relay.QueueStats, error)
	// AllQueueStats counts the queued attempts of every alias; an alias without queued attempts may be
	// left out.
	AllQueueStats(ctx context.Context) (map[int64]relay.QueueStats, error)
	// LastEvents returns when the newest event of each alias arrived; an alias without events is left out.
	LastEvents(ctx context.Context, aliases []int64) (map[int64]time.Time, error)

	// NodeID returns the id of this node. The id changes when the node joins again after the other
	// nodes have declared it dead.
	NodeID() string
	// StoreTunnels writes which tunnels this node has, with at most one write for an alias. It returns
	// the tunnels of other nodes that were replaced. Writes for removed aliases are ignored.
	StoreTunnels(ctx context.Context, writes []relay.TunnelWrite) (replaced []relay.TunnelRecord, err error)
	// AddRequests adds to the numbers of requests that went through tunnels, by tunnel id.
	AddRequests(ctx context.Context, counts map[string]int64) error
	// AnnounceQueues tells the other nodes within a second that queues have changed.
	AnnounceQueues(ctx context.Context, aliases []int64) error
	// TunnelsOf reads the tunnels of aliases; aliases without a tunnel are left out.
	TunnelsOf(ctx context.Context, aliases []int64) (map[int64]relay.TunnelRecord, error)
	// LastOnline reads when the tunnels of aliases last changed their state; nil = of all aliases.
	// Aliases that never had a tunnel are left out.
	LastOnline(ctx context.Context, aliases []int64) (map[int64]time.Time, error)
	// AllTunnels reads the tunnels of all aliases.
	AllTunnels(ctx context.Context) ([]relay.TunnelRecord, error)
}
