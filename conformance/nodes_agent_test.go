package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// agentTool calls a tool of the MCP server at a node, and returns the structured content of the result.
func (r *relayServer) agentTool(name, arguments string) (string, error) {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, name, arguments)
	req, err := http.NewRequest(http.MethodPost, "http://"+r.http+"/mcp", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return "", err
	}
	var answer struct {
		Result struct {
			IsError           bool
			StructuredContent json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &answer); err != nil || res.StatusCode != http.StatusOK || answer.Result.IsError {
		return "", fmt.Errorf("%d %s: %v", res.StatusCode, text, err)
	}
	return string(answer.Result.StructuredContent), nil
}

// TestAgentAtAnotherNode: an agent waits at one node for an event whose caller and tunnel are at the other
// node, and gets the event after its delivery. The agent then shows and replays the event at the node where
// it waited.
func TestAgentAtAnotherNode(t *testing.T) {
	t.Parallel()
	a, b := twoNodes(t)
	b.start()
	b.waitFor(10*time.Second, "two nodes", func() bool { return b.metric("relay_store_nodes") == 2 })
	a.tunnel("n1", says(t, "hello"))
	b.waitFor(10*time.Second, "n1 to be reached", func() bool {
		status, _, _ := b.call("n1", "/before", "x")
		return status == 200
	})
	type result struct {
		text string
		err  error
	}
	waited := make(chan result, 1)
	go func() {
		text, err := b.agentTool("wait_for_event", `{"alias":"n1","path":"/hook","timeout":60}`)
		waited <- result{text, err}
	}()
	b.waitFor(10*time.Second, "the wait", func() bool { return b.metric("relay_api_waits") == 1 && b.metric("relay_delivery_viewers") == 1 })
	if status, body, _ := a.call("n1", "/hook", "x"); status != 200 || body != "hello" {
		t.Fatalf("answered %d %q", status, body)
	}
	got := <-waited
	var e record
	if err := json.Unmarshal([]byte(got.text), &e); err != nil || got.err != nil || e.Path != "/hook" || e.State != "delivered" || e.Status == nil || *e.Status != 200 {
		t.Fatalf("waited for %s, %v %v", got.text, got.err, err)
	}
	if shown, err := b.agentTool("show_event", `{"id":"`+e.ID+`"}`); err != nil || !strings.Contains(shown, `"node":"a"`) {
		t.Errorf("shown %s, %v", shown, err)
	}
	if replayed, err := b.agentTool("replay_event", `{"id":"`+e.ID+`"}`); err != nil || !strings.Contains(replayed, `"number":2`) || !strings.Contains(replayed, `"headline":"200 in both`) {
		t.Errorf("replayed %s, %v", replayed, err)
	}
}
