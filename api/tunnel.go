package api

import (
	"context"
	"net/http"

	"relay"
	"relay/record"
)

// tunnelInput names a tunnel.
type tunnelInput struct {
	ID string `path:"id"`
}

func (s *server) addTunnelRoutes() {
	registerTyped(s, route{
		method: http.MethodGet, path: "/tunnels", id: "list-tunnels", tag: "tunnels",
		summary: "The tunnels of one's aliases, for admins all of them", scope: relay.ScopeAliasesRead,
	}, func(ctx context.Context, c *requestInfo, _ *noContent) (*jsonBody[record.List[record.Tunnel]], error) {
		return listAnswer(record.OfTunnel)(s.Nodes.Tunnels(ctx, c.who))
	})
	registerTyped(s, route{
		method: http.MethodDelete, path: "/tunnels/{id}", id: "close-tunnel", tag: "tunnels",
		summary: "Close a tunnel; its client is told", scope: relay.ScopeAliasesWrite, errors: []int{http.StatusNotFound},
	}, func(ctx context.Context, c *requestInfo, in *tunnelInput) (*noContent, error) {
		return nil, s.Nodes.CloseTunnel(ctx, c.who, in.ID)
	})
}
