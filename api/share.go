package api

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"relay"
	"relay/grant"
	"relay/record"
)

// defaultShareLifetime is the lifetime of a share that is created without one.
const defaultShareLifetime = "7d"

type shareBody struct {
	ExpiresIn nullableText `json:"expiresIn,omitzero" doc:"such as 12h or 7d; null = never; 7d when absent"`
	View      bool         `json:"view,omitempty" doc:"the holder can also view headers and body, with secrets masked"`
	OneUse    bool         `json:"oneUse,omitempty" doc:"the first replay ends the share"`
}

// nullableText is a JSON string that distinguishes an absent key from null.
type nullableText struct {
	given bool
	text  *string
}

// UnmarshalJSON stores the value and notes that the key was present.
func (e *nullableText) UnmarshalJSON(b []byte) error {
	e.given = true
	return json.Unmarshal(b, &e.text)
}

// set copies the text to *to if the key was given; null becomes "".
func (e *nullableText) set(to *string) {
	if !e.given {
		return
	}
	if *to = ""; e.text != nil {
		*to = *e.text
	}
}

// Schema returns the schema of a string or null.
func (nullableText) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Nullable: true}
}

type shareInput struct{ Body *shareBody }

func (s *server) addShareRoutes() {
	shares := route{tag: "shares", scope: relay.ScopeEventsShare, resolve: s.resolveRequest}
	// A share for one use ends with that use. Its row stays for a while: the replay that used it refers to
	// it, and the page of the event shows it as used.
	list := func(ctx context.Context, c *requestInfo) ([]relay.Share, error) {
		shares, err := s.Accounts.Shares(ctx, c.who, c.event.ID)
		return slices.DeleteFunc(shares, func(x relay.Share) bool { return x.OneUse && x.Uses > 0 }), err
	}
	addJSON(s, shares.on("POST /events/{id}/shares", "create-share",
		"Create a token that can replay this event without login; the token is shown once", 201, 409), s.createShare)
	addList(s, shares.on("GET /events/{id}/shares", "list-shares", "Shares of an event, without their tokens"),
		func(x relay.Share) record.Share { return record.OfShare(x, "", s.Site) }, list)
	share := found(shares, "shareId", func(x relay.Share) string { return x.ID }, list)
	addAction(s, share.on("DELETE /events/{id}/shares/{shareId}", "delete-share", "Revoke a share"),
		func(ctx context.Context, c *requestInfo) error {
			return s.Accounts.RemoveShare(ctx, c.who, c.event.ID, c.path("shareId"))
		})
	registerTyped(s, route{tag: "shares", public: true, resolve: s.sharedEvent}.on(
		"GET /shared/{token}", "get-shared", "What the holder of a share token can see",
	), func(ctx context.Context, c *requestInfo, _ *noInput) (*sharedOutput, error) {
		states, err := s.Deliver.Status(ctx, []relay.Alias{{ID: c.event.AliasID, Name: c.event.Alias}})
		if err != nil {
			return nil, err
		}
		shown, err := record.OfShared(ctx, c.event, c.held.Share, states[0].State == relay.TunnelOnline)
		if err != nil {
			return nil, err
		}
		return &sharedOutput{Referrer: "no-referrer", Robots: "noindex", Body: shown}, nil
	})
}

func (s *server) createShare(ctx context.Context, c *requestInfo, in *shareInput) (out record.Share, err error) {
	var wanted shareBody
	if in.Body != nil {
		wanted = *in.Body
	}
	if !wanted.ExpiresIn.given {
		week := defaultShareLifetime
		wanted.ExpiresIn.text = &week
	}
	expires, err := parseExpiry(wanted.ExpiresIn.text)
	if err != nil {
		return out, err
	}
	share, secret, err := s.grants().CreateShare(ctx, c.who, grant.ShareRequest{Event: c.event.ID, View: wanted.View, OneUse: wanted.OneUse, ExpiresAt: expires})
	return record.OfShare(share, secret, s.Site), err
}

// sharedEvent resolves {token}. Unknown, expired and revoked tokens get the same answer.
func (s *server) sharedEvent(r *http.Request, c *requestInfo) error {
	most := record.MaxBody
	if r.Method == http.MethodPost {
		most = 0
	}
	held, err := s.grants().CurrentShare(r.Context(), grant.HeldRequest{Remote: r.RemoteAddr, Secret: r.PathValue("token"), MaxBody: most})
	c.who, c.held, c.event = held.Actor, held, held.Event
	return err
}

type sharedOutput struct {
	Referrer string `header:"Referrer-Policy"`
	Robots   string `header:"X-Robots-Tag"`
	Body     *record.SharedEvent
}

// grants returns the rules for creating and using shares, tokens and invitations.
func (s *server) grants() grant.Grants {
	return grant.Grants{Accounts: s.Accounts, Events: s.Events, Limits: s.Limits}
}
