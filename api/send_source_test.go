package api_test

import (
	"testing"

	"relay"
	"relay/api"
)

// TestSendSources: a new event can be made only from an event of the same alias whose whole request is
// stored. A refused send uses no secret, and a signed send uses one once.
func TestSendSources(t *testing.T) {
	t.Parallel()
	used := 0
	h := newSender(t, func(o *api.Options) { o.Secrets = oneSecret{used: &used} })
	id, _ := h.stripe()
	h.alias(h.alice, "second")
	cut := h.event("shop", func(e *relay.Event) {
		e.Request.Body.State = relay.BodyAborted
		e.State, e.Blocker, e.Attempts = relay.StateIncomplete, relay.BlockedIncomplete, nil
	})
	for from, want := range map[string]struct {
		status int
		code   string
	}{
		h.event("second", nil).String(): {404, "not-found"},
		cut.String():                    {422, "validation-failed"},
	} {
		h.post(h.asAlice, sendTarget, `{"from":"`+from+`","sign":"auto"}`).code(want.status, want.code)
	}
	if used != 0 || len(h.sent) != 0 {
		t.Errorf("%d were signed and %d sent", used, len(h.sent))
	}
	h.post(h.asAlice, sendTarget, `{"from":"`+id.String()+`","sign":"auto"}`).want(200)
	if used != 1 || len(h.sent) != 1 {
		t.Errorf("%d were signed and %d sent, want one of each", used, len(h.sent))
	}
}
