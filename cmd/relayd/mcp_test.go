package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestAgentMendsAHandler: an agent waits for an event with relay mcp, sees why it failed, replays it after
// the fix and sees the changes. It cannot reach another alias, and --read-only offers no replay.
func TestAgentMendsAHandler(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, flags map[string]string) {
		h := newTestServer(t, flags)
		var mended atomic.Bool
		handler := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			if mended.Load() {
				_, _ = io.WriteString(w, `{"paid":true}`)
				return
			}
			w.WriteHeader(500)
			_, _ = io.WriteString(w, `{"error":"customer has no email"}`)
		}))
		defer handler.Close()
		h.tunnel("demo", strings.TrimPrefix(handler.URL, "http://"))
		h.tunnel("other", strings.TrimPrefix(handler.URL, "http://"))
		agent := connectAgent(t, &sdk.CommandTransport{Command: h.relay("mcp", "--alias", "demo")})

		waited := make(chan map[string]any, 1)
		go func() { waited <- agent.call("wait_for_event", map[string]any{"timeout": 60}) }()
		const hook = "POST /hook HTTP/1.1\r\nHost: demo.localhost\r\nConnection: close\r\nContent-Length: 4\r\n\r\npaid"
		var event map[string]any
		for event == nil { // a wait that begins after a request has arrived does not see that request, so requests are sent until the wait returns
			h.send(hook)
			select {
			case event = <-waited:
			default:
			}
		}
		id, _ := event["id"].(string)
		if event["state"] != "delivered" || event["status"] != 500.0 {
			t.Errorf("the event: %v", event)
		}
		if shown := agent.text("show_event", map[string]any{"id": id}); !strings.Contains(shown, "customer has no email") {
			t.Errorf("shown: %s", shown)
		}
		mended.Store(true)
		replayed := agent.text("replay_event", map[string]any{"id": id})
		for _, part := range []string{`"number":2`, `"status":200`, `500 → 200`, `"via":"mcp"`, `"client":"mender 3"`} {
			if !strings.Contains(replayed, part) {
				t.Errorf("no %s in %s", part, replayed)
			}
		}
		if other := agent.text("list_events", map[string]any{"alias": "other"}); !strings.Contains(other, "not-found") {
			t.Errorf("another alias: %s", other)
		}
		reader := connectAgent(t, &sdk.CommandTransport{Command: h.relay("mcp", "--read-only")})
		var names []string
		for tool, err := range reader.session.Tools(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, tool.Name)
		}
		if !slices.Contains(names, "show_event") || slices.Contains(names, "replay_event") {
			t.Errorf("read only: %v", names)
		}
	})
}

type agentAt struct {
	t       *testing.T
	session *sdk.ClientSession
}

func connectAgent(t *testing.T, transport sdk.Transport) agentAt {
	t.Helper()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "mender", Version: "3"}, nil).Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return agentAt{t, session}
}

func (a agentAt) text(tool string, arguments map[string]any) string {
	result, err := a.session.CallTool(a.t.Context(), &sdk.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		a.t.Error(err)
		return ""
	}
	p, err := json.Marshal(result.StructuredContent)
	if err != nil {
		a.t.Error(err)
	}
	return string(p)
}

func (a agentAt) call(tool string, arguments map[string]any) (out map[string]any) {
	if err := json.Unmarshal([]byte(a.text(tool, arguments)), &out); err != nil {
		a.t.Error(err)
	}
	return out
}
