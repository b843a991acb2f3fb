package api

import (
	"context"
	"net/http"

	"relay/record"
)

func (s *server) addSSHRoute() {
	registerTyped(s, route{
		method: http.MethodGet, path: "/ssh", id: "get-ssh", tag: "about", public: true,
		summary: "Where the SSH side is and which host keys are its own, for a client that pins them through this site",
	}, func(context.Context, *requestInfo, *noContent) (*jsonBody[*record.SSH], error) {
		return &jsonBody[*record.SSH]{record.OfSSH(s.Site, s.HostKeys)}, nil
	})
}
