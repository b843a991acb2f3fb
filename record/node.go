package record

import (
	"time"

	"relay"
)

// Node is one of the relayd processes that serve the same Postgres.
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

// OfNode returns the JSON form of a node.
func OfNode(n relay.Node) Node {
	return Node{
		Name: n.Name, Version: n.Version, Schema: n.Schema, State: n.State, Since: Time{n.Since}, Tunnels: n.Tunnels, SpoolSteps: n.SpoolSteps,
		ClockOffsetMs: float64(n.ClockOffset) / float64(time.Millisecond), Feed: n.Feed, LastSeenAt: Time{n.LastSeenAt},
	}
}

// Tunnel is a tunnel that is attached at any node.
type Tunnel struct {
	ID       string `json:"id"`
	Alias    string `json:"alias"`
	Account  string `json:"account" doc:"who attached it"`
	Client   string `json:"client"`
	Source   string `json:"source" doc:"address and port of the client"`
	Node     string `json:"node" doc:"name of the relayd that has it"`
	State    string `json:"state" enum:"online,stale,closing"`
	Since    Time   `json:"since" format:"date-time"`
	Requests int64  `json:"requests" doc:"requests that went through it, at most about a second old"`
}

// OfTunnel returns the JSON form of a tunnel.
func OfTunnel(r relay.TunnelRecord) Tunnel {
	t := Tunnel{
		ID: r.ID, Alias: r.AliasName, Account: r.User, Client: r.Client, Node: r.NodeName, State: string(r.State), Since: Time{r.Since}, Requests: r.Requests,
	}
	if r.Remote.IsValid() {
		t.Source = r.Remote.String()
	}
	return t
}

// SSH holds the SSH address of the server and its host keys.
type SSH struct {
	Addr     string          `json:"addr" doc:"host:port to dial"`
	BaseURL  string          `json:"baseUrl" doc:"dashboard and API"`
	HostKeys []relay.HostKey `json:"hostKeys" nullable:"false" doc:"every key that the server may show"`
}

// OfSSH returns the JSON form of a site's SSH address and host keys.
func OfSSH(site relay.Site, keys []relay.HostKey) *SSH {
	return &SSH{Addr: site.SSHAddr, BaseURL: site.URL(""), HostKeys: append([]relay.HostKey{}, keys...)}
}
