package record

import (
	"time"

	"relay"
)

// Node is one relayd of those that serve the same Postgres.
type Node struct {
	Name          string  `json:"name"`
	Version       string  `json:"version"`
	Schema        int64   `json:"schema" doc:"the newest schema of the database that it knows"`
	State         string  `json:"state" enum:"serving,draining,unreachable,dead"`
	Since         Time    `json:"since" format:"date-time" doc:"its start, or when it came back after the others had called it dead"`
	Tunnels       int     `json:"tunnels" doc:"aliases whose tunnel is attached to it"`
	SpoolSteps    int64   `json:"spoolSteps" doc:"steps that its disk keeps until the database takes them"`
	ClockOffsetMs float64 `json:"clockOffsetMs" doc:"clock of the database minus its own"`
	Feed          string  `json:"feed" doc:"listening or polling: how it learns of changes made at other nodes; empty = it is the only one"`
	LastSeenAt    Time    `json:"lastSeenAt" format:"date-time"`
}

// OfNode gives the outward form of a node.
func OfNode(n relay.Node) Node {
	return Node{
		Name: n.Name, Version: n.Version, Schema: n.Schema, State: n.State, Since: Time{n.Since}, Tunnels: n.Tunnels, SpoolSteps: n.SpoolSteps,
		ClockOffsetMs: float64(n.ClockOffset) / float64(time.Millisecond), Feed: n.Feed, LastSeenAt: Time{n.LastSeenAt},
	}
}
