package api_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"relay"
)

// TestAgentSeesNoSecretOfWhatItDid: the results of acting tools mask secrets as those of reading tools do,
// unless the agent asks for them.
func TestAgentSeesNoSecretOfWhatItDid(t *testing.T) {
	t.Parallel()
	h := newSender(t, func(o *optionsOf) { o.MCP = true })
	server := httptest.NewServer(h.handler)
	t.Cleanup(server.Close)
	id := h.event("shop", refusedInvoice)
	h.deliver.replay = func(who relay.Actor, id relay.ID, _ time.Duration) (*relay.Event, int, error) {
		claim, err := h.store.BeginReplay(context.Background(), who, id, true)
		if err != nil {
			return nil, 0, err
		}
		made := claim.Event.Attempts[0]
		made.State, made.EndedAt, made.HasResponse, made.Status, made.ResponseState = relay.StateDelivered, time.Now(), true, 200, relay.ResponseComplete
		made.Response = message("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 39\r\n\r\n", `{"echo":"hunter2hunter2","ok":"k3pt"}  `)
		h.wait(h.store.Finish(id, &made, ""))
		e, err := h.store.Event(context.Background(), who, id, 1<<20)
		return e, made.N, err
	}
	a := newAgent(t, server.URL, h.asAlice)
	for name, c := range map[string]struct {
		tool      string
		arguments args
		kept      string // of what is no secret
	}{
		"replay":  {"replay_event", args{"id": id.String()}, "k3pt"},
		"send":    {"send_event", args{"alias": "shop", "from": id.String(), "set": args{"note": "k3pt"}}, "k3pt"},
		"dry run": {"send_event", args{"alias": "shop", "from": id.String(), "set": args{"note": "k3pt"}, "dryRun": true}, "k3pt"},
	} {
		text := a.want(c.tool, c.arguments, c.kept)
		for _, secret := range []string{"hunter2hunter2", "s3cr3ts3cr3t", "abcdefghijklmnop"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s: %s is in %s", name, secret, text)
			}
		}
		c.arguments["reveal"] = true
		a.want(c.tool, c.arguments, c.kept, "hunter2hunter2")
	}
}
