package store

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"relay"
)

// SetConnections sets what returns the number of SSH connections that accounts have at this
// node, for the limit of an account over all nodes. Accounts that are not in it count as 0.
// Call it before Serve.
func (s *Store) SetConnections(f func() map[int64]int) { s.membership.connections = f }

// ConnectionsElsewhere returns from memory how many SSH connections an account has at the other
// living nodes. It is at most a second old, as long as notices arrive: a node that writes a
// change tells the others to read it.
func (s *Store) ConnectionsElsewhere(account int64) (n int) {
	m := &s.membership
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, seen := range m.others {
		if seen.row.State != relay.NodeDead && m.stillFor(seen) < deadAfter {
			n += seen.connections[account]
		}
	}
	return n
}

// connectionsChanged reports whether the last renewal wrote other connections than there are
// now. After one that failed it waits for the next.
func (m *membership) connectionsChanged() bool {
	now := m.countConnections()
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.steady.IsZero() && now != m.toldAccounts
}

// countConnections returns what the next renewal writes: "ACCOUNT:CONNECTIONS", by account.
func (m *membership) countConnections() string {
	if m.connections == nil {
		return ""
	}
	byAccount := m.connections()
	var entries []string
	for _, account := range slices.Sorted(maps.Keys(byAccount)) {
		entries = append(entries, strconv.FormatInt(account, 10)+":"+strconv.Itoa(byAccount[account]))
	}
	return strings.Join(entries, ",")
}

// connectionsOf reads what another node has written, unless it is what n has already.
func (n *nodeSeen) connectionsOf(text string) map[int64]int {
	if n != nil && n.row.Accounts == text {
		return n.connections
	}
	byAccount := map[int64]int{}
	for entry := range strings.SplitSeq(text, ",") {
		account, count, _ := strings.Cut(entry, ":")
		id, err := strconv.ParseInt(account, 10, 64)
		number, cerr := strconv.Atoi(count)
		if err == nil && cerr == nil && number > 0 {
			byAccount[id] = number
		}
	}
	return byAccount
}
