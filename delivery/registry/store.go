package registry

import (
	"context"
	"time"

	"relay"
)

// Store reads aliases, counts queues, and shares the tunnel of each alias with all nodes. Its methods
// are safe for concurrent use.
type Store interface {
	// AllAliases reads every alias; used at the start.
	AllAliases(ctx context.Context) ([]relay.Alias, error)
	// AliasByID reads one; ErrNotFound when it is gone.
	AliasByID(ctx context.Context, id int64) (*relay.Alias, error)
	// AllOpenSecrets opens the secrets of the senders of every alias; OpenSecrets those of one.
	AllOpenSecrets(ctx context.Context) (map[int64]relay.OpenSecrets, error)
	OpenSecrets(ctx context.Context, alias int64) (relay.OpenSecrets, error)
	// NoteTakeover keeps in the audit log that a tunnel took an alias from another one.
	// It never blocks.
	NoteTakeover(alias *relay.Alias, from, by relay.TunnelInfo)
	// QueueStats counts the queued attempts of the given aliases. Each of them is in the result.
	QueueStats(ctx context.Context, aliases []int64) (map[int64]relay.QueueStats, error)
	// AllQueueStats counts the queued attempts of every alias; an alias without any may be left out.
	AllQueueStats(ctx context.Context) (map[int64]relay.QueueStats, error)
	// LastEvents gives the first arrival of the newest event of each alias; an alias
	// without events is left out.
	LastEvents(ctx context.Context, aliases []int64) (map[int64]time.Time, error)

	// NodeID returns the id of this node. It is another one after the node was taken for
	// dead and has joined again.
	NodeID() string
	// StoreTunnels writes which tunnels this node has, at most one write for an alias, and
	// returns the tunnels of other nodes that were replaced. An alias that is gone is no
	// error.
	StoreTunnels(ctx context.Context, writes []relay.TunnelWrite) (replaced []relay.TunnelRecord, err error)
	// AddRequests adds to the numbers of requests that went through tunnels, by tunnel id.
	AddRequests(ctx context.Context, counts map[string]int64) error
	// AnnounceQueues tells the other nodes within a second that queues have changed.
	AnnounceQueues(ctx context.Context, aliases []int64) error
	// TunnelsOf reads the tunnels of aliases; those without one are left out.
	TunnelsOf(ctx context.Context, aliases []int64) (map[int64]relay.TunnelRecord, error)
	// LastOnline reads when the tunnels of aliases, nil = of all, last changed their state.
	// Those that never had one are left out.
	LastOnline(ctx context.Context, aliases []int64) (map[int64]time.Time, error)
	// AllTunnels reads the tunnels of all aliases.
	AllTunnels(ctx context.Context) ([]relay.TunnelRecord, error)
}
