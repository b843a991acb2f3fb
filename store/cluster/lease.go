package cluster

import (
	"context"
	"sync"
	"time"

	"relay/store/db"
)

// Names of the leases. Each stands for work that the holder of the lease does for all nodes.
const (
	LeaseRetention = "retention"        // removes events that are too old
	LeaseEviction  = "eviction"         // evicts events of aliases that exceed their storage limit
	LeaseAccounts  = "account-eviction" // evicts events of accounts that exceed their storage limit
	LeaseTidy      = "tidy"             // makes partitions; removes expired rows, the oldest audit entries, and bodies without an event
	LeaseClaims    = "claims"           // ends the claims of nodes that have ended
)

const (
	leaseLife  = 30 * time.Second // life of a lease that is not renewed
	leaseTrust = 20 * time.Second // how long a node relies on a lease after renewing it
	leaseRetry = 10 * time.Second // wait before a node asks again for a lease that another node holds
)

// leases are the leases that this node has asked for. Two nodes may do the same work at once, for
// example after one was frozen. That does no harm, because each step of the work is a transaction that
// looks for the remaining work itself.
type leases struct {
	mu    sync.Mutex
	known map[string]leaseState
}

type leaseState struct {
	held  bool
	until time.Time // end of the time for which held is trusted; afterwards the database is asked again
}

// HoldsLease reports whether this node has to do the work of the lease with the given name. It takes the
// lease if no living node holds it. On SQLite it is always true, because there is only one node.
func (s *Store) HoldsLease(ctx context.Context, name string) bool {
	if !s.db.Dialect.SeveralNodes() {
		return true
	}
	if s.MayClaim() != nil {
		return false
	}
	l, start := &s.leases, time.Now()
	l.mu.Lock()
	known := l.known[name]
	l.mu.Unlock() // HasLease needs the lock and must not wait for the database
	if start.Before(known.until) {
		return known.held
	}
	held, err := s.takeLease(ctx, name, s.NodeID(), ` OR NOT EXISTS (SELECT 1 FROM nodes WHERE id = leases.holder AND state <> 'dead')`)
	if err != nil {
		return false // the next call tries again
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = map[string]leaseState{}
	}
	l.known[name] = leaseState{held, start.Add(map[bool]time.Duration{true: leaseTrust, false: leaseRetry}[held])}
	return held
}

// takeLease takes or renews a lease, and reports whether the given holder has it now. It takes the lease of
// another holder after its end, or if a further SQL condition holds. The parameter more is the text of this
// condition and begins with OR; "" = none.
func (s *Store) takeLease(ctx context.Context, name, holder, more string) (held bool, err error) {
	err = s.db.Update(ctx, "take a lease", func(c *db.Tx) error {
		n, err := c.Exec(`INSERT INTO leases (name, holder, until) VALUES (?, ?, `+c.Dialect.DatabaseTime()+` + CAST(? AS BIGINT))
			ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
			WHERE leases.holder = excluded.holder OR leases.until < `+c.Dialect.DatabaseTime()+more, name, holder, leaseLife.Microseconds())
		held = n == 1
		return err
	})
	return held, err
}

// HasLease reports, from memory, whether this node holds a lease.
func (s *Store) HasLease(name string) bool {
	if !s.db.Dialect.SeveralNodes() {
		return s.NodeID() != ""
	}
	l := &s.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.known[name]
	return known.held && time.Now().Before(known.until.Add(leaseLife-leaseTrust))
}
