package relay

import "time"

// The states of a node.
const (
	NodeServing     = "serving"
	NodeDraining    = "draining"    // it stops: it takes no new tunnels, and its tunnels are told to move
	NodeUnreachable = "unreachable" // it serves, but other living nodes have no connection to it
	NodeDead        = "dead"        // its beat stands still; the others end what it had under way
)

// Node is one relayd that serves a store, from its start or its rejoin to its end. All
// nodes of one Postgres serve at the same time; a SQLite store has one node.
type Node struct {
	ID       string // random, new with each start and rejoin; compared for equality only
	Name     string // label, unique among living nodes
	PeerAddr string // where other nodes reach its SSH listener; "" = nowhere
	PeerKey  string // public key that it shows there, as in authorized_keys
	Version  string // of the program
	Schema   int64  // newest schema that the program knows

	State       string
	Since       time.Time     // start or rejoin
	LastSeenAt  time.Time     // last beat, by the clock of the database
	Beat        int64         // grows with each round in which the node reads its own row
	Tunnels     int           // aliases whose tunnel is attached to it
	SpoolSteps  int64         // steps in its spool that are not in the database yet
	ClockOffset time.Duration // clock of the database minus clock of the node
	Feed        string        // listening or polling: how it learns of changes made elsewhere
	Self        bool          // it is the one that answers

	UnreachableFrom []string // names of the nodes for which it is unreachable
}
