package relay

import "time"

// The states of a node.
const (
	NodeServing     = "serving"
	NodeDraining    = "draining"    // the node stops: it accepts no new tunnels, and its tunnels are told to move
	NodeUnreachable = "unreachable" // the node serves, but other living nodes cannot connect to it
	NodeDead        = "dead"        // the node has sent no heartbeat for some time; other nodes end its attempts in progress
)

// Node is one relayd that serves a store, from its start, or from its rejoin after other nodes declared it
// dead, to its end. All nodes of one Postgres serve at the same time; a SQLite store has one node.
type Node struct {
	ID       string // random, new with each start and rejoin; compared for equality only
	Name     string // label, unique among living nodes
	PeerAddr string // address at which other nodes reach its SSH listener; "" = none
	PeerKey  string // public key of its SSH listener for other nodes, in the format of authorized_keys
	Version  string // version of the program
	Schema   int64  // newest schema that the program knows

	State       string
	Since       time.Time     // start or rejoin
	LastSeenAt  time.Time     // last heartbeat, by the clock of the database
	Beat        int64         // grows with each heartbeat
	Tunnels     int           // number of aliases whose tunnel is attached to the node
	SpoolSteps  int64         // steps in the spool of the node that are not in the database yet
	ClockOffset time.Duration // clock of the database minus clock of the node
	Feed        string        // listening or polling: how the node learns of changes made by other nodes
	Self        bool          // the node that answers this request

	UnreachableFrom []string // names of the nodes that cannot connect to this node
}
