package api

import (
	"context"
	"net/http"

	"relay/record"
)

func (s *server) addSSHRoute() {
	registerTyped(s, route{
		method: http.MethodGet, path: "/ssh", id: "get-ssh", tag: "about", public: true,
		summary: "SSH address and host keys, for clients that pin them through this site",
	}, func(context.Context, *requestInfo, *noContent) (*jsonBody[*record.SSH], error) {
		return &jsonBody[*record.SSH]{record.OfSSH(s.Site, s.HostKeys)}, nil
	})
}
