package mcp

import (
	"net/http"
	"slices"
	"strings"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxMessage bounds a message of an agent over HTTP, in bytes.
const maxMessage = 1<<20 + 64<<10

// Handler answers agents over streamable HTTP, in JSON. It stores nothing between messages, so each message
// may go to another node. It has one MCP server for each set of scopes, because the scopes decide the list of
// tools.
type Handler struct {
	version string
	schemas *sdk.SchemaCache
	serve   http.Handler

	mu      sync.Mutex
	servers map[string]*sdk.Server // the servers by the scopes that decide the list of tools
}

// NewHandler returns the handler of a program with the given version.
func NewHandler(version string) *Handler {
	h := &Handler{version: version, schemas: sdk.NewSchemaCache(), servers: map[string]*sdk.Server{}}
	h.serve = sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server {
		return h.server(r.Context().Value(toolsKey{}).(*tools).Me.Scopes)
	}, &sdk.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, PropagateRequestCancellation: true, DisableLocalhostProtection: true, MaxRequestBodyBytes: maxMessage,
	})
	return h
}

// listingScopes are the scopes that decide which tools are listed.
var listingScopes = []string{"aliases:read", "events:read", "events:replay", "events:send"}

// server returns the server for a credential with these scopes.
func (h *Handler) server(scopes []string) *sdk.Server {
	listed := slices.DeleteFunc(slices.Clone(listingScopes), func(scope string) bool { return !slices.Contains(scopes, scope) })
	key := strings.Join(listed, " ")
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.servers[key]
	if s == nil {
		s = newServer(h.version, listing{scopes: listed}, h.schemas)
		h.servers[key] = s
	}
	return s
}

// Serve answers one message of an agent. o describes the rights of the agent. The code that calls Serve must
// have checked the agent's identity, and the Host and Origin of the request.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, o Options) {
	// The SDK demands that agents also accept event streams. All answers of this server are JSON.
	if acceptsJSON(r.Header.Values("Accept")) {
		r.Header.Set("Accept", "application/json, text/event-stream")
	}
	h.serve.ServeHTTP(w, r.WithContext(withTools(r.Context(), &tools{o, r.Context()})))
}

// acceptsJSON reports whether the values of the header Accept allow JSON; without a value, everything is allowed.
func acceptsJSON(accept []string) bool {
	if len(accept) == 0 {
		return true
	}
	for kind := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		kind, _, _ = strings.Cut(kind, ";")
		switch strings.ToLower(strings.TrimSpace(kind)) {
		case "application/json", "application/*", "*/*":
			return true
		}
	}
	return false
}
