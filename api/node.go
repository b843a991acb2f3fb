package api

import (
	"context"

	"relay"
	"relay/record"
)

// addNodeRoutes adds the routes about the nodes, their tunnels and their SSH address.
func (s *server) addNodeRoutes() {
	addList(s, route{tag: "nodes", scope: relay.ScopeAccount, admin: true, unlimitedOnly: true}.on(
		"GET /nodes", "list-nodes", "The relayd processes that serve this relay",
	), record.OfNode, func(ctx context.Context, _ *requestInfo) ([]relay.Node, error) { return s.Nodes.Nodes(ctx) })
	list := func(ctx context.Context, c *requestInfo) ([]relay.TunnelRecord, error) {
		return s.Nodes.Tunnels(ctx, c.who)
	}
	addList(s, route{tag: "tunnels", scope: relay.ScopeAliasesRead}.on(
		"GET /tunnels", "list-tunnels", "The tunnels of one's aliases, for admins all of them",
	), record.OfTunnel, list)
	tunnel := found(route{tag: "tunnels", scope: relay.ScopeAliasesWrite}, "id", func(t relay.TunnelRecord) string { return t.ID }, list)
	addAction(s, tunnel.on(
		"DELETE /tunnels/{id}", "close-tunnel", "Close a tunnel; its client gets a message", 404,
	), func(ctx context.Context, c *requestInfo) error { return s.Nodes.CloseTunnel(ctx, c.who, c.path("id")) })
	addJSON(s, route{tag: "about", public: true}.on(
		"GET /ssh", "get-ssh", "SSH address and host keys, for clients that pin them through this site",
	), func(context.Context, *requestInfo, *noInput) (*record.SSH, error) {
		return record.OfSSH(s.Site, s.HostKeys), nil
	})
}
