package record

import "relay"

// Tunnel is an attached tunnel, wherever it is attached.
type Tunnel struct {
	ID       string `json:"id"`
	Alias    string `json:"alias"`
	Account  string `json:"account" doc:"who attached it"`
	Client   string `json:"client"`
	Source   string `json:"source" doc:"address and port of the client"`
	Node     string `json:"node" doc:"name of the relayd that has it"`
	State    string `json:"state" enum:"online,stale,closing"`
	Since    Time   `json:"since" format:"date-time"`
	Requests int64  `json:"requests" doc:"requests that went through it, at most some seconds old"`
}

// OfTunnel gives the outward form of a tunnel.
func OfTunnel(r relay.TunnelRecord) Tunnel {
	t := Tunnel{
		ID: r.ID, Alias: r.AliasName, Account: r.User, Client: r.Client, Node: r.NodeName, State: string(r.State), Since: Time{r.Since}, Requests: r.Requests,
	}
	if r.Remote.IsValid() {
		t.Source = r.Remote.String()
	}
	return t
}
