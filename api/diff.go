package api

import (
	"context"
	"net/http"

	"relay"
	"relay/record"
)

// diffInput names what is compared.
type diffInput struct {
	Left  string `query:"left" required:"true" maxLength:"100" doc:"an event, or one of its attempts: evt_…/1"`
	Right string `query:"right" required:"true" maxLength:"100" doc:"as left; of the same event or another one"`
	Part  string `query:"part" enum:"request,response" doc:"if absent: response where left or right names an attempt, else request. The response of an event without the number of an attempt is that of its last attempt that got one"`
}

func (s *server) addDiffRoute() {
	registerTyped(s, route{
		method: http.MethodGet, path: "/diff", id: "get-diff", tag: "events",
		summary: "What changed between two responses or two requests", scope: relay.ScopeEventsRead, resolve: s.resolveDiff,
	}, func(ctx context.Context, c *requestInfo, in *diffInput) (*jsonBody[*record.Diff], error) {
		d, err := record.ReadDiff(ctx, s.Events, c.who, c.compared[0], c.compared[1], in.Part)
		return &jsonBody[*record.Diff]{d}, err
	})
}

// resolveDiff resolves what is compared. Missing parameters are left to the check of the
// input.
func (s *server) resolveDiff(r *http.Request, c *requestInfo) error {
	for i, name := range []string{"left", "right"} {
		text := r.URL.Query().Get(name)
		if text == "" {
			continue
		}
		ref, err := record.ParseAttemptRef(text)
		if err != nil {
			return relay.ErrNotFound
		}
		if _, err := s.Events.Event(r.Context(), c.who, ref.Event, 0); err != nil {
			return err
		}
		c.compared[i] = ref
	}
	return nil
}
