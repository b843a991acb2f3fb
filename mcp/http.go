package mcp

import (
	"net/http"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxMessage bounds a message of an agent over HTTP, in bytes.
const maxMessage = 1<<20 + 64<<10

// toolSchemas are those of the arguments of all tools: each HTTP request has a server of its own.
var toolSchemas = sdk.NewSchemaCache()

// ServeHTTP answers one message of an agent over streamable HTTP, as JSON: nothing is kept between
// messages, so that each may come to another node. What the caller may do is in o; who it is, its Host
// and its origin were checked before.
func ServeHTTP(w http.ResponseWriter, r *http.Request, o Options) {
	s := newServer(r.Context(), o, toolSchemas)
	sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, PropagateRequestCancellation: true, DisableLocalhostProtection: true, MaxRequestBodyBytes: maxMessage,
	}).ServeHTTP(w, r)
}
