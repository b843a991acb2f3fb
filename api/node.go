package api

import (
	"context"
	"net/http"

	"relay"
	"relay/record"
)

func (s *server) addNodeRoutes() {
	registerTyped(s, route{
		method: http.MethodGet, path: "/nodes", id: "list-nodes", tag: "nodes",
		summary: "The relayd processes that serve this relay", scope: relay.ScopeAccount, admin: true, unlimitedOnly: true,
	}, func(ctx context.Context, _ *requestInfo, _ *noContent) (*jsonBody[record.List[record.Node]], error) {
		return listAnswer(record.OfNode)(s.Nodes.Nodes(ctx))
	})
}
